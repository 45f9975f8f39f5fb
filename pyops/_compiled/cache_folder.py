"""The folder in which machine code is cached."""

from __future__ import annotations

import functools
import os
import stat
import warnings
from pathlib import Path

from ..errors import CacheWarning


def cache_folder() -> Path | None:
    """Return the cache folder: ``$PYOPS_CACHE_DIR``, or ``pyops`` in the user's cache folder.

    None if the user has no home folder, as in a container that runs under an unknown user id; and, with a
    `pyops.errors.CacheWarning`, if another user could have put code into the folder, which this process would run.
    """
    folder = _chosen()
    if folder and (reason := _open_to_others(folder)):
        _warn(f"{folder} {reason}, and its files are code that runs: machine code is compiled anew in each process")
        return None
    return folder


def _chosen() -> Path | None:
    if chosen := os.environ.get("PYOPS_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pyops")
    try:
        return Path.home() / ".cache" / "pyops"
    except RuntimeError:
        return None


def _open_to_others(folder: Path) -> str:
    """Return why other users can write to a folder; empty if they cannot. Members of its group are trusted."""
    try:
        status = folder.stat()
    except OSError:  # it does not exist yet
        return ""
    if os.name != "posix":  # elsewhere, the mode says nothing
        return ""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to another user ({status.st_uid}; set PYOPS_CACHE_DIR to a folder of your own)"
    return "can be written to by all users (chmod o-w)" if status.st_mode & stat.S_IWOTH else ""


@functools.cache
def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=2)
