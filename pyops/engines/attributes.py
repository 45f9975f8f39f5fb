"""Reading a node's attributes through ONNX Runtime's C API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_float, c_int64, c_size_t, c_void_p
from typing import Any

from ..attribute import AttributeKind
from ..errors import EngineError, InputError
from ..signature import Signature
from .c_api import Api
from .workspace import Workspace

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


def _scalar_reader(function: str, kind: type[c_float] | type[c_int64]) -> Callable[[Api, int, bytes], Any]:
    return lambda api, info, name: api.get(kind, getattr(api, function), info, name)


def read_text(api: Api, read: Callable[[int, int], int | None]) -> str:
    """A string that a function gives in two calls: its size with its NUL first, then its bytes."""
    size = c_size_t(0)
    api.check(read(0, addressof(size)))
    buffer = ctypes.create_string_buffer(size.value or 1)
    api.check(read(addressof(buffer), addressof(size)))
    return buffer.raw[: max(size.value - 1, 0)].decode()


def _read_string(api: Api, info: int, name: bytes) -> str:
    return read_text(api, lambda out, size: api.KernelInfoGetAttribute_string(info, name, out, size))


def _array_reader(function: str, element: type[c_float] | type[c_int64]) -> Callable[[Api, int, bytes], list[Any]]:
    def read(api: Api, info: int, name: bytes) -> list[Any]:
        size = c_size_t(0)
        api.check(getattr(api, function)(info, name, 0, addressof(size)))
        values = (element * size.value)()
        if size.value:
            api.check(getattr(api, function)(info, name, addressof(values), addressof(size)))
        return list(values)

    return read


def _read_strings(api: Api, info: int, name: bytes) -> list[str]:
    allocator, strings, size = _allocator(api), c_void_p(), c_size_t()
    api.check(api.KernelInfoGetAttributeArray_string(info, name, allocator, addressof(strings), addressof(size)))
    if not strings.value:
        return []
    pointers = list((c_int64 * size.value).from_address(strings.value))
    values = [ctypes.string_at(pointer).decode() for pointer in pointers]
    for pointer in (*pointers, strings.value):
        api.check(api.AllocatorFree(allocator, pointer))
    return values


def _read_tensor(api: Api, info: int, name: bytes) -> Any:
    allocator, workspace = _allocator(api), Workspace(api)
    found: list[Any] = []

    def get(source: Any, index: int, at: Any) -> None:
        api.check(api.KernelInfoGetAttribute_tensor(source, name, allocator, at))

    try:
        workspace.read(get, c_void_p(info), [True], found)
        return found[0].copy()
    finally:
        if workspace.value:
            api.ReleaseValue(workspace.value)


def _allocator(api: Api) -> int:
    pointer: int = api.get(c_void_p, api.GetAllocatorWithDefaultOptions)
    return pointer


_READERS: dict[AttributeKind, Callable[[Api, int, bytes], Any]] = {
    AttributeKind.INT: _scalar_reader("KernelInfoGetAttribute_int64", c_int64),
    AttributeKind.FLOAT: _scalar_reader("KernelInfoGetAttribute_float", c_float),
    AttributeKind.STRING: _read_string,
    AttributeKind.TENSOR: _read_tensor,
    AttributeKind.INTS: _array_reader("KernelInfoGetAttributeArray_int64", c_int64),
    AttributeKind.FLOATS: _array_reader("KernelInfoGetAttributeArray_float", c_float),
    AttributeKind.STRINGS: _read_strings,
}
