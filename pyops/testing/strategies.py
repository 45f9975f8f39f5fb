"""Hypothesis strategies derived from an op's signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._ops.op import AnyOp
from .._schema.attribute import Attribute, AttributeKind
from .._schema.dtypes import STRING, DType
from .._schema.signature import Input, TypeParameter
from ..errors import MissingDependencyError
from ._case import NO_HYPOTHESIS
from ._sample import Sample

try:
    import hypothesis.extra.numpy as st_numpy
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependencyError(NO_HYPOTHESIS) from error

SHAPES: st.SearchStrategy[tuple[int, ...]] = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
"""Shapes of 0 to 3 dimensions, each of size 0 to 3."""

# ONNX strings are UTF-8, which has no surrogates, and ONNX Runtime truncates strings at NUL.
TEXT: st.SearchStrategy[str] = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)

_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
_INTS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def samples(draw: st.DrawFn, op: AnyOp) -> Sample:
    """Draw a call of an op.

    The calls cover every type that the op accepts, absent optional inputs, up to three variadic inputs, and given
    and default attributes. The shapes of the inputs are equal, broadcast to each other, or are independent.

    Examples
    --------
    >>> import pyops
    >>> from hypothesis import given
    >>> from pyops.testing import strategies
    >>> @given(strategies.samples(op))  # doctest: +SKIP
    ... def test_it_gives_no_negative_numbers(sample):
    ...     assert (sample.expected()[0] >= 0).all()
    """
    signature = op.signature
    singles = [item for item in signature.inputs if not item.variadic]
    present = [item if not item.optional or draw(st.booleans()) else None for item in singles]
    if signature.is_variadic:
        present += [signature.inputs[-1]] * draw(st.integers(0, 3))
    chosen: dict[str, DType] = {}
    inputs = []
    for item, shape in zip(present, _draw_shapes(draw, len(present)), strict=True):
        inputs.append(None if item is None else draw(arrays(_draw_dtype(draw, item, chosen), shape)))
    attributes = {
        attribute.name: draw(attribute_values(attribute))
        for attribute in signature.attributes
        if attribute.required or draw(st.booleans())
    }
    return Sample(op, *inputs, **attributes)


@st.composite
def arrays(draw: st.DrawFn, dtype: Any, shapes: st.SearchStrategy[tuple[int, ...]] | tuple[int, ...] = SHAPES) -> Any:
    """Draw an array of any ONNX element type, contiguous or not; string arrays have dtype object.

    Parameters
    ----------
    dtype : numpy.dtype or what ``numpy.dtype()`` accepts
    shapes : strategy or tuple, optional
        By default `SHAPES`.
    """
    dtype = np.dtype(dtype)
    shape = shapes if isinstance(shapes, tuple) else draw(shapes)
    if dtype == STRING:
        return draw(st_numpy.arrays(object, shape, elements=TEXT, fill=st.just("")))
    turned = draw(st.booleans())
    made = shape[::-1] if turned else shape
    if dtype.type.__module__ == "ml_dtypes":
        lowest = 0 if dtype.name.startswith("uint") else -8
        array = draw(st_numpy.arrays(np.int8, made, elements=st.integers(lowest, 7))).astype(dtype)
    else:
        array = draw(st_numpy.arrays(dtype, made))
    return array.T if turned else array


def attribute_values(attribute: Attribute) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of an attribute; lists have up to three elements, tensors are float64."""
    if attribute.choices:
        return st.sampled_from(attribute.choices)
    if attribute.boolean:
        return st.booleans()
    kinds: dict[AttributeKind, st.SearchStrategy[Any]] = {
        AttributeKind.INT: _INTS,
        AttributeKind.FLOAT: _FLOATS,
        AttributeKind.STRING: TEXT,
        AttributeKind.TENSOR: st_numpy.arrays(np.float64, SHAPES, elements=st.floats(-9, 9)),
    }
    element = kinds[attribute.kind.element]
    if not attribute.is_list:
        return element
    lists = st.lists(element, max_size=3)
    return lists.map(tuple) if attribute.as_tuple else lists


def _draw_shapes(draw: st.DrawFn, count: int) -> Sequence[tuple[int, ...]]:
    how = draw(st.sampled_from(["equal", "broadcast", "independent"]))
    if how == "independent" or not count:
        return [draw(SHAPES) for _ in range(count)]
    if how == "equal":
        return [draw(SHAPES)] * count
    shapes = st_numpy.mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=3, max_dims=3)
    return draw(shapes).input_shapes


def _draw_dtype(draw: st.DrawFn, item: Input, chosen: dict[str, DType]) -> DType:
    def draw_from(parameter: TypeParameter) -> DType:
        return draw(st.sampled_from(parameter.dtypes))

    if not item.homogeneous:
        return draw_from(item.type)
    if item.type.name not in chosen:
        chosen[item.type.name] = draw_from(item.type)
    return chosen[item.type.name]
