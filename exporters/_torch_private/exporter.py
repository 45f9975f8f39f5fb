"""Private interfaces of torch's exporter that is built on ``torch.export``."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

import onnx_ir
import torch
from onnxscript import evaluator
from onnxscript.values import Opset

from .guard import guarded
from .operators import HigherOrderOperator, OpOverload

T = TypeVar("T")
P = ParamSpec("P")

_exporting = threading.RLock()


def one_at_a_time(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that only one thread at a time runs any function decorated so.

    torch's exporter keeps the state of an export in global modules. A module that another thread calls meanwhile would
    become part of that export, and its training mode is shared.

    Within such a function, torch lists its composite operators once, not in every pass over a graph.
    """

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with _exporting, _caching_composites():
            return function(*args, **kwargs)

    return locked


def _caching_composites() -> AbstractContextManager[None]:
    """Return a context manager: list torch's composite operators once, not for every namespace in every pass.

    This saves a third of the time of a small export.
    """
    module = _passes()
    return _replaced(module, "_materialize_cpp_cia_ops", functools.cache(module._materialize_cpp_cia_ops))


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Context manager: replace an attribute of a module, a class or an object."""
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@guarded("torch._export.utils._materialize_cpp_cia_ops")
def _passes() -> Any:
    from torch._export import utils

    assert callable(utils._materialize_cpp_cia_ops)
    return utils


@guarded("torch.onnx._constants.ONNX_DEFAULT_OPSET")
def default_opset() -> int:
    """Return the opset version that torch exports to by default."""
    from torch.onnx import _constants

    return int(_constants.ONNX_DEFAULT_OPSET)


@guarded("torch.onnx._internal.exporter._dynamic_shapes.from_dynamic_axes_to_dynamic_shapes")
def shapes_of_axes(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Convert ``dynamic_axes`` in `arguments` to ``dynamic_shapes``.

    Returns
    -------
    tuple
        The ``dynamic_shapes``, and the positional and keyword arguments of the model that they fit.
    """
    from torch.onnx._internal.exporter._dynamic_shapes import from_dynamic_axes_to_dynamic_shapes as convert

    outputs = set(arguments.get("output_names") or ())
    shapes: Any
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning)
        shapes, values, _ = convert(
            model,
            args,
            kwargs,
            dynamic_axes=arguments["dynamic_axes"],
            input_names=arguments.get("input_names"),
            output_names=outputs,
        )
    if kwargs:  # the conversion made them positional
        names = inspect.signature(model.forward).parameters
        given = [name for index, name in enumerate(names) if index < len(args) or name in kwargs]
        return dict(zip(given, shapes, strict=True)), args, kwargs
    return shapes, values, {}


def decomposing_without_gradients() -> AbstractContextManager[None]:
    """Return a context manager: torch decomposes graphs without gradients, for which some operators have no formula.

    The model is captured as before, since it may use gradients itself.
    """
    name, core = "_prepare_exported_program_for_export", _core()
    return _replaced(core, name, torch.no_grad()(getattr(core, name)))


@guarded("torch.onnx._internal.exporter._core._prepare_exported_program_for_export")
def _core() -> Any:
    from torch.onnx._internal.exporter import _core

    assert callable(_core._prepare_exported_program_for_export)
    return _core


@guarded("torch.onnx._internal.exporter._constants.TORCHLIB_OPSET")
def lowest_opset() -> int:
    """Return the opset version of torch's own translations.

    torch's exporter converts nodes from this version, and treats older nodes as of this version.
    """
    from torch.onnx._internal.exporter import _constants

    return int(_constants.TORCHLIB_OPSET)


@guarded("ONNXRegistry.get_decomps")
def own_translation(overload: OpOverload) -> Callable[..., Any] | None:
    """Return the function by which torch's exporter translates an operator on real tensors, or None.

    In a translation it is the one for the model's opset, elsewhere the one for the default opset.
    """
    found = _torchlib(opset_version=_opset_version()).get_decomps(overload)
    return next((item.onnx_function for item in found if not item.is_complex), None)


