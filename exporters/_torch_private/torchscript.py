"""Private interfaces of torch's TorchScript exporter, and of the values of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .guard import guarded
from .operators import OpOverload
from .trees import flatten, replace_leaves, tensor_leaves


@guarded("torch.onnx._constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET")
def torchscript_opsets() -> range:
    """Return the opset versions that the TorchScript exporter supports."""
    from torch.onnx import _constants

    return range(_constants.ONNX_MIN_OPSET, _constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET + 1)


Symbolics = Mapping[str, Callable[..., Any]]

_guarded = guarded("torchscript_exporter.registration.registry")


@contextmanager
def installed_symbolics(functions: Symbolics, opset_version: int) -> Iterator[Symbolics]:
    """Context manager: register symbolic functions, by ``"ns::name"``, with the TorchScript exporter.

    Yields
    ------
    mapping
        The functions that the exporter would use otherwise.
    """
    own, overrides = _symbolics(functions, opset_version)
    _register_symbolics(functions, opset_version)
    try:
        yield own
    finally:
        _unregister_symbolics(functions, opset_version)
        _register_symbolics(overrides, opset_version)


@_guarded
def _symbolics(names: Iterable[str], opset_version: int) -> tuple[Symbolics, Symbolics]:
    """Return the functions registered under the names, and those of them that users registered for this version."""
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


@_guarded
def _register_symbolics(functions: Symbolics, opset_version: int) -> None:
    for name, function in functions.items():
        _symbolic_registry().register(name, opset_version, function, custom=True)


@_guarded
def _unregister_symbolics(names: Iterable[str], opset_version: int) -> None:
    registry = _symbolic_registry()
    for name in names:
        registry.unregister(name, opset_version)
        if not registry.get_function_group(name)._functions:
            # torch looks up the oldest version of a known name, and fails if there is none.
            del registry._registry[name]


def _symbolic_registry() -> Any:
    from torch.onnx._internal.torchscript_exporter import registration

    return registration.registry


@guarded("torch._subclasses.fake_tensor.FakeTensorMode")
def fake_outputs(target: OpOverload, args: Any, kwargs: Any) -> list[tuple[torch.dtype, tuple[int | None, ...]]]:
    """Return dtype and shape of each output of an operator, by its fake, with None for sizes known only at run time.

    Tensors among the arguments must be on the meta device.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in tensor_leaves((args, kwargs))]
        fake_args, fake_kwargs = replace_leaves((args, kwargs), fakes)
        outputs = flatten(target(*fake_args, **fake_kwargs))
    sizes = [tuple(size if isinstance(size, int) else None for size in item.shape) for item in outputs]
    return [(item.dtype, shape) for item, shape in zip(outputs, sizes, strict=True)]


@guarded("torch.onnx.JitScalarType")
def torchscript_dtype(code: int) -> torch.dtype:
    """Return the dtype of a TorchScript dtype number."""
    from torch.onnx import JitScalarType

    dtype: torch.dtype = JitScalarType(code).dtype()
    return dtype


@guarded("torch._C.Value")
def is_graph_value(item: Any) -> bool:
    """Return whether an object is a value of a TorchScript graph."""
    return isinstance(item, torch._C.Value)


@guarded("torch._C.TensorType")
def tensor_type(dtype: torch.dtype, shape: Sequence[int | None]) -> Any:
    """Return the type of a tensor in a TorchScript graph, with None for unknown sizes."""
    return torch._C.TensorType.get().with_dtype(dtype).with_sizes(list(shape))


@guarded("torch._C.ListType")
def list_type() -> Any:
    """Return the type of a list of tensors in a TorchScript graph."""
    return torch._C.ListType(torch._C.TensorType.get())
