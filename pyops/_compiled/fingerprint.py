"""Digests of everything that a function's machine code depends on, stable between processes."""

from __future__ import annotations

import dis
import enum
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# Packages that are not inspected: their versions are part of every key, or they are part of Python.
_VERSIONED = {"numpy", "numba", "math", "cmath", "builtins", "operator", "pyops"}


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Return a digest of a function and all that it refers to; None if some of that cannot be described."""
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
    # Constants too, since one may be the name given to getattr.
    read = {name for part in _parts(code) for name in (*part.co_names, *part.co_consts) if isinstance(name, str)}
    names = tuple(sorted(read))
    for name in sorted(global_names(code)):
        if name in function.__globals__:
            yield f"global {name}"
            yield from _value(function.__globals__[name], seen, names)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield f"cell {name}"
        try:
            yield from _value(cell.cell_contents, seen, names)
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
    read = (item for part in _parts(code) for item in dis.get_instructions(part))
    return {item.argval for item in read if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _value(value: Any, seen: set[Any], names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a description of a value; for a module, of its attributes with these names."""
    if isinstance(value, enum.Enum):
        yield value.name
        yield from _value(type(value), seen)
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic, np.dtype)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list)):
        yield f"{type(value).__name__} {len(value)} {getattr(value, '_fields', '')}"
        for item in value:
            yield from _value(item, seen)
    elif isinstance(value, np.ndarray) and value.dtype != np.object_:
        yield f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, ModuleType):
        yield from _module(value, seen, names)
    elif isinstance(getattr(value, "py_func", None), FunctionType):  # compiled by numba
        yield repr(sorted(getattr(value, "targetoptions", {}).items()))
        yield from _function(value.py_func, seen)
    elif isinstance(value, (BuiltinFunctionType, np.ufunc)) or type(value) is type or _is_versioned(value):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
        yield repr(getattr(value, "_fields", ""))
    elif isinstance(value, enum.EnumMeta):
        members: Mapping[str, enum.Enum] = value.__members__
        for name, member in members.items():
            yield f"{value.__qualname__}.{name}"
            yield from _value(member.value, seen)
    elif isinstance(value, FunctionType):
        yield from _function(value, seen)
    else:
        raise _UndescribableError


def _is_versioned(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return str(name).partition(".")[0] in _VERSIONED


def _module(module: ModuleType, seen: set[Any], names: tuple[str, ...]) -> Iterator[str]:
    yield module.__name__
    if _is_versioned(module) or (id(module), names) in seen:
        return
    seen.add((id(module), names))
    for name in names:
        if hasattr(module, name):
            yield f"attribute {name}"
            yield from _value(getattr(module, name), seen, names)
