"""Private interfaces of torch's TorchScript exporter, and of the values of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .operators import OpOverload
from .patching import guarded, private, replaced
from .trees import flatten, replace_leaves

_EXPORTER = "torch.onnx._internal.torchscript_exporter"


@contextmanager
def symbolic_function(symbolic: Callable[[Any, list[Any]], Any]) -> Iterator[None]:
    """Context manager: let the TorchScript exporter, in this thread, try a symbolic function before its own ones.

    Parameters
    ----------
    symbolic : callable
        Gets the graph context and the inputs of each call, and returns NotImplemented to leave the call to torch.
    """
    utils, graph_context = private(f"{_EXPORTER}.utils"), private(f"{_EXPORTER}.jit_utils.GraphContext")
    own = private(f"{_EXPORTER}.utils._run_symbolic_function")

    def run(graph: Any, block: Any, node: Any, inputs: list[Any], *rest: Any) -> Any:
        version = utils.GLOBALS.export_onnx_opset_version
        context = graph_context(graph, block, version, node, utils._params_dict, *rest[:3])
        result = symbolic(context, inputs)
        return own(graph, block, node, inputs, *rest) if result is NotImplemented else result

    with replaced(f"{_EXPORTER}.utils._run_symbolic_function", run):
        yield


@guarded("torch._subclasses.fake_tensor.FakeTensorMode")
def fake_types(target: OpOverload, args: Any, kwargs: Any) -> list[torch.JitType]:
    """Return the types of an operator's outputs from its fake, without the sizes that are known only at run time.

    Graph values among the arguments must have dtypes and ranks. Their sizes that are not fixed share one symbol.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    symbols = ShapeEnv()
    types = [leaf.type() for leaf in flatten((args, kwargs)) if is_graph_value(leaf)]
    with FakeTensorMode(shape_env=symbols):
        unknown = symbols.create_unbacked_symint()
        shapes = [[unknown if size is None else size for size in item.varyingSizes()] for item in types]
        fakes = [torch.empty(shape, dtype=item.dtype()) for shape, item in zip(shapes, types, strict=True)]
        fake_args, fake_kwargs = replace_leaves((args, kwargs), fakes, is_graph_value)
        outputs = flatten(target(*fake_args, **fake_kwargs))
    known = [[size if isinstance(size, int) else None for size in item.shape] for item in outputs]
    any_tensor = torch.TensorType.get()
    return [any_tensor.with_dtype(item.dtype).with_sizes(sizes) for item, sizes in zip(outputs, known, strict=True)]


def is_graph_value(item: Any) -> bool:
    """Return whether an object is a value of a TorchScript graph."""
    return isinstance(item, torch.Value)
