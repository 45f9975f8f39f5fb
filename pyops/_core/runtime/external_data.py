"""External data of models that ONNX Runtime gets from memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..._support.locks import RLock
from .native.session_options import config_entry

_FOLDER = "session.model_external_initializers_file_folder_path"


# For each options object, the lock of the session in creation that changes it, and those of all others in creation.
_locks: dict[weakref.ref[Any], tuple[RLock, list[RLock]]] = {}


def read_external_data(folder: str | None, options: Any, of_one_session: bool, create: Callable[[], None]) -> None:
    """Call `create`, which creates a session from `options`, and whose model's external data are read from `folder`.

    For models that ONNX Runtime gets from memory. A folder that `options` already configure takes precedence. ONNX
    Runtime reads this setting from the options, which several threads may share: the call waits until no other session
    is being created from them, and the setting is cleared at the end. Calls without a folder wait only for those with
    one. With `of_one_session` nobody else uses the options, and the setting stays: ONNX Runtime logs a warning when it
    changes.
    """
    # Not a context manager: one that a signal's handler interrupts holds its locks for as long as the exception lives.
    changing, others = _locks.setdefault(weakref.ref(options, _locks.pop), (RLock(), []))
    if folder is None:
        own = RLock()
        with own:
            with changing:
                others.append(own)
            try:
                create()
            finally:
                others.remove(own)
        return
    with changing:
        for other in list(others):
            with other:
                pass
        if config_entry(options, _FOLDER):
            create()
            return
        options.add_session_config_entry(_FOLDER, folder)
        try:
            create()
        finally:
            if not of_one_session:
                options.add_session_config_entry(_FOLDER, "")
