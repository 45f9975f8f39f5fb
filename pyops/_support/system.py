"""Which system this is: the only module that asks."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import byref, c_int, c_void_p, c_wchar_p
from pathlib import Path
from typing import Any

IS_WINDOWS = sys.platform == "win32"
IS_MACOS = sys.platform == "darwin"

_NAMES = {"win32": "windows", "darwin": "macos"}
_MACHINES = {"x86_64": "x86-64", "AMD64": "x86-64"}

HOST = f"{_NAMES.get(sys.platform, sys.platform)}-{_MACHINES.get(platform.machine(), platform.machine())}"
"""The name of this system and its CPU, such as ``"linux-x86-64"``."""


def described() -> tuple[str, str, str, str]:
    """Return this Python, and the system, its machine and the release of Python as tables of systems name them."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return python, platform.system(), platform.machine(), ".".join(platform.python_version_tuple()[:2])


def user_cache() -> Path | None:
    """Return the folder for this user's caches; None if the user has no home folder."""
    if base := os.environ.get("LOCALAPPDATA" if IS_WINDOWS else "XDG_CACHE_HOME"):
        return Path(base)
    try:
        return Path.home() / ("Library/Caches" if IS_MACOS else ".cache")
    except RuntimeError:
        return None


def foreign_owner(path: Path) -> str:
    """Return the id of the user to whom a file or folder belongs; empty if that is this user or an administrator.

    Raises
    ------
    OSError
        It does not exist.
    """
    owner = path.stat().st_uid
    if IS_WINDOWS:
        return _foreign_owner_on_windows(path)
    return "" if owner in (0, os.geteuid()) else str(owner)


# Of winnt.h: a kind of object, and what is asked about it; this process's token, and what is asked about that; and two
# owners whom everyone trusts, the system and the administrators.
_FILE, _OWNER = 1, 1
_TOKEN, _USER_AND_OWNER = c_void_p(-4), (1, 4)
_TRUSTED = 22, 26


def _foreign_owner_on_windows(path: Path) -> str:
    library: Any = ctypes.CDLL("advapi32")
    owner, descriptor, name = c_void_p(), c_void_p(), c_wchar_p(str(path))
    if library.GetNamedSecurityInfoW(name, _FILE, _OWNER, byref(owner), None, None, None, byref(descriptor)):
        return ""  # a file system without owners
    try:
        return _foreign(library, owner)
    finally:
        ctypes.CDLL("kernel32").LocalFree(descriptor)


def _foreign(library: Any, owner: c_void_p) -> str:
    """Return an owner's id as text; empty for this user and administrators."""
    for question in _USER_AND_OWNER:  # the second is who owns what this process makes
        answer = (c_void_p * 32)()  # a pointer to an id, and the id
        library.GetTokenInformation(_TOKEN, question, answer, ctypes.sizeof(answer), byref(c_int()))
        if answer[0] and library.EqualSid(owner, c_void_p(answer[0])):
            return ""
    if any(library.IsWellKnownSid(owner, kind) for kind in _TRUSTED):
        return ""
    text = c_wchar_p()
    library.ConvertSidToStringSidW(owner, byref(text))
    return text.value or "?"
