"""The private interfaces of torch that the exporters need, because torch has no public ones.

Nothing else in this package touches a private name of torch. Where a torch release renames one,
the error says so, and so does the test of this file.
"""

from __future__ import annotations

import copy
import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

import onnx_ir
import torch
from onnxscript import evaluator
from onnxscript.values import Opset

from pyops.errors import MissingDependencyError

from .errors import ExportError

_USE = "use torch 2.13, which this version of exporters was written for"

try:
    from torch._library.custom_ops import CustomOpDef
    from torch._ops import OpOverload
    from torch.fx import operator_schemas
    from torch.fx import traceback as fx_traceback
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
except ImportError as error:
    raise ImportError(f"torch {torch.__version__} lacks a private interface ({error}); {_USE}") from error

__all__ = [
    "Argument",
    "CustomOpDef",
    "DispatchMode",
    "OpOverload",
    "annotated",
    "called_overload",
    "can_decompose",
    "clone_tensors",
    "default_opset",
    "flatten",
    "forget_schema",
    "guarded",
    "is_mutable",
    "is_random",
    "named_leaves",
    "one_at_a_time",
    "op_database",
    "operator_names",
    "own_translation",
    "qualified_name",
    "recorded_nodes",
    "schema_arguments",
    "schema_returns",
    "spell",
    "torchlib_read_once",
    "torchvision_not_missed",
    "unflatten",
    "untranslated",
]

T = TypeVar("T")
P = ParamSpec("P")


_exporting = threading.RLock()


def one_at_a_time(function: Callable[P, T]) -> Callable[P, T]:
    """Let one thread at a time into such functions: torch's exporter keeps the state of an export in its modules."""

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with _exporting:
            return function(*args, **kwargs)

    return locked


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
    return guarded("OpOverload.name", lambda: str(overload.name()))


def called_overload(function: Any) -> OpOverload | None:
    """The overload that calling ``torch.ops.ns.name`` or one of its overloads calls, if that is known."""

    def find() -> OpOverload | None:
        found = function
        if isinstance(found, torch._ops.OpOverloadPacket) and len(found.overloads()) == 1:
            found = getattr(found, found.overloads()[0])
        return found if isinstance(found, OpOverload) else None

    return guarded("torch._ops.OpOverloadPacket", find)


def schema_arguments(overload: OpOverload) -> tuple[Argument, ...]:
    """The arguments in the schema of an operator, in order."""
    return guarded(
        "OpOverload._schema.arguments",
        lambda: tuple(
            Argument(item.name, str(item.real_type), item.kwarg_only, item.has_default_value(), item.default_value)
            for item in overload._schema.arguments
        ),
    )


def schema_returns(overload: OpOverload) -> tuple[str, ...]:
    """The types of what an operator returns: ``("Tensor", "Tensor")``."""
    return guarded("OpOverload._schema.returns", lambda: tuple(str(item.type) for item in overload._schema.returns))


def is_mutable(overload: OpOverload) -> bool:
    """Whether the operator writes to an argument, as in-place and ``out`` variants do."""
    return guarded("OpOverload._schema.is_mutable", lambda: bool(overload._schema.is_mutable))


def is_random(overload: OpOverload) -> bool:
    """Whether what the operator returns depends on the state of a random generator."""
    return guarded("torch.Tag", lambda: torch.Tag.nondeterministic_seeded in overload.tags)


def can_decompose(overload: OpOverload) -> bool:
    """Whether torch itself makes the operator of others, whatever the decompositions that it is given."""
    return guarded("OpOverload._can_decompose", lambda: bool(overload._can_decompose()))


@contextmanager
def annotated(entries: dict[str, Any]) -> Iterator[None]:
    """Nodes that torch.export makes inside the ``with`` block have these in ``meta["custom"]``."""

    def entered() -> ExitStack:
        with ExitStack() as stack:
            stack.enter_context(fx_traceback.preserve_node_meta())
            stack.enter_context(fx_traceback.annotate(entries))
            return stack.pop_all()

    with guarded("torch.fx.traceback.annotate", entered):
        yield


def spell(overload: OpOverload) -> str:
    """The schema as torch writes it: ``aten::gelu(Tensor self, *, str approximate="none") -> Tensor``."""
    return guarded("OpOverload._schema", lambda: str(overload._schema))


def forget_schema(name: str) -> None:
    """Drop what torch remembers of the schema of ``ns::name``, which it does not when that is replaced."""
    guarded(
        "torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE",
        lambda: operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((name, ""), None),
    )


def operator_names() -> set[str]:
    """``ns::name`` of every operator that torch has."""
    return guarded(
        "torch._C._dispatch_get_all_op_names",
        lambda: {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()},
    )


def flatten(tree: Any) -> list[Any]:
    """The leaves of nested tuples, lists, dicts and registered classes, in the order of torch.export."""
    return guarded("torch.utils._pytree.tree_leaves", lambda: _pytree.tree_leaves(tree))


