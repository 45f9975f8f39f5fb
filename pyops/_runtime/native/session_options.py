"""Access to the C++ object behind a Python ``SessionOptions``."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_size_t, c_void_p
from typing import Any

import onnxruntime

from ...errors import EngineError
from .c_api import load


def session_options_pointer(options: Any) -> int:
    """Return the ``OrtSessionOptions*`` behind a Python ``SessionOptions``.

    The pointer comes from pybind11's protocol for sharing objects between modules, which checks the C++ type. To
    confirm it, a configuration entry is written through Python and read back through C.

    Raises
    ------
    EngineError
        `options` is not an ``onnxruntime.SessionOptions``, or this build does not confirm the pointer.
    """
    api = load()  # first: of an older release it says that, which has other bindings too
    conduit = isinstance(options, onnxruntime.SessionOptions) and getattr(options, "_pybind11_conduit_v1_", None)
    capsule = conduit and conduit(_platform_abi_id(), _type_info_capsule(), b"raw_pointer_ephemeral")
    if not capsule:
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = c_void_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = c_void_p, [ctypes.py_object, c_void_p]
    pointer: int = get_pointer(capsule, get_name(capsule))
    key, value = "pyops.session_options_pointer", f"{pointer:x}"
    options.add_session_config_entry(key, value)
    size, buffer = c_size_t(64), ctypes.create_string_buffer(64)
    api.check(api.GetSessionConfigEntry(pointer, key.encode(), ctypes.addressof(buffer), ctypes.addressof(size)))
    if buffer.value.decode() != value:
        raise EngineError("ONNX Runtime's session options are not where its Python bindings say they are")
    return pointer


@functools.cache
def _platform_abi_id() -> bytes:
    """Return the id of the bindings' C++ ABI: the end of the name of one of pybind11's types."""
    from onnxruntime.capi import onnxruntime_pybind11_state as bindings

    record = type(bindings.get_available_providers.__self__).__name__
    prefix = "pybind11_detail_function_record_v1_"
    if not record.startswith(prefix):
        raise EngineError(f"this build of onnxruntime's bindings ({record}) does not say which C++ ABI it has")
    return record.removeprefix(prefix).encode()


_TYPE_NAME = ctypes.create_string_buffer(b"N11onnxruntime6python16PySessionOptionsE")
# The part of a std::type_info that pybind11 reads: an unused virtual table pointer, and the name.
_TYPE_INFO = (c_void_p * 2)(None, ctypes.addressof(_TYPE_NAME))
_CAPSULE_NAME = ctypes.create_string_buffer(b"St9type_info")


@functools.cache
def _type_info_capsule() -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [c_void_p, c_void_p, c_void_p]
    return new(ctypes.addressof(_TYPE_INFO), ctypes.addressof(_CAPSULE_NAME), None)