@guarded("torch.onnx._internal.exporter._core._prepare_exported_program_for_export")
def untranslated(
    program: torch.export.ExportedProgram,
    kept: Iterable[OpOverload],
    takes: Callable[[torch.fx.Node], bool] = lambda node: True,
) -> list[torch.fx.Node]:
    """Return the calls that torch's exporter cannot translate, after its decompositions. `program` is not changed.

    Parameters
    ----------
    kept : iterable of OpOverload
        Operators that are not decomposed, and that count as translated.
    takes : callable
        Returns whether a call of a kept operator counts as translated.
    """
    from torch.onnx._internal.exporter import _core, _dispatching

    torchlib = _torchlib(opset_version=default_opset())
    registry = copy.copy(torchlib)
    registry.functions = {**{target: [SimpleNamespace(fx_target=target)] for target in kept}, **registry.functions}
    with torch.no_grad(), warnings.catch_warnings():
        # Raised by torch's own copy of its exported program.
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        prepared = _core._prepare_exported_program_for_export(program, registry=registry)
    modules = [item for item in prepared.graph_module.modules() if isinstance(item, torch.fx.GraphModule)]
    nodes = [node for module in modules for node in module.graph.nodes if node.op == "call_function"]
    operators = [node for node in nodes if isinstance(node.target, (OpOverload, HigherOrderOperator))]
    unknown = [node for node in operators if node.target not in kept or not takes(node)]
    return [node for node in unknown if _dispatching.dispatch(node, torchlib)[0] is None]


@functools.cache
def _torchlib(**arguments: Any) -> Any:
    """Return torch's registry of translations, extended by sizes of complex tensors."""
    # It logs for each operator of torchvision's that torchvision is not installed.
    with _replaced(logging.getLogger("torch.onnx._internal.exporter._registration"), "disabled", True):
        registry = _reading().__get__(None, _registry_class())(**arguments)
    # Complex tensors are pairs along a last dimension; the translations of their other sizes are the same.
    for name in ("aten::sym_size.int", "aten::sym_storage_offset"):
        found = registry.functions[name]
        registry.functions[name] = [*found, *(replace(item, is_complex=True) for item in found)]
    return registry


def caching_torchlib() -> AbstractContextManager[None]:
    """Return a context manager: torch's exporter reads its translations from their sources once, not in every export.

    This saves most of the time of a small export.
    """
    _reading()  # cached before it is replaced

    def from_torchlib(cls: Any, /, **arguments: Any) -> Any:
        # A copy, because an export adds the user's translations to its registry.
        registry = copy.copy(_torchlib(**arguments))
        registry.functions = {name: list(found) for name, found in registry.functions.items()}
        return registry

    return _replaced(_registry_class(), "from_torchlib", classmethod(from_torchlib))


@functools.cache
def _reading() -> Any:
    """Return torch's own method that reads its translations; call this first before the method is replaced."""
    return vars(_registry_class())["from_torchlib"]


@guarded("torch.onnx._internal.exporter._registration.ONNXRegistry")
def _registry_class() -> Any:
    from torch.onnx._internal.exporter import _registration

    return _registration.ONNXRegistry


@contextmanager
def supporting_complex32() -> Iterator[None]:
    """Context manager: make torch's exporter support complex32 as pairs of float16, like other complex types."""
    known = _element_types()
    # ONNX has no such type. The exporter does not use it either: complex tensors get the type of their parts.
    known[torch.complex32] = onnx_ir.DataType.UNDEFINED
    try:
        yield
    finally:
        del known[torch.complex32]


def element_type(dtype: torch.dtype) -> onnx_ir.DataType:
    """Return the ONNX type that a translation of torch's exporter gets for a dtype."""
    return _element_types().get(dtype, onnx_ir.DataType.UNDEFINED)


@guarded("torch.onnx._internal.exporter._core._TORCH_DTYPE_TO_ONNX")
def _element_types() -> dict[torch.dtype, onnx_ir.DataType]:
    from torch.onnx._internal.exporter import _core

    return _core._TORCH_DTYPE_TO_ONNX


@contextmanager
def recorded_nodes(opset_version: int) -> Iterator[list[onnx_ir.Node]]:
    """Context manager: yield a list to which the nodes emitted in the block are added, as in torch's exporter."""
    recorder = _recorder(opset_version)
    with evaluator.default_as(recorder):
        yield recorder.nodes


def _opset_version() -> int:
    """Return the opset version of the model into which nodes are being emitted, or the default one."""
    opset: Opset | None = getattr(evaluator.default(), "opset", None)
    return default_opset() if opset is None else int(opset.version)


@guarded("torch.onnx._internal.exporter._building.OpRecorder")
def recording() -> tuple[list[onnx_ir.Node], int]:
    """Return the nodes emitted so far in the current export, and the model's opset version."""
    recorder: Any = evaluator.default()
    return recorder.nodes, recorder.opset.version


@guarded("torch.onnx._internal.exporter._building.OpRecorder")
def _recorder(opset_version: int) -> Any:
    from torch.onnx._internal.exporter import _building

    return _building.OpRecorder(Opset("", opset_version), {})  # type: ignore[abstract] # as torch makes it


def record_capture_strategy(program: torch.onnx.ONNXProgram, strategy: str | None) -> None:
    """Record in a program how ``torch.export`` captured its model, which ``torch.onnx.testing`` reads."""
    program._capture_strategy = strategy
