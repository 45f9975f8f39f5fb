"""Running a shape function, and checking what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._support.element_types import describe, dtype_name, format_scalar
from ...errors import ShapeInferenceError
from .call_validation import output_dtypes
from .signature import Signature
from .tensor_specs import TensorSpec


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
    dtypes = output_dtypes(signature, [None if spec is None else spec.dtype for spec in specs])
    attributes = signature.convert_attributes(attributes)
    try:
        result = function(*specs, **attributes)
    except Exception as error:
        error.add_note(f"in the shape function of {name}")
        raise
    if signature.returns_tuple and not isinstance(result, (tuple, TensorSpec)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {describe(result)}; return a tuple of specs, one for each output"
        )
    if isinstance(result, tuple) and not signature.returns_tuple and not any(isinstance(x, TensorSpec) for x in result):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {result}, which is a shape; return a spec of that shape, such as "
            f"{signature.inputs[0].name if signature.inputs else 'spec'}.like(shape=...)"
        )
    outputs = result if isinstance(result, tuple) else (result,)
    if not signature.has_outputs(len(outputs)):
        raise ShapeInferenceError(
            f"the shape function of {name} returned {len(outputs)} specs; {len(dtypes)} outputs are "
            "declared (return one spec for each)"
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
                f"the shape function of {name} gives dtype {dtype_name(spec.dtype)}, but declared is "
                f"{dtype_name(dtype)}; return spec.like(dtype={format_scalar(dtype)})"
            )
    return outputs
