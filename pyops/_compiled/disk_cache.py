"""Machine code on disk, so that the next process need not compile it again.

This is numba's own cache in a folder of ours, keyed by what the code is made from rather than by a
file and its date: kernels of notebooks have no file, and what callbacks are made of lies in several.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import re
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import RuntimeLinker

from . import progress


def folder() -> Path | None:
    """Where machine code is kept: ``$PYOPS_CACHE_DIR``, or ``pyops`` in the user's cache folder.

    None for a user who has no home, as in a container that runs under a number that nobody has.
    """
    if chosen := os.environ.get("PYOPS_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pyops")
    try:
        return Path.home() / ".cache" / "pyops"
    except RuntimeError:
        return None


def keep(compiled: Any, name: str, *made_from: str | None) -> None:
    """Have a dispatcher or a C callback of numba's look for its code on disk, and leave it there.

    Parameters
    ----------
    name : str
        For people who look into the folder.
    *made_from : str or None
        All that the code depends on, beside ours and the versions of what compiles it; with a None
        among them it is not kept.
    """
    settings = f"{numba.config.BOUNDSCHECK} {numba.config.OPT}"
    key = hashlib.sha256("\0".join([_versions(), settings, *map(str, made_from)]).encode()).hexdigest()
    compiled._cache = _Cache(_Keyed(re.sub(r"\W", "_", name), key))
    if None in made_from or not _is_usable():
        compiled._cache.disable()


@functools.cache
def _versions() -> str:
    own = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return f"{hashlib.sha256(own).hexdigest()} {numba.__version__} {llvmlite.__version__} {np.__version__}"


def _is_usable() -> bool:
    path = folder()
    if path is None:
        return False
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(path, os.W_OK)


class _Keyed(NamedTuple):
    """What code is kept by."""

    name: str
    key: str


class _Locator(_CacheLocator):
    def __init__(self, keyed: _Keyed) -> None:
        self._keyed = keyed

    def get_cache_path(self) -> str:
        return str(folder() or "")

    def get_source_stamp(self) -> str:
        return self._keyed.key

    def get_disambiguator(self) -> str:
        return self._keyed.key[:32]


class _Impl(CompileResultCacheImpl):
    def __init__(self, keyed: _Keyed) -> None:
        self._locator = _Locator(keyed)
        self._filename_base = self.get_filename_base(keyed.name, "")

    def check_cachable(self, compiled: Any) -> bool:
        # Large constant arrays are part of the code by their address; and the calls of functions that call
        # themselves by a symbol that only the process that compiled them knows.
        library = compiled.library
        is_open = library.has_dynamic_globals or RuntimeLinker.PREFIX in library.get_llvm_str()
        return not is_open and all(item.can_cache for item in compiled.lifted)


class _Cache(FunctionCache):
    _impl_class = _Impl

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return signature, codegen.magic_tuple()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        data = None
        with contextlib.suppress(Exception):  # a file that was cut off, say: pickle raises anything
            data = super().load_overload(signature, target_context)
        if data is None:
            progress.begun()
        return data

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # the disk is full, say: the code is there all the same
            try:
                super().save_overload(signature, data)
            except (EOFError, pickle.UnpicklingError):
                self.flush()
                super().save_overload(signature, data)
