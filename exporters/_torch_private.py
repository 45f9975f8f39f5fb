"""The private interfaces of torch that the exporters need, because torch has no public ones.

Nothing else in this package touches a private name of torch. Where a torch release renames one,
the error says so, and so does the test of this file.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import onnx_ir
import torch
from onnxscript import evaluator
from onnxscript.values import Opset

from .errors import ExportError

_USE = "use torch 2.13, which this version of exporters was written for"

try:
    from torch._library.custom_ops import CustomOpDef
    from torch._ops import OpOverload
    from torch.fx import operator_schemas
    from torch.utils import _pytree
except ImportError as error:
    raise ImportError(f"torch {torch.__version__} lacks a private interface ({error}); {_USE}") from error

__all__ = [
    "Argument",
    "CustomOpDef",
    "OpOverload",
    "called_overload",
    "clone_tensors",
    "default_opset",
    "fake_outputs",
    "flatten",
    "forget_schema",
    "installed_symbolics",
    "is_graph_value",
    "is_mutable",
    "list_type",
    "named_leaves",
    "operator_names",
    "own_translation",
    "qualified_name",
    "recorded_nodes",
    "schema_arguments",
    "schema_returns",
    "spell",
    "tensor_type",
    "torchscript_dtype",
    "torchscript_opsets",
    "torchvision_not_missed",
    "unflatten",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Argument:
    """An argument of a torch operator: its schema type (``List[Tensor]``), and its default if it has one."""

    name: str
    type: str
    keyword_only: bool
    has_default: bool
    default: Any

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, an optional tensor, or a list of tensors."""
        return "Tensor" in self.type

    @property
    def is_dtype(self) -> bool:
        """Whether it is a ``torch.dtype``."""
        return "ScalarType" in self.type

    @property
    def is_tensor_list(self) -> bool:
        """Whether it is a list of tensors."""
        return self.is_tensor and "List" in self.type


def qualified_name(overload: OpOverload) -> str:
    """``ns::name.overload``, or ``ns::name`` of the default overload."""
    return _guarded("OpOverload.name", lambda: str(overload.name()))


def called_overload(function: Any) -> OpOverload | None:
    """The overload that calling ``torch.ops.ns.name`` or one of its overloads calls, if that is known."""

    def find() -> OpOverload | None:
        found = function
        if isinstance(found, torch._ops.OpOverloadPacket) and len(found.overloads()) == 1:
            found = getattr(found, found.overloads()[0])
        return found if isinstance(found, OpOverload) else None

    return _guarded("torch._ops.OpOverloadPacket", find)


def schema_arguments(overload: OpOverload) -> tuple[Argument, ...]:
    """The arguments in the schema of an operator, in order."""
    return _guarded(
        "OpOverload._schema.arguments",
        lambda: tuple(
            Argument(item.name, str(item.real_type), item.kwarg_only, item.has_default_value(), item.default_value)
            for item in overload._schema.arguments
        ),
    )


def schema_returns(overload: OpOverload) -> tuple[str, ...]:
    """The types of what an operator returns: ``("Tensor", "Tensor")``."""
    return _guarded("OpOverload._schema.returns", lambda: tuple(str(item.type) for item in overload._schema.returns))


def is_mutable(overload: OpOverload) -> bool:
    """Whether the operator writes to an argument, as in-place and ``out`` variants do."""
    return _guarded("OpOverload._schema.is_mutable", lambda: bool(overload._schema.is_mutable))


def spell(overload: OpOverload) -> str:
    """The schema as torch writes it: ``aten::gelu(Tensor self, *, str approximate="none") -> Tensor``."""
    return _guarded("OpOverload._schema", lambda: str(overload._schema))


def forget_schema(name: str) -> None:
    """Drop what torch remembers of the schema of ``ns::name``, which it does not when that is replaced."""
    _guarded(
        "torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE",
        lambda: operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((name, ""), None),
    )


def operator_names() -> set[str]:
    """``ns::name`` of every operator that torch has."""
    return _guarded(
        "torch._C._dispatch_get_all_op_names",
        lambda: {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()},
    )


def flatten(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists, dicts and registered classes, in the order of torch.export."""
    return _guarded("torch.utils._pytree.tree_leaves", lambda: _pytree.tree_leaves(tree))


def named_leaves(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The leaves with their places: ``("1", "mask")`` for ``tree[1]["mask"]``."""

    def leaves() -> list[tuple[tuple[str, ...], Any]]:
        found, _ = _pytree.tree_flatten_with_path(tree)
        return [(tuple(str(key).strip(".[]'") for key in path), leaf) for path, leaf in found]

    return _guarded("torch.utils._pytree.tree_flatten_with_path", leaves)


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """The structure of `tree` with other leaves."""
    return _guarded(
        "torch.utils._pytree.tree_unflatten",
        lambda: _pytree.tree_unflatten(list(leaves), _pytree.tree_structure(tree)),
    )


def clone_tensors(tree: Any) -> Any:
    """The same structure with every tensor cloned."""
    return _guarded(
        "torch.utils._pytree.tree_map_only",
        lambda: _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree),
    )


def own_translation(overload: OpOverload) -> Callable[..., Any] | None:
    """The function by which torch's exporter translates an operator of real numbers, if it has one."""

    def find() -> Callable[..., Any] | None:
        found = _torchlib().get_decomps(overload)
        return next((item.onnx_function for item in found if not item.is_complex), None)

    return _guarded("ONNXRegistry.get_decomps", find)


