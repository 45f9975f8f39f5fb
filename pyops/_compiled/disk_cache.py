"""Machine code cached on disk, so that the next process need not compile it again, and messages about compilations.

This is numba's own cache in a pyops folder, keyed by a digest of what the code depends on rather than by a file and its
date: kernels in notebooks have no file, and callbacks are generated from several.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import hashlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from .._progress import is_watched
from .cache_folder import cache_folder, is_trusted


def use_cache(compiled: Any, name: str, *made_from: str | None) -> None:
    """Make a numba dispatcher or C callback load its code from disk, and save it there.

    Parameters
    ----------
    name : str
        What is compiled: for the message about it, and as a part of the file name.
    *made_from : str or None
        Everything that the code depends on, except pyops' own sources and the compiler's version; if one is None,
        the code is not cached.
    """
    settings = f"{numba.config.BOUNDSCHECK} {numba.config.OPT}"
    key = hashlib.sha256("\0".join([_versions(), settings, *map(str, made_from)]).encode()).hexdigest()
    compiled._cache = _Cache(_Keyed(name, key))
    path = cache_folder()
    if None in made_from or path is None:
        compiled._cache.disable()
    else:
        with contextlib.suppress(OSError):  # code that cannot be written is compiled in each process
            path.mkdir(mode=0o700, parents=True, exist_ok=True)


@functools.cache
def _versions() -> str:
    own = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return f"{hashlib.sha256(own).hexdigest()} {numba.__version__} {llvmlite.__version__} {np.__version__}"


class _Keyed(NamedTuple):
    """The name and key under which code is cached."""

    name: str
    key: str


class _Locator(_CacheLocator):
    def __init__(self, keyed: _Keyed) -> None:
        self._keyed = keyed

    def get_cache_path(self) -> str:
        return str(cache_folder() or "")

    def get_source_stamp(self) -> str:
        return self._keyed.key

    def get_disambiguator(self) -> str:
        return self._keyed.key[:32]


class _Impl(CompileResultCacheImpl):
    def __init__(self, keyed: _Keyed) -> None:
        self._locator = _Locator(keyed)
        self._filename_base = self.get_filename_base(re.sub(r"\W", "_", keyed.name), "")

    def check_cachable(self, compiled: Any) -> bool:
        # Code with the address of a large constant array is invalid in other processes.
        return not compiled.library.has_dynamic_globals and all(item.can_cache for item in compiled.lifted)


class _Files(IndexDataCacheFile):
    """Cache files, which are not read if another user may have written them; new ones replace these."""

    def _load_index(self) -> Any:
        return super()._load_index() if is_trusted(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if is_trusted(Path(self._data_path(name))) else None


class _Cache(FunctionCache):
    _impl_class = _Impl

    def __init__(self, keyed: _Keyed) -> None:
        super().__init__(keyed)
        locator = self._impl.locator
        self._cache_file = _Files(locator.get_cache_path(), self._impl.filename_base, locator.get_source_stamp())

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return signature, codegen.magic_tuple()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        data = None
        try:
            data = super().load_overload(signature, target_context)
        except Exception:  # for a truncated file, for example, pickle may raise anything
            with contextlib.suppress(Exception):
                self.flush()
        if data is None:
            self._tell()
        return data

    def _tell(self) -> None:
        # Before it begins, because it takes seconds; printed only in a terminal or notebook.
        what = self._py_func.name
        logging.getLogger("pyops").info("compiling %s", what)
        if is_watched():
            print(f"compiling {what}", file=sys.stderr, flush=True)

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # the disk may be full; the compiled code is usable nevertheless
            super().save_overload(signature, data)


# Packages that are not inspected: their versions are part of every key, or they are part of Python.
_VERSIONED = {"numpy", "numba", "math", "cmath", "builtins", "operator", "pyops"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function and all that it refers to; None if some of that has no stable description."""
    try:
        text = "\n".join(_function(function, set()))
    except _UndescribableError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


class _UndescribableError(Exception):
    pass


def _function(function: Any, seen: set[Any]) -> Iterator[str]:
    if id(function) in seen:  # a recursive function
        return
    seen.add(id(function))
    code = function.__code__
    # Included because exceptions name the file and the line. Only the file's name, since IPython's files lie in a
    # folder specific to the process.
    yield f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    yield from _code(code)
    for name in sorted(global_names(code)):
        if name in function.__globals__:
            yield f"global {name}"
            yield from _value(function.__globals__[name], seen)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield f"cell {name}"
        try:
            yield from _value(cell.cell_contents, seen)
        except ValueError:
            yield "empty"
    yield from _value(function.__defaults__, seen)


def _code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_name} {code.co_varnames} {code.co_names} {code.co_flags} {code.co_argcount} {code.co_code.hex()}"
    yield code.co_linetable.hex()
    for constant in code.co_consts:
        yield from _code(constant) if isinstance(constant, CodeType) else [f"{type(constant).__name__} {constant!r}"]


def global_names(code: CodeType) -> set[str]:
    """Return the names of globals that a function's code, or code nested in it, reads."""
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _value(value: Any, seen: set[Any]) -> Iterator[str]:
    if type(value) in _PLAIN or isinstance(value, (np.generic, np.dtype)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list)):
        yield f"{type(value).__name__} {len(value)} {getattr(value, '_fields', '')}"
        for item in value:
            yield from _value(item, seen)
    elif type(value) is type and issubclass(value, tuple):  # a NamedTuple class
        yield f"{value.__qualname__} {getattr(value, '_fields', '')}"
    elif isinstance(value, enum.EnumMeta):
        members: Mapping[str, enum.Enum] = value.__members__
        yield from _value([(name, member.value) for name, member in members.items()], seen)
    elif isinstance(value, np.ndarray) and value.dtype != np.object_:
        yield f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(getattr(value, "py_func", None), FunctionType):  # compiled by numba
        yield repr(sorted(getattr(value, "targetoptions", {}).items()))
        yield from _function(value.py_func, seen)
    elif isinstance(value, np.ufunc) or _is_versioned(value):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
    elif isinstance(value, FunctionType):
        yield from _function(value, seen)
    else:
        raise _UndescribableError


def _is_versioned(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] in _VERSIONED
