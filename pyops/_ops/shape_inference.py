"""Calls of shape functions, with validation of the specs that they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._schema import validation
from .._schema.dtypes import describe, dtype_name, spell_scalar
from .._schema.signature import Signature
from .._schema.specs import TensorSpec
from ..errors import ShapeInferenceError


def infer(
    signature: Signature,
    function: Callable[..., Any],
    specs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any],
) -> tuple[TensorSpec, ...]:
    """Run a shape function and return the specs of the outputs.

    Parameters
    ----------
    function : callable
        The op's shape function.
    specs : sequence of TensorSpec or None
        One per input, None if absent.

    Returns
    -------
    tuple of TensorSpec
        One per output.

    Raises
    ------
    InputError
        The specs or the attributes do not match the declaration.
    ShapeInferenceError
        The function returned something other than declared.
    """
    name = signature.qualified_name
    dtypes = validation.output_dtypes(signature, [None if spec is None else spec.dtype for spec in specs])
    result = function(*specs, **signature.convert_attributes(attributes))
    if signature.returns_tuple and not isinstance(result, (tuple, TensorSpec)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {describe(result)}; return a tuple of specs, one for each output"
        )
    outputs = result if isinstance(result, tuple) else (result,)
    if not signature.has_outputs(len(outputs)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {len(outputs)} specs; {len(dtypes)} outputs are declared"
        )
    dtypes += (dtypes[-1],) * (len(outputs) - len(dtypes))
    for spec, dtype in zip(outputs, dtypes, strict=False):
        if not isinstance(spec, TensorSpec):
            raise ShapeInferenceError(
                f"the shape function of {name} returned {describe(spec)}; return an input's spec, or "
                "spec.like(shape=..., dtype=...)"
            )
        if dtype is not None and spec.dtype != dtype:
            raise ShapeInferenceError(
                f"the shape function of {name} gives dtype {dtype_name(spec.dtype)}, the declaration "
                f"{dtype_name(dtype)}; return spec.like(dtype={spell_scalar(dtype)})"
            )
    return outputs
