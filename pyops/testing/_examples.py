"""Inputs generated from a signature without hypothesis, for a check without arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._ops.op import AnyOp
from .._schema.attribute import Attribute, AttributeKind
from .._schema.dtypes import STRING, DType
from ..errors import InputError, OutputError, ShapeInferenceError
from . import _kernel_checks
from ._case import Case, quiet, spell_error
from ._sample import Sample

_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (3, 3), (4,), (2, 3, 4), (1, 2, 5, 5), ())
_WORDS = ("alpha", "", "Käse", "b c")


def example(op: AnyOp, attributes: Mapping[str, Any]) -> Sample:
    """Generate a sample: small arrays of a shape that the kernel accepts, and missing required attributes.

    Raises
    ------
    InputError
        The kernel rejects every shape that is tried.
    """
    made = {a.name: _attribute(a) for a in op.signature.attributes if a.required} | dict(attributes)
    if not op.signature.inputs:
        return Sample(op, **made)
    refusals: list[tuple[Sample, BaseException]] = []
    for sample in _samples(op, made):
        refusal = _refusal(sample)
        if refusal is None:
            sample.generated = True
            return sample
        refusals.append((sample, refusal))
    sample, refusal = refusals[0]
    raise InputError(
        f"{op.signature.qualified_name} takes none of the inputs that are made up from its signature, and raises "
        f"{spell_error(refusal)} for {sample!r}; pass inputs of your own: check({op.__name__}, x)"
    ) from refusal


def _refusal(sample: Sample) -> BaseException | None:
    """Return the exception with which the kernel rejects a sample; None for a fault that a check will report."""
    try:
        with quiet():
            sample.op(*sample.inputs, **sample.attributes)
    except (OutputError, ShapeInferenceError):
        return None
    except (Exception, SystemExit) as error:
        try:
            _kernel_checks.inputs_unchanged(Case(sample))
        except AssertionError:
            return None
        return error
    return None


def _samples(op: AnyOp, attributes: Mapping[str, Any]) -> Iterator[Sample]:
    for shape in _SHAPES:
        # Two arrays for a variadic input.
        inputs = [_array(_dtype(item.type.dtypes), shape) for item in op.signature.inputs]
        if op.signature.is_variadic:
            inputs.append(inputs[-1].copy())
        yield Sample(op, *inputs, **attributes)


def _dtype(dtypes: Sequence[DType]) -> DType:
    return np.dtype(np.float32) if np.dtype(np.float32) in dtypes else dtypes[0]


def _array(dtype: DType, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    if dtype == STRING:
        return np.array([_WORDS[index % len(_WORDS)] for index in range(count)], object).reshape(shape)
    numbers = np.arange(count) * 7 % 11
    if dtype.kind in "iub":
        return (numbers % 3 if dtype.kind == "b" else numbers).astype(dtype).reshape(shape)
    return ((numbers - 3) / 4).astype(dtype).reshape(shape)


def _attribute(attribute: Attribute) -> Any:
    if attribute.choices:
        return attribute.choices[0]
    values: dict[AttributeKind, Any] = {
        AttributeKind.INT: 1,
        AttributeKind.FLOAT: 0.5,
        AttributeKind.STRING: "alpha",
        AttributeKind.TENSOR: np.arange(3, dtype=np.float32),
    }
    value = values[attribute.kind.element]
    return [value] if attribute.is_list else value
