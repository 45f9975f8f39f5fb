"""Private interfaces of torch's TorchScript exporter, and of the values of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .guard import guarded
from .operators import OpOverload
from .trees import flatten, replace_leaves


@guarded("torch.onnx._constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET")
def torchscript_opsets() -> range:
    """Return the opset versions that the TorchScript exporter supports."""
    from torch.onnx import _constants

    return range(_constants.ONNX_MIN_OPSET, _constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET + 1)


@contextmanager
def installed_symbolics(
    functions: Mapping[str, Callable[..., Any]], opset_version: int
) -> Iterator[Mapping[str, Callable[..., Any]]]:
    """Context manager: register symbolic functions, by ``"ns::name"``, with the TorchScript exporter.

    Yields
    ------
    mapping
        The functions that the exporter would use otherwise.
    """
    registry, make_group = _symbolics()
    before = registry._registry
    own = {name: before[name].get(opset_version) for name in functions if name in before}
    groups = {name: make_group(name) for name in functions}
    for name, group in groups.items():
        group.add_custom(functions[name], opset_version)
    registry._registry = {**before, **groups}
    try:
        yield {name: function for name, function in own.items() if function is not None}
    finally:
        registry._registry = before


@guarded("torch.onnx._internal.torchscript_exporter.registration.registry")
def _symbolics() -> tuple[Any, Callable[[str], Any]]:
    """Return torch's registry of symbolic functions, and the class of its entries, which hold all versions of one."""
    from torch.onnx._internal.torchscript_exporter import registration, utils

    utils._trigger_symbolic_function_registration()
    return registration.registry, registration._SymbolicFunctionGroup


@guarded("torch._subclasses.fake_tensor.FakeTensorMode")
def fake_outputs(target: OpOverload, args: Any, kwargs: Any) -> list[tuple[torch.dtype, tuple[int | None, ...]]]:
    """Return the dtype and shape of each output of an operator, from its fake; sizes known only at run time are None.

    Graph values among the arguments must have dtypes and ranks. Their sizes that are not fixed share one symbol.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    sizes = ShapeEnv()
    types = [leaf.type() for leaf in flatten((args, kwargs)) if is_graph_value(leaf)]
    with FakeTensorMode(shape_env=sizes):
        unknown = sizes.create_unbacked_symint()
        shapes = [[unknown if size is None else size for size in item.varyingSizes()] for item in types]
        fakes = [torch.empty(shape, dtype=item.dtype()) for shape, item in zip(shapes, types, strict=True)]
        fake_args, fake_kwargs = replace_leaves((args, kwargs), fakes, is_graph_value)
        outputs = flatten(target(*fake_args, **fake_kwargs))
    found = [tuple(size if isinstance(size, int) else None for size in item.shape) for item in outputs]
    return [(item.dtype, shape) for item, shape in zip(outputs, found, strict=True)]


def is_graph_value(item: Any) -> bool:
    """Return whether an object is a value of a TorchScript graph."""
    return isinstance(item, torch.Value)
