"""What the machine code of a function depends on, as a digest that is the same in every process."""

from __future__ import annotations

import dis
import enum
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# Their versions are part of every key, or they are built into Python.
_VERSIONED = {"numpy", "numba", "math", "cmath", "builtins", "operator", "pyops"}


def fingerprint(function: Callable[..., Any]) -> str | None:
    """A digest of a function's code and of all that it refers to; None where some of it has no lasting description."""
    try:
        text = "\n".join(_function(function, set()))
    except _UndescribableError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


class _UndescribableError(Exception):
    pass


def _function(function: Any, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:  # a recursive function
        return
    seen.add(id(function))
    code = function.__code__
    # Exceptions name the file and the line; IPython's files lie in a folder of the process's own.
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
    """The global names that a function's code, or code inside it, reads."""
    names = {item.argval for item in dis.get_instructions(code) if item.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*(global_names(item) for item in code.co_consts if isinstance(item, CodeType)))


def _value(value: Any, seen: set[int]) -> Iterator[str]:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, enum.Enum, np.generic, np.dtype)):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, (tuple, list)):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _value(item, seen)
    elif isinstance(value, np.ndarray) and value.dtype != np.object_:
        yield f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, ModuleType):
        yield _module(value)
    elif isinstance(getattr(value, "py_func", None), FunctionType):  # compiled by numba
        yield repr(sorted(getattr(value, "targetoptions", {}).items()))
        yield from _function(value.py_func, seen)
    elif isinstance(value, (type, BuiltinFunctionType, np.ufunc)) or _is_versioned(value):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
        yield repr(getattr(value, "_fields", ""))
    elif isinstance(value, FunctionType):
        yield from _function(value, seen)
    else:
        raise _UndescribableError


def _is_versioned(value: Any) -> bool:
    return str(getattr(value, "__module__", None)).partition(".")[0] in _VERSIONED


def _module(module: ModuleType) -> str:
    if module.__name__.partition(".")[0] in _VERSIONED:
        return module.__name__
    file = getattr(module, "__file__", None)
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and Path(file).exists() else ""
    return f"{module.__name__} {digest}"
