"""Machine code cached on disk, so that the next process need not compile it again, and messages about compilations.

Each file is named after a digest of what the code depends on, and not, as in numba's own cache, after a file and its
date: kernels in notebooks have no file, and callbacks are generated from several.
"""

from __future__ import annotations

import contextlib
import dis
import enum
import functools
import hashlib
import inspect
import logging
import marshal
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import ml_dtypes
import numba
import numpy as np
from numba import types
from numba.core import serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.typing import templates
from numba.extending import is_jitted

from ..._support.progress import is_watched
from ..cache_folder import read_code, write_code


def use_cache(compiled: Any, name: str, *made_from: str | None, is_current: Callable[[], bool] = lambda: True) -> None:
    """Make a numba dispatcher or C callback load its code from disk, and save it there.

    Parameters
    ----------
    name : str
        What is compiled: for the message about it, and as a part of the file name.
    *made_from : str or None
        Everything that the code depends on, except pyops' own sources and the compiler's version; if one is None,
        the code is not cached.
    is_current : callable
        Returns whether all this is still so; otherwise, code is neither loaded nor saved.
    """
    settings = " ".join(str(getattr(numba.config, name)) for name in _SETTINGS)
    key = "\0".join([_versions(), settings, *map(str, made_from)])
    compiled._cache = _Cache(name, None if None in made_from else key, is_current)


_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "USING_SVML")


@functools.cache
def _versions() -> str:
    own = b"".join(file.read_bytes() for file in sorted(Path(__file__).parents[1].rglob("*.py")))
    packages = " ".join(package.__version__ for package in (numba, llvmlite, np, ml_dtypes))
    return f"{hashlib.sha256(own).hexdigest()} {sys.implementation.cache_tag} {packages}"


class _Cache(NullCache):
    """What numba asks for code, and gives code to; without a key, nothing is kept."""

    def __init__(self, name: str, key: str | None, is_current: Callable[[], bool]) -> None:
        self._name, self._key, self._is_current = name, key, is_current

    def _file(self, signature: Any, codegen: Any) -> str:
        digest = hashlib.sha256(f"{self._key} {signature} {codegen.magic_tuple()}".encode()).hexdigest()
        return "{}-{}.nbc".format(re.sub(r"\W", "_", self._name), digest)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        target_context.refresh()
        if self._key is not None and self._is_current():
            code = read_code(self._file(signature, target_context.codegen()))
            with contextlib.suppress(Exception):  # what was pickled may refer to what is no longer there
                return CompileResult._rebuild(target_context, *pickle.loads(code or b""))
        # Before it begins, because it takes seconds; printed only in a terminal or notebook.
        logging.getLogger("pyops").info("compiling %s", self._name)
        if is_watched():
            print(f"compiling {self._name}", file=sys.stderr, flush=True)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        # Code with the address of a large constant array is invalid in other processes.
        is_portable = not compiled.library.has_dynamic_globals and all(item.can_cache for item in compiled.lifted)
        if self._key is not None and is_portable and self._is_current():
            with contextlib.suppress(Exception):  # not all constants can be pickled
                write_code(self._file(signature, compiled.codegen), serialize.dumps(compiled._reduce()))


