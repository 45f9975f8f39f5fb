"""What ONNX Runtime tells of a node when it creates the kernel for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_char, c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from ..._schema import validation
from ..._schema.attribute import AttributeKind
from ..._schema.dtypes import DType
from ..._schema.node import describe_node
from ..._schema.signature import Signature
from ...errors import EngineError, InputError, PyopsError
from .c_api import Api
from .workspace import Workspace, dtype_of

# What ONNX Runtime says when a node has no such attribute; any other failure is another type.
_ABSENT_MESSAGES = ("No attribute with name", "No attribute with this name")
_ABSENT, _OTHER_TYPE = object(), object()


def read_attributes(api: Api, info: int, signature: Signature) -> dict[str, Any]:
    """The attributes of the node behind an ``OrtKernelInfo*``, as its kernel gets them.

    Raises
    ------
    InputError
        One is missing, or has another type than declared.
    """
    given = {}
    for attribute in signature.attributes:
        name = attribute.name.encode()
        value = _read(api, info, name, attribute.kind)
        # ONNX Runtime reads a list of another type as an empty one.
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
    """A string that a function of the API gives, whose last parameters say where it and its size go."""
    text: bytes = _read_array(api, c_char, function, *arguments)
    return text[:-1].decode()


def _read_array(api: Api, element: Any, function: Callable[..., int | None], *arguments: Any) -> Any:
    """A list, or bytes where the elements are ``c_char``."""
    size = c_size_t(0)
    # The first call says how much it is.
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
    """A node of a session.

    Attributes
    ----------
    attributes : dict
        As the kernel gets them, defaults included.
    input_dtypes : tuple
        One per input of the node, None where it is absent.
    output_dtypes : tuple
        One per output of the kernel.
    output_count : int
        How many of them the node has; the model need not use the last ones.
    """

    name: str
    signature: Signature
    attributes: dict[str, Any]
    input_dtypes: tuple[DType | None, ...]
    output_dtypes: tuple[DType, ...]
    output_count: int


def read_node_info(api: Api, info: int, signature: Signature) -> NodeInfo:
    """Read an ``OrtKernelInfo*``, which lives no longer than the creation of the kernel.

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
        declared = validation.output_dtypes(signature, inputs)
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
            raise InputError(f"number {index} is no tensor; custom operators have tensors only")
        code = api.get(c_int, api.GetTensorElementType, tensor_info)
    finally:
        api.ReleaseTypeInfo(type_info)
    return dtype_of(code)
