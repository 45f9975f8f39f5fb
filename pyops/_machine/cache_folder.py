"""The folder in which machine code is cached, and its files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from pathlib import Path

from .._support.atomic_files import whole_file
from .._support.system import IS_WINDOWS, foreign_owner, user_cache
from ..errors import CacheWarning, warn

_DIGEST = 32  # bytes


def read_code(name: str) -> bytes | None:
    """Return the code that `write_code` wrote; None if there is none, not all of it, or it is not trusted."""
    folder = cache_folder()
    if folder is None or not is_trusted(folder / name):
        return None
    try:
        data = (folder / name).read_bytes()
    except OSError:
        return None
    code = data[_DIGEST:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST] else None


def write_code(name: str, code: bytes) -> None:
    """Write code to a file of the cache folder."""
    folder = cache_folder()
    if folder is not None:
        with contextlib.suppress(OSError):  # code that cannot be written is compiled in each process
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(folder / name) as part:
                part.write_bytes(hashlib.sha256(code).digest() + code)


def cache_folder() -> Path | None:
    """Return the cache folder: ``$PYOPS_CACHE_DIR``, or ``pyops`` in the user's cache folder.

    None if the user has no home folder, as in a container that runs under an unknown user id; and, with a
    `pyops.errors.CacheWarning`, if another user could have put code into the folder, which this process would run.
    """
    folder = _chosen()
    return folder if folder and is_trusted(folder) else None


def is_trusted(path: Path) -> bool:
    """Return whether no other user can have put code into the cache folder or a file there, and warn if one can."""
    if reason := _open_to_others(path):
        _warn(
            f"{path} {reason}, and may contain their code: it is not used, and machine code is compiled again; delete "
            "it, or set PYOPS_CACHE_DIR to your own folder"
        )
    return not reason


def _chosen() -> Path | None:
    if chosen := os.environ.get("PYOPS_CACHE_DIR"):
        return Path(chosen)
    base = user_cache()
    return base and base / "pyops"


def _open_to_others(path: Path) -> str:
    """Return why other users can write to a folder or file; empty if they cannot. Members of its group are trusted."""
    try:
        owner, mode = foreign_owner(path), path.stat().st_mode
    except OSError:  # it does not exist yet
        return ""
    if owner:
        return f"belongs to another user ({owner})"
    # Windows has no such mode: its rights are not looked at, as those of the user's own folders exclude others.
    return "can be written to by all users" if mode & stat.S_IWOTH and not IS_WINDOWS else ""


@functools.cache
def _warn(message: str) -> None:
    warn(message, CacheWarning)
