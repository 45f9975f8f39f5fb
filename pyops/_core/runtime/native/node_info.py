"""What ONNX Runtime knows about a node when it creates the kernel, and shape inference with the shape function."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from ctypes import addressof, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from ...._support.element_types import DType, from_ort, ort_code
from ...._support.tested_releases import is_older
from ....errors import EngineError, InputError, PyopsError, ShapeInferenceError
from ...ops.op import Op
from ...schema import call_validation
from ...schema.attribute import AttributeKind
from ...schema.node_validation import describe_node
from ...schema.shape_inference import infer
from ...schema.signature import Signature
from ...schema.symbolic_dims import RuntimeDim, SymbolicDim
from ...schema.tensor_specs import TensorSpec
from .c_api import Api
from .call_tensors import Workspace, dtype_of

# ONNX Runtime's messages for a missing attribute; any other failure means another type.
_ABSENT_MESSAGES = ("No attribute with name", "No attribute with this name")
_ABSENT, _OTHER_TYPE = object(), object()


def read_attributes(api: Api, info: int, signature: Signature) -> dict[str, Any]:
    """Return the converted attributes of the node behind an ``OrtKernelInfo*``.

    Raises
    ------
    InputError
        An attribute is missing, or does not have the declared type.
    """
    given = {}
    for attribute in signature.attributes:
        name = attribute.name.encode()
        value = _read(api, info, name, attribute.kind)
        # ONNX Runtime reads a list of another type as an empty list.
        if value is _OTHER_TYPE or (_is_empty(value) and _has_other_type(api, info, name, attribute.kind)):
            raise InputError(
                f"attribute {attribute.name!r} is declared {attribute.spelling}; the model has another type"
            )
        if value is not _ABSENT:
            given[attribute.name] = value
    return signature.convert_attributes(given)


def _read(api: Api, info: int, name: bytes, kind: AttributeKind) -> Any:
    try:
        return _READERS[kind](api, info, name)
    except EngineError as error:
        return _ABSENT if any(text in str(error) for text in _ABSENT_MESSAGES) else _OTHER_TYPE


def _has_other_type(api: Api, info: int, name: bytes, kind: AttributeKind) -> bool:
    others = (_read(api, info, name, other) for other in AttributeKind if other is not kind)
    return any(value is not _ABSENT and value is not _OTHER_TYPE and not _is_empty(value) for value in others)


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def read_text(api: Api, function: Callable[..., int | None], *arguments: Any) -> str:
    """Return a string from an API function whose last parameters are a buffer and its size."""
    text: bytes = _read_array(api, c_char, function, *arguments)
    return text[:-1].decode()


def _read_array(api: Api, element: Any, function: Callable[..., int | None], *arguments: Any) -> Any:
    """Return a list of elements, or bytes if `element` is ``c_char``."""
    size = c_size_t(0)
    # The first call returns the size.
    api.check(function(*arguments, 0, addressof(size)))
    values = (element * size.value)()
    if size.value:
        api.check(function(*arguments, addressof(values), addressof(size)))
    return values[:]


def _read_strings(api: Api, info: int, name: bytes) -> list[str]:
    allocator, strings, size = api.get(c_void_p, api.GetAllocatorWithDefaultOptions), c_void_p(), c_size_t()
    api.check(api.KernelInfoGetAttributeArray_string(info, name, allocator, addressof(strings), addressof(size)))
    if not strings.value:
        return []
    pointers = list((c_int64 * size.value).from_address(strings.value))
    values = [ctypes.string_at(pointer).decode() for pointer in pointers]
    for pointer in (*pointers, strings.value):
        api.check(api.AllocatorFree(allocator, pointer))
    return values


def _read_tensor(api: Api, info: int, name: bytes) -> Any:
    allocator, workspace = api.get(c_void_p, api.GetAllocatorWithDefaultOptions), Workspace(api)
    found: list[Any] = []

    def get(source: Any, index: int, at: Any) -> None:
        api.check(api.KernelInfoGetAttribute_tensor(source, name, allocator, at))

    try:
        workspace.read(get, c_void_p(info), [True], found)
        return found[0].copy()
    finally:
        if workspace.value:
            api.ReleaseValue(workspace.value)


_READERS: dict[AttributeKind, Callable[[Api, int, bytes], Any]] = {
    AttributeKind.INT: lambda api, *node: api.get(c_int64, api.KernelInfoGetAttribute_int64, *node),
    AttributeKind.FLOAT: lambda api, *node: api.get(c_float, api.KernelInfoGetAttribute_float, *node),
    AttributeKind.STRING: lambda api, *node: read_text(api, api.KernelInfoGetAttribute_string, *node),
    AttributeKind.TENSOR: _read_tensor,
    AttributeKind.INTS: lambda api, *node: _read_array(api, c_int64, api.KernelInfoGetAttributeArray_int64, *node),
    AttributeKind.FLOATS: lambda api, *node: _read_array(api, c_float, api.KernelInfoGetAttributeArray_float, *node),
    AttributeKind.STRINGS: _read_strings,
}


@dataclass(frozen=True)
class NodeInfo:
    """What ONNX Runtime knows about a node.

    Attributes
    ----------
    attributes : dict
        The values that the kernel is called with, defaults included.
    input_dtypes : tuple
        One per input of the node, None for an absent one.
    output_dtypes : tuple
        One per output of the kernel.
    output_count : int
        The number of outputs that the node has; a model may leave out the last ones.
    """

    name: str
    signature: Signature
    attributes: dict[str, Any]
    input_dtypes: tuple[DType | None, ...]
    output_dtypes: tuple[DType, ...]
    output_count: int


def read_node_info(api: Api, info: int, signature: Signature) -> NodeInfo:
    """Read an ``OrtKernelInfo*``.

    The pointer is valid only while the kernel is being created.

    Raises
    ------
    InputError
        The node's attributes or input types do not match the declaration.
    """
    name = read_text(api, api.KernelInfo_GetNodeName, info)
    try:
        attributes = read_attributes(api, info, signature)
        input_count = api.get(c_size_t, api.KernelInfo_GetInputCount, info)
        inputs = tuple(_input_dtype(api, info, index) for index in range(input_count))
        declared = call_validation.output_dtypes(signature, inputs)
    except PyopsError as error:
        error.add_note(describe_node(name, signature))
        raise
    output_count = api.get(c_size_t, api.KernelInfo_GetOutputCount, info)
    outputs = [
        declared[min(index, len(declared) - 1)] or _dtype(api, api.KernelInfo_GetOutputTypeInfo, info, index)
        for index in range(max(output_count, len(declared) - signature.outputs[-1].variadic))
    ]
    return NodeInfo(name, signature, attributes, inputs, tuple(outputs), output_count)


def _input_dtype(api: Api, info: int, index: int) -> DType | None:
    if not read_text(api, api.KernelInfo_GetInputName, info, index):
        return None
    return _dtype(api, api.KernelInfo_GetInputTypeInfo, info, index)


def _dtype(api: Api, function: Callable[[int, int, int], int | None], info: int, index: int) -> DType:
    type_info = api.get(c_void_p, function, info, index)
    try:
        tensor_info = api.get(c_void_p, api.CastTypeInfoToTensorInfo, type_info)
        if not tensor_info:
            raise InputError(f"input or output number {index} is not a tensor; custom operators support only tensors")
        code = api.get(c_int, api.GetTensorElementType, tensor_info)
    finally:
        api.ReleaseTypeInfo(type_info)
    return dtype_of(code)


# OrtOpAttrType of the C API, and the ctypes type of an element.
_ATTRIBUTE_TYPES: dict[AttributeKind, tuple[int, Any]] = {
    AttributeKind.INT: (1, c_int64),
    AttributeKind.INTS: (2, c_int64),
    AttributeKind.FLOAT: (3, c_float),
    AttributeKind.FLOATS: (4, c_float),
    AttributeKind.STRING: (5, c_char),
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
    if not _infers_absent() and _has_absent(op.signature):
        return
    try:
        count = api.get(c_size_t, api.ShapeInferContext_GetInputCount, context)
        specs = [_input_spec(api, context, index) for index in range(count)]
        outputs = _infer(op, specs, _known_attributes(api, context, op))
        for index, spec in enumerate(outputs):
            _set_output(api, context, index, spec)
    except (_UnknownError, EngineError, UnicodeError):
        return


@functools.cache
def _infers_absent() -> bool:
    """Return whether ONNX Runtime infers shapes of nodes that leave something out; before 1.28 it aborts instead."""
    return not is_older(onnxruntime.__version__, "1.28")


def _has_absent(signature: Signature) -> bool:
    """Return whether nodes of an op may leave out inputs or outputs."""
    return len(signature.outputs) > 1 or any(item.optional or item.variadic for item in signature.inputs)


def _infer(op: Op[..., Any], specs: list[TensorSpec | None], attributes: dict[str, Any]) -> tuple[TensorSpec, ...]:
    """Return the specs of the outputs; none if the shape function fails, with whatever exception.

    They have no values, which this API does not give.
    """
    function = op.shape_function  # another thread may replace it
    if function is None:
        return ()
    try:
        return infer(op.signature, function, specs, attributes)
    except ShapeInferenceError:
        return ()
    except Exception as error:
        try:
            infer(op.signature, function, specs, attributes)
        except Exception as again:
            if type(again) is type(error):
                return ()
        raise  # it did not come from the shape function but, for example, from the handler of a signal


def _input_spec(api: Api, context: int, index: int) -> TensorSpec | None:
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


def _known_attributes(api: Api, context: int, op: Op[..., Any]) -> dict[str, Any]:
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
        rank = len(sizes)
        # Kept in variables until ONNX Runtime has copied the arrays; an address alone does not keep them alive.
        dims, labels = (c_int64 * rank)(*sizes), (c_char_p * rank)(*names)
        api.check(api.SetTensorElementType(info, ort_code(spec.dtype)))
        api.check(api.SetDimensions(info, addressof(dims), rank))
        api.check(api.SetSymbolicDimensions(info, addressof(labels), rank))
        api.check(api.ShapeInferContext_SetOutputTypeShape(context, index, info))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)


def _name(dim: Any) -> bytes:
    # Each dimension known only at run time needs a unique name: equal names mean equal sizes.
    return f"pyops_{next(_run_time_names)}".encode() if isinstance(dim, RuntimeDim) else str(dim).encode()
