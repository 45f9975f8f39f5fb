"""The element types that each engine supports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..._schema.dtypes import STRING, DType, dtype_name, element_type
from ..._schema.signature import Signature, TypeParameter


def ort_code(dtype: DType) -> int | None:
    """Return ONNX Runtime's code for an element type; None if its custom operators do not support it."""
    row = element_type(dtype)
    return row.ort if row else None


_NUMBERS = (np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
# The types that onnxruntime-extensions can pass to Python and back; any other ends the process.
_EXTENSIONS: tuple[DType, ...] = (*map(np.dtype, (*_NUMBERS, *_UNSIGNED)), STRING)

_SUPPORTED: Mapping[str, Callable[[DType], object]] = {"native": ort_code, "extensions": _EXTENSIONS.__contains__}


def type_choices(parameters: Sequence[TypeParameter], engine: str) -> Iterator[dict[TypeParameter, DType]]:
    """Yield every assignment of supported dtypes to type parameters."""
    supported = [list(filter(_SUPPORTED[engine], parameter.dtypes)) for parameter in parameters]
    return (dict(zip(parameters, choice, strict=True)) for choice in itertools.product(*supported))


def unsupported_types(signature: Signature, engine: str) -> list[str]:
    """Return the names of the declared element types that an engine does not support."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if not _SUPPORTED[engine](dtype)]


def choices(signature: Signature) -> list[dict[TypeParameter, DType]]:
    """Return the type assignments for which the native engine registers one operator each.

    They cover the type parameters that outputs use. The list is empty if ONNX Runtime does not support a required type.
    """
    # A type parameter that only inputs use needs no assignment: ONNX Runtime accepts any type there, and the kernel
    # node checks it when it is created.
    types = dict.fromkeys(item.type for item in signature.outputs if item.homogeneous)
    fixed = [p.dtypes[0] for p in signature.type_parameters if len(p.dtypes) == 1]
    if not all(map(ort_code, fixed)):
        return []
    return list(type_choices([parameter for parameter in types if len(parameter.dtypes) > 1], "native"))
