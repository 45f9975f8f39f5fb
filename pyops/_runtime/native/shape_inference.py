"""ONNX Runtime's shape inference, answered by an op's shape function."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import addressof, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np

from ..._ops.op import Op
from ..._schema.attribute import AttributeKind
from ..._schema.dtypes import element_type, from_ort
from ..._schema.specs import RuntimeDim, SymbolicDim, TensorSpec
from .c_api import Api

# OrtOpAttrType of the C API, and the ctypes type of an element.
_ATTRIBUTE_TYPES: dict[AttributeKind, tuple[int, Any]] = {
    AttributeKind.INT: (1, c_int64),
    AttributeKind.INTS: (2, c_int64),
    AttributeKind.FLOAT: (3, ctypes.c_float),
    AttributeKind.FLOATS: (4, ctypes.c_float),
    AttributeKind.STRING: (5, ctypes.c_char),
    # The API cannot read lists of strings or tensors here.
}

_run_time_names = itertools.count()


class _UnknownError(Exception):
    """A shape or attribute that ONNX Runtime does not know yet, or does not provide."""


def infer_output_shapes(api: Api, op: Op[..., Any], context: int) -> None:
    """Set the output shapes of a node in an ``OrtShapeInferContext*``, as far as they are known.

    ONNX Runtime drops any error reported from here, so none is: if the shape function fails, the shapes stay unknown,
    and the kernel's results are validated against the shape function later.
    """
    try:
        count = api.get(c_size_t, api.ShapeInferContext_GetInputCount, context)
        specs = [_input(api, context, index) for index in range(count)]
        outputs = op.infer_shapes(*specs, **_attributes(api, context, op))
    except Exception:  # a shape function may raise anything
        return
    for index, spec in enumerate(outputs):
        _set_output(api, context, index, spec)


def _input(api: Api, context: int, index: int) -> TensorSpec | None:
    info = api.get(c_void_p, api.ShapeInferContext_GetInputTypeShape, context, index)
    row = from_ort(api.get(c_int, api.GetTensorElementType, info))
    if row is None:  # an absent optional input has no element type
        return None
    rank = api.get(c_size_t, api.GetDimensionsCount, info)
    if not rank:
        # This API reports a tensor of unknown rank like a scalar.
        raise _UnknownError
    dims, names = (c_int64 * rank)(), (c_char_p * rank)()
    api.check(api.GetDimensions(info, addressof(dims), rank))
    api.check(api.GetSymbolicDimensions(info, addressof(names), rank))
    return TensorSpec(tuple(map(_dim, dims, names)), row.dtype)


def _dim(size: int, name: bytes) -> Any:
    if size >= 0:
        return size
    return SymbolicDim(name.decode()) if name else RuntimeDim()


def _attributes(api: Api, context: int, op: Op[..., Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for attribute in op.signature.attributes:
        pointer = c_void_p()
        status = api.ShapeInferContext_GetAttribute(context, attribute.name.encode(), addressof(pointer))
        if status:
            api.ReleaseStatus(status)
            continue
        if attribute.kind not in _ATTRIBUTE_TYPES:
            raise _UnknownError
        kind, element = _ATTRIBUTE_TYPES[attribute.kind]
        size = c_size_t()
        # The first call fails, and returns the size in bytes.
        api.ReleaseStatus(api.ReadOpAttr(pointer.value, kind, None, 0, addressof(size)))
        buffer = (element * (size.value // ctypes.sizeof(element)))()
        if size.value:
            api.check(api.ReadOpAttr(pointer.value, kind, addressof(buffer), size.value, addressof(size)))
        if attribute.kind is AttributeKind.STRING:
            values[attribute.name] = bytes(buffer).rstrip(b"\0").decode()
        else:
            values[attribute.name] = list(buffer) if attribute.kind is not attribute.kind.element else buffer[0]
    return values


def _set_output(api: Api, context: int, index: int, spec: TensorSpec) -> None:
    info = api.get(c_void_p, api.CreateTensorTypeAndShapeInfo)
    try:
        sizes = [int(dim) if isinstance(dim, (int, np.integer)) else -1 for dim in spec.shape]
        names = [b"" if size >= 0 else _name(dim) for size, dim in zip(sizes, spec.shape, strict=True)]
        rank, row = len(sizes), element_type(spec.dtype)
        # Kept in variables until ONNX Runtime has copied the arrays; an address alone does not keep them alive.
        dims, labels = (c_int64 * rank)(*sizes), (c_char_p * rank)(*names)
        api.check(api.SetTensorElementType(info, (row and row.ort) or 0))
        api.check(api.SetDimensions(info, addressof(dims), rank))
        api.check(api.SetSymbolicDimensions(info, addressof(labels), rank))
        api.check(api.ShapeInferContext_SetOutputTypeShape(context, index, info))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)


def _name(dim: Any) -> bytes:
    # Each dimension known only at run time needs a unique name: equal names mean equal sizes.
    return f"pyops_{next(_run_time_names)}".encode() if isinstance(dim, RuntimeDim) else str(dim).encode()
