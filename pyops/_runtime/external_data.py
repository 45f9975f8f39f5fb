"""External data of models that ONNX Runtime gets from memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FOLDER = "session.model_external_initializers_file_folder_path"
_locks: dict[weakref.ref[Any], threading.RLock] = {}


@contextmanager
def reading_external_data(folder: str | None, options: Any, of_one_session: bool = False) -> Iterator[None]:
    """Make sessions created from `options` within the block read external data of their models from `folder`.

    For models that ONNX Runtime gets from memory. A folder that `options` already configure takes precedence. ONNX
    Runtime reads this setting from the options, which several threads may share; a lock per options object serializes
    them, and the setting is cleared on exit. With `of_one_session` nobody else uses the options, and it stays: ONNX
    Runtime logs a warning when a setting changes.
    """
    if folder is None or _configured_folder(options):
        yield
        return
    with _locks.setdefault(weakref.ref(options, _locks.pop), threading.RLock()):
        options.add_session_config_entry(_FOLDER, folder)
        try:
            yield
        finally:
            if not of_one_session:
                options.add_session_config_entry(_FOLDER, "")


def _configured_folder(options: Any) -> str:
    try:
        return str(options.get_session_config_entry(_FOLDER))
    except RuntimeError:
        return ""