@functools.cache
def _torchlib() -> Any:
    from torch.onnx._internal.exporter import _registration

    with torchvision_not_missed():
        return _registration.ONNXRegistry.from_torchlib()


@contextmanager
def torchvision_not_missed() -> Iterator[None]:
    """Keep torch's exporter from logging, operator by operator, that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")

    def is_news(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("torchvision is not installed")

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


@contextmanager
def recorded_nodes(opset_version: int) -> Iterator[list[onnx_ir.Node]]:
    """Record the nodes that are emitted inside the ``with`` block, the way torch's exporter does."""

    def recorder() -> Any:
        from torch.onnx._internal.exporter import _building

        return _building.OpRecorder(Opset("", opset_version), {})  # type: ignore[abstract] # as torch makes it

    made = _guarded("torch.onnx._internal.exporter._building.OpRecorder", recorder)
    with evaluator.default_as(made):
        yield made.nodes


def default_opset() -> int:
    """The opset version that torch exports to unless told."""

    def read() -> int:
        from torch.onnx import _constants

        return int(_constants.ONNX_DEFAULT_OPSET)

    return _guarded("torch.onnx._constants.ONNX_DEFAULT_OPSET", read)


def torchscript_opsets() -> range:
    """The opset versions that the TorchScript exporter knows."""

    def read() -> range:
        from torch.onnx import _constants

        return range(_constants.ONNX_MIN_OPSET, _constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET + 1)

    return _guarded("torch.onnx._constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET", read)


Symbolics = Mapping[str, Callable[..., Any]]


@contextmanager
def installed_symbolics(functions: Symbolics, opset_version: int) -> Iterator[Symbolics]:
    """Symbolic functions of the TorchScript exporter, by ``ns::name``, inside the ``with`` block.

    Yields
    ------
    mapping
        What the exporter would use without them.
    """
    where = "torchscript_exporter.registration.registry"
    own, overrides = _guarded(where, lambda: _symbolics(functions, opset_version))
    _guarded(where, lambda: _register_symbolics(functions, opset_version))
    try:
        yield own
    finally:
        _guarded(where, lambda: _unregister_symbolics(functions, opset_version))
        _guarded(where, lambda: _register_symbolics(overrides, opset_version))


def _symbolics(names: Iterable[str], opset_version: int) -> tuple[Symbolics, Symbolics]:
    """What is registered under the names, and which of it other people registered for this very version."""
    from torch.onnx._internal.torchscript_exporter import utils

    utils._trigger_symbolic_function_registration()
    own, overrides = {}, {}
    for name in names:
        group = _symbolic_registry().get_function_group(name)
        function = group.get(opset_version) if group is not None else None
        if function is not None:
            own[name] = function
            if group._functions.overridden(opset_version):
                overrides[name] = function
    return own, overrides


def _register_symbolics(functions: Symbolics, opset_version: int) -> None:
    for name, function in functions.items():
        _symbolic_registry().register(name, opset_version, function, custom=True)


def _unregister_symbolics(names: Iterable[str], opset_version: int) -> None:
    registry = _symbolic_registry()
    for name in names:
        registry.unregister(name, opset_version)
        if not registry.get_function_group(name)._functions:
            # Torch looks for the oldest version of a name that it knows, and fails where there is none.
            del registry._registry[name]


def _symbolic_registry() -> Any:
    from torch.onnx._internal.torchscript_exporter import registration

    return registration.registry


def fake_outputs(target: OpOverload, args: Any, kwargs: Any) -> list[tuple[torch.dtype, tuple[int | None, ...]]]:
    """The dtypes and shapes of what an operator returns, by its fake; None for sizes that only a run tells.

    Tensors among the arguments are on the meta device.
    """

    def run() -> list[tuple[torch.dtype, tuple[int | None, ...]]]:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            fakes = _pytree.tree_map_only(
                torch.Tensor, lambda tensor: mode.from_tensor(tensor, static_shapes=True), (args, kwargs)
            )
            outputs = _pytree.tree_leaves(target(*fakes[0], **fakes[1]))
        sizes = [tuple(size if isinstance(size, int) else None for size in item.shape) for item in outputs]
        return [(item.dtype, shape) for item, shape in zip(outputs, sizes, strict=True)]

    return _guarded("torch._subclasses.fake_tensor.FakeTensorMode", run)


def torchscript_dtype(code: int) -> torch.dtype:
    """The dtype behind the number that TorchScript has for it."""

    def read() -> torch.dtype:
        from torch.onnx import JitScalarType

        dtype: torch.dtype = JitScalarType(code).dtype()
        return dtype

    return _guarded("torch.onnx.JitScalarType", read)


def is_graph_value(item: Any) -> bool:
    """Whether it is a value of a TorchScript graph."""
    return _guarded("torch._C.Value", lambda: isinstance(item, torch._C.Value))


def tensor_type(dtype: torch.dtype, shape: Sequence[int | None]) -> Any:
    """The type of a tensor in a TorchScript graph, None for sizes that are not known."""
    return _guarded("torch._C.TensorType", lambda: torch._C.TensorType.get().with_dtype(dtype).with_sizes(list(shape)))


def list_type() -> Any:
    """The type of a list of tensors in a TorchScript graph."""
    return _guarded("torch._C.ListType", lambda: torch._C.ListType(torch._C.TensorType.get()))


def _guarded(name: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (AttributeError, ImportError) as error:
        raise ExportError(
            f"torch {torch.__version__} does not have the private interface {name} any more; {_USE}"
        ) from error