# What these have under its name is not inspected: their versions are part of every key, or they are part of Python.
_VERSIONED = {"numpy", "ml_dtypes", "numba", "math", "cmath", "builtins", "operator", "_operator", "pyops._machine"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of what a function's machine code depends on; None if some of that has no stable description.

    That is the function's code, the values that it refers to, what these refer to in turn, and what users registered
    with numba for the functions, methods and attributes that this code names.
    """
    try:
        text = "\n".join(_Description().lines(function))
    except (_UndescribableError, ValueError):  # ValueError: a constant that marshal does not know
        return None
    return hashlib.sha256(text.encode()).hexdigest()


class _UndescribableError(Exception):
    pass


class _Description:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._names: set[str] = set()

    def lines(self, function: Any) -> Iterator[str]:
        yield from self._once(function, self._function)
        registry = templates.builtin_registry
        kinds = [kind for _, typed in registry.globals for kind in getattr(typed, "templates", ())]
        own = [kind for kind in (*registry.functions, *registry.attributes, *kinds) if _is_of_users(kind)]
        while used := [kind for kind in own if id(kind) not in self._numbers and self._may_use(kind)]:
            for kind in used:
                yield from self._once(kind, self._overload)

    def _once(self, value: Any, describe: Callable[[Any], Iterator[str]]) -> Iterator[str]:
        # Functions may refer to themselves, and which function a name means is a part of the description.
        if id(value) in self._numbers:
            yield f"number {self._numbers[id(value)]}"
        else:
            self._numbers[id(value)] = len(self._numbers)
            yield from describe(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        code = function.__code__
        yield marshal.dumps(self._portable(code), 0).hex()
        for name in sorted(global_names(code)):
            if name in function.__globals__:
                yield f"global {name}"
                yield from self._value(function.__globals__[name])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            yield f"cell {name}"
            yield from self._value(cell.cell_contents) if cell != CellType() else ["empty"]
        yield from self._value([function.__defaults__, function.__kwdefaults__])

    def _portable(self, code: CodeType) -> CodeType:
        # Lines are included because exceptions name the file and the line. Only the file's name, since IPython's files
        # lie in a folder specific to the process.
        self._names.update(code.co_names, (item for item in code.co_consts if isinstance(item, str)))
        constants = (self._portable(item) if isinstance(item, CodeType) else item for item in code.co_consts)
        return code.replace(co_filename=Path(code.co_filename).name, co_consts=tuple(constants))

    def _dispatcher(self, compiled: Any) -> Iterator[str]:
        yield from self._value([compiled.targetoptions, compiled.locals, compiled._compiler.pipeline_class])
        if not compiled._can_compile:  # the user chose its types, to which arguments are converted
            yield from map(repr, compiled.nopython_signatures)
        yield from self._once(compiled.py_func, self._function)

    def _may_use(self, kind: Any) -> bool:
        given = kind.key
        if hasattr(kind, "_attr"):  # a method or an attribute
            return kind._attr in self._names
        if isinstance(given, FunctionType) and not _is_versioned(given):
            return id(given) in self._numbers
        return _is_part(getattr(given, "__module__", None)) or getattr(given, "__name__", None) in {None, *self._names}

    def _overload(self, kind: Any) -> Iterator[str]:
        if not hasattr(kind, "_overload_func"):
            raise _UndescribableError
        options = [getattr(kind, name, None) for name in ("_jit_options", "_strict", "prefer_literal", "metadata")]
        yield f"registered {getattr(kind, '_attr', '')}"
        yield from self._value([kind.key, kind._overload_func, kind._inline.value, *options])

    def _value(self, value: Any) -> Iterator[str]:
        if type(value) in _PLAIN or isinstance(value, (np.generic, np.dtype)):
            self._names.update([value] if isinstance(value, str) else ())  # getattr takes a name
            yield f"{type(value).__name__} {value!r}"
        elif isinstance(value, (tuple, list)):
            yield f"{type(value).__name__} {len(value)} {getattr(value, '_fields', '')}"
            for item in value:
                yield from self._value(item)
        elif isinstance(value, (dict, set, frozenset)):
            yield from self._value(sorted(value.items() if isinstance(value, dict) else value, key=repr))
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            yield f"{value.dtype} {value.shape} {value.strides} {content}"
        elif isinstance(value, enum.EnumMeta):
            members: Mapping[str, enum.Enum] = value.__members__
            yield from self._value([(name, member.value) for name, member in members.items()])
        elif isinstance(value, enum.Enum):
            yield value.name
            yield from self._value(type(value))
        elif type(value) is type and issubclass(value, tuple) and hasattr(value, "_fields"):  # a NamedTuple class
            yield f"{value.__qualname__} {value._fields}"
        elif isinstance(value, types.Type) and _is_versioned(type(value)) and " at 0x" not in str(value):
            yield f"{type(value).__name__} {value}"
        elif _is_versioned(value):
            yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '') or value.__name__}"
        elif is_jitted(value):
            yield from self._once(value, self._dispatcher)
        elif isinstance(value, FunctionType):
            yield from self._once(value, self._function)
        else:
            raise _UndescribableError


def global_names(code: CodeType) -> set[str]:
    """Return the names of globals that a function's code, or code nested in it, reads."""
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _is_versioned(value: Any) -> bool:
    """Return whether a package of `_VERSIONED` has this value, and has it under the name that the value says."""
    if isinstance(value, ModuleType):
        return _is_part(value.__name__)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return _is_part(module) and getattr(sys.modules.get(str(module)), name or "", None) is value


def _is_part(module: Any) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in _VERSIONED)


@functools.cache
def _is_of_users(kind: type) -> bool:
    """Return whether a template of numba's, which types what code calls or looks up, is registered by a user."""
    # numba's decorators make classes.
    made = [item for base in kind.__mro__ if not _is_versioned(base) for item in vars(base).items()]
    functions = [inspect.unwrap(item) for name, item in made if name != "key" and callable(item)]
    cells = [cell for item in functions for cell in getattr(item, "__closure__", None) or ()]
    parts = [*kind.__mro__, *functions, *(cell.cell_contents for cell in cells)]
    modules = {getattr(part, "__module__", None) for part in parts} - {None, "abc"}
    return not all(map(_is_part, modules))
