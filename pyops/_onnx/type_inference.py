"""Types and shapes of a model's values, by onnx's inference."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import onnx

from .._core import Key, Model, full_domain, key_of
from .._support.builtin_operators import ONNX_DOMAIN
from ..shapes import TensorSpec

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext

InferenceFunction: TypeAlias = "Callable[[InferenceContext], None]"

NEWEST = 2**31 - 1
"""The highest version that onnx and ONNX Runtime can represent."""
_LONGEST = 10**6
"""The length of vectors up to which onnx propagates what is in them: it makes a dimension of each element."""
_DOMAIN = "pyops.inferred"
_numbers = itertools.count()


def infer_types(proto: onnx.ModelProto, functions: Mapping[Key, InferenceFunction]) -> onnx.ModelProto:
    """Return a model with the types and shapes of the values in its graph and bodies, as far as they are known.

    It has the same nodes, but not the values of large initializers, and other names for the operators in `functions`.

    Parameters
    ----------
    functions : mapping
        What infers the outputs of operators that onnx does not define, by domain and name.

    Raises
    ------
    onnx.shape_inference.InferenceError
        One of these functions raised it.
    """
    graph = proto.graph
    small = [
        item
        for item in graph.initializer
        if math.prod(item.dims) <= TensorSpec.MAX_VALUES and item.data_location != onnx.TensorProto.EXTERNAL
    ]
    declared = [onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims) for item in graph.initializer]
    lean = onnx.helper.make_graph(
        graph.node, graph.name, graph.input, graph.output, small, value_info=[*graph.value_info, *declared]
    )
    model = onnx.helper.make_model(lean, functions=proto.functions, opset_imports=[])
    versions = {_DOMAIN: 1} | opset_versions(proto)
    # Every call registers schemas of its own, so that threads do not disturb one another.
    names = {key: f"operator_{next(_numbers)}" for key in functions}
    for node, opset in Model(b"", model).nodes():
        key = key_of(node)
        versions.setdefault(key[0], opset)
        if key in names:
            node.domain, node.op_type = _DOMAIN, names[key]
        elif key[0] == ONNX_DOMAIN:
            node.domain = ""
    model.opset_import.extend(opset_ids(versions))
    with contextlib.ExitStack() as registered:
        for key, name in names.items():
            schema = onnx.defs.OpSchema(name, _DOMAIN, 1)
            schema.set_type_and_shape_inference_function(functions[key])
            onnx.defs.register_schema(schema)
            registered.callback(onnx.defs.deregister_schema, name, 1, _DOMAIN)
        return onnx.shape_inference.infer_shapes(model, data_prop=_longest_vector(lean) <= _LONGEST)


def _longest_vector(graph: onnx.GraphProto) -> int:
    shapes = [item.type.tensor_type.shape.dim for item in (*graph.input, *graph.value_info)]
    return max((dims[0].dim_value for dims in shapes if len(dims) == 1), default=0)


def opset_versions(owner: onnx.ModelProto) -> dict[str, int]:
    """Return the version of each domain that a model imports."""
    return {full_domain(entry.domain): entry.version for entry in owner.opset_import}


def opset_ids(versions: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    """Return the entries of a model that import these versions of domains."""
    return [
        onnx.helper.make_opsetid("" if domain == ONNX_DOMAIN else domain, min(version, NEWEST))
        for domain, version in versions.items()
    ]
