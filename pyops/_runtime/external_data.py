"""Where ONNX Runtime finds the tensors that a model keeps in files beside it, when what it gets is in memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FOLDER = "session.model_external_initializers_file_folder_path"

_locks: weakref.WeakKeyDictionary[Any, threading.RLock] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


@contextmanager
def read_from(folder: str | None, options: Any, of_one_session: bool = False) -> Iterator[None]:
    """Within it, a session created from `options` reads external data from `folder`, unless they name one themselves.

    ONNX Runtime asks the options before the model's own path, so that one thread at a time is let in
    with them, and sessions created afterwards find them as they were: `of_one_session` says that there are none, and
    spares the warning that ONNX Runtime logs where an entry changes.
    """
    with _lock:
        lock = _locks.setdefault(options, threading.RLock())
    with lock:
        if folder is None or _named(options):
            yield
            return
        options.add_session_config_entry(_FOLDER, folder)
        try:
            yield
        finally:
            if not of_one_session:
                options.add_session_config_entry(_FOLDER, "")


def _named(options: Any) -> str:
    try:
        return str(options.get_session_config_entry(_FOLDER))
    except RuntimeError:
        return ""
