"""The private interfaces of torch's TorchScript exporter, beside those in `_torch_private`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree

from ._torch_private import OpOverload, guarded

__all__ = [
    "fake_outputs",
    "installed_symbolics",
    "is_graph_value",
    "list_type",
    "tensor_type",
    "torchscript_dtype",
    "torchscript_opsets",
]


def torchscript_opsets() -> range:
    """The opset versions that the TorchScript exporter knows."""

    def read() -> range:
        from torch.onnx import _constants

        return range(_constants.ONNX_MIN_OPSET, _constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET + 1)

    return guarded("torch.onnx._constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET", read)


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
    own, overrides = guarded(where, lambda: _symbolics(functions, opset_version))
    guarded(where, lambda: _register_symbolics(functions, opset_version))
    try:
        yield own
    finally:
        guarded(where, lambda: _unregister_symbolics(functions, opset_version))
        guarded(where, lambda: _register_symbolics(overrides, opset_version))


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

    return guarded("torch._subclasses.fake_tensor.FakeTensorMode", run)


def torchscript_dtype(code: int) -> torch.dtype:
    """The dtype behind the number that TorchScript has for it."""

    def read() -> torch.dtype:
        from torch.onnx import JitScalarType

        dtype: torch.dtype = JitScalarType(code).dtype()
        return dtype

    return guarded("torch.onnx.JitScalarType", read)


def is_graph_value(item: Any) -> bool:
    """Whether it is a value of a TorchScript graph."""
    return guarded("torch._C.Value", lambda: isinstance(item, torch._C.Value))


def tensor_type(dtype: torch.dtype, shape: Sequence[int | None]) -> Any:
    """The type of a tensor in a TorchScript graph, None for sizes that are not known."""
    return guarded("torch._C.TensorType", lambda: torch._C.TensorType.get().with_dtype(dtype).with_sizes(list(shape)))


def list_type() -> Any:
    """The type of a list of tensors in a TorchScript graph."""
    return guarded("torch._C.ListType", lambda: torch._C.ListType(torch._C.TensorType.get()))
