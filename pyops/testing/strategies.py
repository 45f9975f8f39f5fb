"""Hypothesis strategies derived from an op's signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._core import AnyOp, Attribute, AttributeKind, Input
from .._support.element_types import STRING, DType
from ..errors import InputError, MissingDependencyError
from ._case import NO_HYPOTHESIS
from ._sample import Sample

try:
    import hypothesis.extra.numpy as st_numpy
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingDependencyError(NO_HYPOTHESIS) from error

Shape = tuple[int, ...]

SHAPES: st.SearchStrategy[Shape] = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
"""Shapes of 0 to 3 dimensions, each of size 0 to 3."""

# ONNX strings are UTF-8, which has no surrogates, and ONNX Runtime truncates strings at NUL.
TEXT: st.SearchStrategy[str] = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)

_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
_INTS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def samples(
    draw: st.DrawFn,
    op: AnyOp,
    *,
    shapes: Any = None,
    elements: st.SearchStrategy[Any] | Mapping[str, st.SearchStrategy[Any]] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Sample:
    """Draw a call of an op.

    The calls cover every type that the op accepts, absent optional inputs, up to three variadic inputs, and given
    and default attributes. The shapes of the inputs are equal, broadcast to each other, or are independent.

    Parameters
    ----------
    shapes : tuple of int, or mapping, optional
        The shape of all inputs, or shapes by the names of inputs; inputs that it does not name keep the shapes above.
        It may be a strategy, and so may the shapes in a mapping.
    elements : strategy, or mapping of strategies, optional
        The elements of all inputs, or elements by the names of inputs. They are converted to the input's type.
    attributes : mapping, optional
        Values by name, or strategies for them. These attributes are then always given.

    Raises
    ------
    InputError
        `shapes`, `elements` or `attributes` has a name that the op does not have.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from hypothesis import given, strategies as st
    >>> from pyops.kernels.reductions import cumprod
    >>> from pyops.testing import strategies
    >>> small = strategies.samples(cumprod, shapes=(2, 3), elements=st.integers(0, 5), attributes={"dim": 1})
    >>> @given(small)  # pytest calls the test
    ... def test_it_gives_no_negative_numbers(sample):
    ...     assert (sample.expected()[0] >= 0).all()
    """
    signature = op.signature
    shapes, attributes = _drawn(draw, shapes), attributes or {}
    for what, given in (("shapes", shapes), ("elements", elements)):
        unknown = set(given if isinstance(given, Mapping) else ()) - {item.name for item in signature.inputs}
        if unknown:
            raise InputError(f"{what} names {unknown.pop()!r}, which is not an input of {signature}")
    singles = [item for item in signature.inputs if not item.variadic]
    present = [item if not item.optional or draw(st.booleans()) else None for item in singles]
    if signature.is_variadic:
        present += [signature.inputs[-1]] * draw(st.integers(0, 3))
    chosen: dict[str, DType] = {}
    inputs: list[Any] = []
    for item, shape in zip(present, _draw_shapes(draw, len(present)), strict=True):
        if item is None:
            inputs.append(None)
            continue
        wanted = _drawn(draw, shapes.get(item.name)) if isinstance(shapes, Mapping) else shapes
        values = elements.get(item.name) if isinstance(elements, Mapping) else elements
        inputs.append(draw(arrays(_draw_dtype(draw, item, chosen), shape if wanted is None else wanted, values)))
    made = {
        attribute.name: draw(attribute_values(attribute))
        for attribute in signature.attributes
        if attribute.name not in attributes and (attribute.required or draw(st.booleans()))
    }
    return Sample(op, *inputs, **made, **{name: _drawn(draw, value) for name, value in attributes.items()})


@st.composite
def arrays(
    draw: st.DrawFn,
    dtype: Any,
    shapes: st.SearchStrategy[Shape] | Shape = SHAPES,
    elements: st.SearchStrategy[Any] | None = None,
) -> Any:
    """Draw an array of any ONNX element type, contiguous or not; string arrays have dtype object.

    Parameters
    ----------
    dtype : numpy.dtype or what ``numpy.dtype()`` accepts
        The element type.
    shapes : strategy or tuple, optional
        By default `SHAPES`.
    elements : strategy, optional
        What the elements are converted from; by default all values of the type, and small integers for types that NumPy
        does not have.
    """
    dtype = np.dtype(dtype)
    shape = _drawn(draw, shapes)
    turned = draw(st.booleans())
    made = shape[::-1] if turned else shape
    if dtype == STRING:
        elements = TEXT if elements is None else elements.map(str)
    if elements is None and dtype.type.__module__ == "ml_dtypes":
        elements = st.integers(0 if dtype.name.startswith("uint") else -8, 7)
    if elements is None:
        array = draw(st_numpy.arrays(dtype, made))
    else:
        array = draw(st_numpy.arrays(object, made, elements=elements)).astype(dtype)
    return array.T if turned else array


def run(op: AnyOp, strategy: st.SearchStrategy[Sample], count: int, test: Callable[[Sample], None]) -> None:
    """Run a test on samples of an op that a strategy gives, the same ones each time."""

    def validate(sample: Sample) -> None:
        if not isinstance(sample, Sample) or sample.op is not op:
            raise InputError(f"the strategy gives {sample!r}; expected samples of {op.signature.qualified_name}")
        test(sample)

    settings(
        max_examples=count,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(validate))()


def examples(op: AnyOp) -> list[Sample]:
    """Return samples of the strategy that is registered for an op, those with the most different values first."""
    found: list[Sample] = []
    run(op, registered(op), 20, lambda sample: found.append(sample))
    return sorted(found, key=lambda sample: -sum(len({*array.flat}) for array in sample.feed.values()))


def registered(op: AnyOp) -> st.SearchStrategy[Sample]:
    """Return the strategy that is registered for an op, or else the one from its signature."""
    return samples(op) if op.samples is None else op.samples()


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


def _drawn(draw: st.DrawFn, value: Any) -> Any:
    return draw(value) if isinstance(value, st.SearchStrategy) else value


def _draw_shapes(draw: st.DrawFn, count: int) -> Sequence[Shape]:
    how = draw(st.sampled_from(["equal", "broadcast", "independent"]))
    if how == "independent" or not count:
        return [draw(SHAPES) for _ in range(count)]
    if how == "equal":
        return [draw(SHAPES)] * count
    shapes = st_numpy.mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=3, max_dims=3)
    return draw(shapes).input_shapes


def _draw_dtype(draw: st.DrawFn, item: Input, chosen: dict[str, DType]) -> DType:
    if item.homogeneous and item.type.name in chosen:
        return chosen[item.type.name]
    dtype = draw(st.sampled_from(item.type.dtypes))
    return chosen.setdefault(item.type.name, dtype) if item.homogeneous else dtype
