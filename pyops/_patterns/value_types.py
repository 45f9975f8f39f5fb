"""Types of the values of a graph, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx

from .._support.element_types import DType, from_onnx

_IEEE = ("float16", "float32", "float64")
FLOATS = {"bfloat16", *_IEEE}


Dim = int | str | None
"""A size, the name of one, or None if it is not known."""


class ValueType(NamedTuple):
    """The dtype of a value, and its shape, or None if its rank is not known."""

    dtype: DType
    shape: tuple[Dim, ...] | None


Types = Mapping[str, ValueType]
"""The types of values by name; those that are not known are missing."""


def types_of(inferred: onnx.ModelProto) -> dict[str, ValueType]:
    """Return the types of the values in the graph of a model whose types are inferred."""
    found = {}
    for item in [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]:
        tensor = item.type.tensor_type
        row = from_onnx(tensor.elem_type)
        if row is not None:
            dims = tensor.shape.dim if tensor.HasField("shape") else None
            found[item.name] = ValueType(row.dtype, None if dims is None else tuple(map(_dim, dims)))
    return found


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Return whether two shapes with equally many elements are equal: one of the dimensions may be unknown."""
    differing = [(x, y) for x, y in zip(a, b, strict=False) if x != y or x is None]
    return len(a) == len(b) and (not differing or (len(differing) == 1 and not all(map(is_size, differing[0]))))


def is_size(dim: Dim) -> bool:
    """Return whether a dimension is a number."""
    return isinstance(dim, int)


def is_wider(a: DType, b: DType) -> bool:
    """Return whether a floating-point type has all numbers of another one and more."""
    return (
        a != b and np.result_type(a, b) == a
        if a.name in _IEEE and b.name in _IEEE
        else a.name in ("float32", "float64") and b.name == "bfloat16"
    )
