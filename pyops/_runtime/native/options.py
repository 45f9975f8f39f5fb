"""The configuration entries of session options, which ONNX Runtime's Python bindings can read only one by one."""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_char_p, c_size_t, c_void_p
from typing import Any

from .c_api import load
from .session import POINTER_ENTRY, session_options_pointer


def config_entry(options: Any, key: str) -> str:
    """Return a configuration entry of an ``onnxruntime.SessionOptions``; empty if there is none."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return ""


def config_entries(options: Any) -> dict[str, str]:
    """Return the configuration entries of an ``onnxruntime.SessionOptions``.

    Raises
    ------
    EngineError
        ONNX Runtime's C API cannot be used here.
    """
    api = load()
    pairs = api.get(c_void_p, api.GetSessionOptionsConfigEntries, session_options_pointer(options))
    try:
        keys, values, count = c_void_p(), c_void_p(), c_size_t()
        api.GetKeyValuePairs(pairs, *map(addressof, (keys, values, count)))
        texts = [
            [text.decode() for text in ctypes.cast(column, ctypes.POINTER(c_char_p))[: count.value]]
            for column in (keys, values)
        ]
    finally:
        api.ReleaseKeyValuePairs(pairs)
    return {key: value for key, value in zip(*texts, strict=True) if not key.startswith(POINTER_ENTRY)}
