"""Exceptions of machine code without Python: text in place of pickled classes, and stand-ins for Python's C API.

``runtime.c`` has these stand-ins, and puts the values that are known only at run time into the text.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

from llvmlite import ir

_PICKLED = re.compile(r'^(@"?\.const\.pickledata\.[0-9a-f]+[.\d]*"? = .*?)\[\d+ x i8\] c"(.*?)"(.*)$', re.MULTILINE)
# With these, numba makes a tuple of an exception's values. Code that needs the interpreter calls others too.
_BOXING = re.compile(
    r"@(_Py_NoneStruct|Py_IncRef|PyBool_FromLong|PyComplex_FromDoubles|PyFloat_FromDouble|PyList_New|PyList_SetItem"
    r"|PyLong_FromLongLong|PyLong_FromUnsignedLongLong|PyObject_Hash|PyTuple_New|PyTuple_Pack|PyTuple_SetItem"
    r"|PyUnicode_FromKindAndData|numba_unpickle)\b"
)
# Before that, it looks whether Python's objects for the function are there, of which these values need none.
_ENVIRONMENT = re.compile(r"load ptr, ptr @_ZN08NumbaEnv[^,\n]*.*")
_NO_ENVIRONMENT = re.compile(r"^.*@PyErr_SetString\(.*\bmissing Environment\b.*\n", re.MULTILINE)


class _Later:
    """A value that is known only at run time: two bytes that are no UTF-8 stand for its text."""

    def __init__(self, number: int) -> None:
        self._number = chr(number)

    def __str__(self) -> str:
        return f"\udcfe{self._number}"

    def __repr__(self) -> str:
        return f"\udcff{self._number}"


def spelled(module: str) -> str:
    """Return a module, as LLVM assembly, whose exceptions are text."""
    module = _NO_ENVIRONMENT.sub("", _PICKLED.sub(_spell_constant, module))
    return _BOXING.sub(r"@pyops_\1", _ENVIRONMENT.sub("inttoptr i64 1 to ptr", module))


def _spell_constant(match: re.Match[str]) -> str:
    escaped = re.compile(r"\\(\\|[0-9A-F]{2})")
    data = escaped.sub(lambda code: "\\" if code[1] == "\\" else chr(int(code[1], 16)), match[2]).encode("latin-1")
    raised = pickle.loads(data)
    is_exception = isinstance(raised, tuple) and len(raised) == 3 and isinstance(raised[0], type)
    texts = [_text(*raised)] if is_exception else [str(raised), repr(raised)]  # of a constant among the values
    text = "".join(part.replace("\0", "\\0") + "\0" for part in texts).encode(errors="surrogateescape")
    spelled = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text)
    return f'{match[1]}[{len(text)} x i8] c"{spelled}"{match[3]}'


def _text(kind: Any, args: Any, where: tuple[str, str, int] | None) -> str:
    args = list(args or ())
    later = [i for i, arg in enumerate(args) if isinstance(arg, ir.Value)]
    for number, i in enumerate(later, 1):
        args[i] = _Later(number)
    try:
        raised = kind(*args)
        name, message = type(raised).__name__, str(raised)
    except Exception:  # from the user's class, which may need the values
        name, message = kind.__name__, str(Exception(*args))
    line = f" ({Path(where[1]).name}:{where[2]}, in {where[0].rpartition('.')[2]})" if where else ""
    return f"{name}{': ' * bool(message)}{message}{line}"
