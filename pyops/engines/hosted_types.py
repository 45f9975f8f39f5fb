"""The element types with which ONNX Runtime's C API can host an op."""

from __future__ import annotations

import itertools

from ..signature import Signature, TypeParameter
from ..types import DType, dtype_name, element_type


def choices(signature: Signature) -> list[dict[TypeParameter, DType]]:
    """Every choice of the type parameters that an output has; none if ONNX Runtime lacks a type that it needs."""
    # A parameter that no output has needs no choice: ONNX Runtime lets any type in there, and
    # the kernel node checks it when it is made.
    types = dict.fromkeys(item.type for item in signature.outputs if item.homogeneous)
    deciding = [parameter for parameter in types if len(parameter.dtypes) > 1]
    supported = [[dtype for dtype in parameter.dtypes if ort_code(dtype)] for parameter in deciding]
    fixed = [p.dtypes[0] for p in signature.type_parameters if len(p.dtypes) == 1]
    if not all(map(ort_code, fixed)):
        return []
    return [dict(zip(deciding, choice, strict=True)) for choice in itertools.product(*supported)]


def unsupported_types(signature: Signature) -> list[str]:
    """Names of the declared element types that ONNX Runtime's custom operators lack."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if not ort_code(dtype)]


def ort_code(dtype: DType) -> int | None:
    """ONNX Runtime's number of an element type; None where its custom operators lack it."""
    row = element_type(dtype)
    return row.ort if row else None
