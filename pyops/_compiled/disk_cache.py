"""Machine code cached on disk, so that the next process need not compile it again.

This is numba's own cache in a pyops folder, keyed by a digest of what the code depends on rather than by a file and its
date: kernels in notebooks have no file, and callbacks are generated from several.
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
    """Return the cache folder: ``$PYOPS_CACHE_DIR``, or ``pyops`` in the user's cache folder.

    None if the user has no home folder, as in a container that runs under an unknown user id.
    """
    if chosen := os.environ.get("PYOPS_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pyops")
    try:
        return Path.home() / ".cache" / "pyops"
    except RuntimeError:
        return None


def use_cache(compiled: Any, name: str, *made_from: str | None) -> None:
    """Make a numba dispatcher or C callback load its code from disk, and save it there.

    Parameters
    ----------
    name : str
        A readable part of the file name.
    *made_from : str or None
        Everything that the code depends on, except pyops' own sources and the compiler's version; if one is None,
        the code is not cached.
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
    """The name and key under which code is cached."""

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
        # Code with the address of a large constant array, or (for recursive functions) with a symbol that only the
        # compiling process knows, is invalid in other processes.
        library = compiled.library
        is_open = library.has_dynamic_globals or RuntimeLinker.PREFIX in library.get_llvm_str()
        return not is_open and all(item.can_cache for item in compiled.lifted)


class _Cache(FunctionCache):
    _impl_class = _Impl

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return signature, codegen.magic_tuple()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        data = None
        with contextlib.suppress(Exception):  # for a truncated file, for example, pickle may raise anything
            data = super().load_overload(signature, target_context)
        if data is None:
            progress.begin()
        return data

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # the disk may be full, and the compiled code is usable all the same
            try:
                super().save_overload(signature, data)
            except (EOFError, pickle.UnpicklingError):
                self.flush()
                super().save_overload(signature, data)