def named_leaves(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The leaves with their places: ``("1", "mask")`` for ``tree[1]["mask"]``."""

    def leaves() -> list[tuple[tuple[str, ...], Any]]:
        found, _ = _pytree.tree_flatten_with_path(tree)
        return [(tuple(str(key).strip(".[]'") for key in path), leaf) for path, leaf in found]

    return guarded("torch.utils._pytree.tree_flatten_with_path", leaves)


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """The structure of `tree` with other leaves."""
    return guarded(
        "torch.utils._pytree.tree_unflatten",
        lambda: _pytree.tree_unflatten(list(leaves), _pytree.tree_structure(tree)),
    )


def clone_tensors(tree: Any) -> Any:
    """The same structure with every tensor cloned."""
    return guarded(
        "torch.utils._pytree.tree_map_only",
        lambda: _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), tree),
    )


def own_translation(overload: OpOverload) -> Callable[..., Any] | None:
    """The function by which torch's exporter translates an operator of real numbers, if it has one."""

    def find() -> Callable[..., Any] | None:
        found = _torchlib().get_decomps(overload)
        return next((item.onnx_function for item in found if not item.is_complex), None)

    return guarded("ONNXRegistry.get_decomps", find)


def untranslated(program: torch.export.ExportedProgram, kept: Iterable[OpOverload]) -> list[torch.fx.Node]:
    """The calls that torch's exporter cannot translate, after it made others of those that it breaks up.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        Is left as it is.
    kept : iterable of OpOverload
        Operators that have a translation elsewhere.
    """

    def find() -> list[torch.fx.Node]:
        from torch.onnx._internal.exporter import _core, _dispatching

        registry = copy.copy(_torchlib())
        registry.functions = {**{target: [SimpleNamespace(fx_target=target)] for target in kept}, **registry.functions}
        with warnings.catch_warnings():
            # Torch's own copying of its exported program raises this.
            warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
            prepared = _core._prepare_exported_program_for_export(program, registry=registry)
        modules = [item for item in prepared.graph_module.modules() if isinstance(item, torch.fx.GraphModule)]
        nodes = [node for module in modules for node in module.graph.nodes if node.op == "call_function"]
        operators = [node for node in nodes if isinstance(node.target, (OpOverload, torch._ops.HigherOrderOperator))]
        unknown = [node for node in operators if node.target not in kept]
        return [node for node in unknown if _dispatching.dispatch(node, registry)[0] is None]

    return guarded("torch.onnx._internal.exporter._core._prepare_exported_program_for_export", find)


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
def torchlib_read_once() -> Iterator[None]:
    """Torch's exporter reads its translations from their sources in every export, but once inside the ``with`` block.

    That is most of the time that a small export takes. Inside the block it knows the sizes of complex tensors too.
    """

    def patched() -> Any:
        from torch.onnx._internal.exporter import _registration

        class_: Any = _registration.ONNXRegistry
        read = class_.__dict__["from_torchlib"]

        @functools.cache
        def once(**arguments: Any) -> Any:
            registry = read.__get__(None, class_)(**arguments)
            # A complex tensor is one of pairs along a last dimension, and the sizes before that are its own.
            for name in ("aten::sym_size.int", "aten::sym_storage_offset"):
                found = registry.functions[name]
                registry.functions[name] = [*found, *(replace(item, is_complex=True) for item in found)]
            return registry

        def from_torchlib(cls: Any, /, **arguments: Any) -> Any:
            # An export adds the user's translations to its registry.
            registry = copy.copy(once(**arguments))
            registry.functions = {name: list(found) for name, found in registry.functions.items()}
            return registry

        class_.from_torchlib = classmethod(from_torchlib)
        return class_, read

    class_, read = guarded("ONNXRegistry.from_torchlib", patched)
    try:
        yield
    finally:
        class_.from_torchlib = read


def op_database() -> Sequence[Any]:
    """Torch's own database of sample calls, an OpInfo per operator.

    Raises
    ------
    MissingDependencyError
        expecttest is not installed, which torch's testing code imports.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f'torch\'s database of sample calls needs {error.name}; pip install "onnx-pyops[coverage]"'
        ) from error
    except ImportError as error:
        raise ExportError(
            f"torch {torch.__version__} does not have its database of sample calls any more ({error}); {_USE}"
        ) from error
    found: Sequence[Any] = op_db
    return found


@contextmanager
def recorded_nodes(opset_version: int) -> Iterator[list[onnx_ir.Node]]:
    """Record the nodes that are emitted inside the ``with`` block, the way torch's exporter does."""

    def recorder() -> Any:
        from torch.onnx._internal.exporter import _building

        return _building.OpRecorder(Opset("", opset_version), {})  # type: ignore[abstract] # as torch makes it

    made = guarded("torch.onnx._internal.exporter._building.OpRecorder", recorder)
    with evaluator.default_as(made):
        yield made.nodes


def default_opset() -> int:
    """The opset version that torch exports to unless told."""

    def read() -> int:
        from torch.onnx import _constants

        return int(_constants.ONNX_DEFAULT_OPSET)

    return guarded("torch.onnx._constants.ONNX_DEFAULT_OPSET", read)


def guarded(name: str, read: Callable[[], T]) -> T:
    """What reading a private interface gives; where it is gone, an error that names it."""
    try:
        return read()
    except (AttributeError, ImportError) as error:
        raise ExportError(
            f"torch {torch.__version__} does not have the private interface {name} any more; {_USE}"
        ) from error
