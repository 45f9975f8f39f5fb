"""The configuration entries of session options, which ONNX Runtime's Python bindings can read only one by one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import addressof, c_char_p, c_size_t, c_void_p
from typing import Any

import onnxruntime

from ...models.model import Key
from .c_api import load
from .op_registration import POINTER_ENTRY, session_options_pointer

LIBRARY_ENTRY = "pyops.library."
"""The prefix of the configuration entries that libraries write, one for each of their domains."""


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


def library_ops(options: Any, domains: Iterable[str]) -> set[Key]:
    """Return the domain and name of each op in these domains that a library in the session options has."""
    found: set[Key] = set()
    # The engine reports options of another class.
    for domain in domains if isinstance(options, onnxruntime.SessionOptions) else ():
        found |= {(domain, name) for name in config_entry(options, LIBRARY_ENTRY + domain).split()}
    return found
