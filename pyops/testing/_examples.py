"""Inputs generated from a signature without hypothesis, for a check without arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._ops.op import AnyOp
from .._schema.attribute import Attribute, AttributeKind
from .._schema.dtypes import DType
from ..errors import InputError
from ._case import Case, copies, quiet, spell_error
from ._sample import Sample
from ._variations import cast

_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (3, 3), (4,), (2, 3, 4), (1, 2, 5, 5), ())


def example(op: AnyOp, attributes: Mapping[str, Any]) -> Sample:
    """Generate a sample: small arrays of a shape that the kernel accepts, and missing required attributes.

    Raises
    ------
    InputError
        The kernel rejects every shape that is tried.
    """
    signature = op.signature
    values = {a.name: _attribute(a) for a in signature.attributes if a.required} | dict(attributes)
    if not signature.inputs:
        return Sample(op, **values)
    # Two arrays for a variadic input.
    inputs = [*signature.inputs, *signature.inputs[-1:] * signature.is_variadic]
    samples = [Sample(op, *(_array(item.type.dtypes, shape) for item in inputs), **values) for shape in _SHAPES]
    refusals = []
    for sample in samples:
        case = Case(sample)
        try:
            with quiet():
                # Not validated: what is wrong with the outputs, a check will report.
                case.function(*copies(case.arrays), **case.attributes)
        except (Exception, SystemExit) as error:
            refusals.append(error)
        else:
            sample.generated = True
            return sample
    raise InputError(
        f"{signature.qualified_name} takes none of the inputs that are generated from its signature, and raises "
        f"{spell_error(refusals[0])} for {samples[0]!r}; pass inputs of your own: check({op.__name__}, x)"
    ) from refusals[0]


def _array(dtypes: Sequence[DType], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(np.float32) if np.dtype(np.float32) in dtypes else dtypes[0]
    numbers = (np.arange(math.prod(shape)) * 7 % 11).reshape(shape)
    if dtype.kind in "iuO":
        return cast(numbers, dtype)
    return cast(numbers % 3 if dtype.kind == "b" else (numbers - 3) / 4, dtype)


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
