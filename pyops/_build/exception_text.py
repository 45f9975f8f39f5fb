"""Exceptions of machine code without Python: text in place of pickled classes and of boxed values.

``runtime.c`` puts the values that are known only at run time in the place of ``VALUE`` and ``REPR``.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

from llvmlite import ir

VALUE, REPR = "\1", "\2"

_PICKLED = re.compile(r'^(@"?\.const\.pickledata\.[0-9a-f]+[.\d]*"? = .*?)\[\d+ x i8\] c"(.*?)"(.*)$', re.MULTILINE)
# numba makes a tuple of an exception's values in a function of its own.
_UNWRAP = re.compile(
    r"^(define [^\n]*@__excinfo_unwrap_args\w+\([^\n]*)(\)[^\n]*\{\n)(.*?)^\}", re.MULTILINE | re.DOTALL
)
_SAID = {
    "PyBool_FromLong": "bool",
    "PyFloat_FromDouble": "float",
    "PyLong_FromLongLong": "int",
    "PyLong_FromUnsignedLongLong": "unsigned",
    "PyUnicode_FromKindAndData": "text",
}
_BOXED = re.compile(rf"%\S+ = (?:tail )?call ptr @({'|'.join(_SAID)})\(")
_PYTHON = re.compile(r"^.*@(?:PyErr_SetString|PyObject_Hash|PyTuple_Pack)\(.*\n", re.MULTILINE)
_ENVIRONMENT = re.compile(r"load ptr, ptr @_ZN08NumbaEnv.*")


def spelled(module: str) -> str:
    """Return a module, as LLVM assembly, whose exceptions are text."""
    module, count = _UNWRAP.subn(_say_values, _PICKLED.sub(_spell_constant, module))
    if count:
        module += "".join(
            f"declare void @pyops_say_{kind}(ptr, {parameters})\n"
            for kind, parameters in _PARAMETERS.items()
            if f"@pyops_say_{kind}(" in module
        )
    return module


_PARAMETERS = {"bool": "i64", "float": "double", "int": "i64", "unsigned": "i64", "text": "i32, ptr, i64"}


def _say_values(match: re.Match[str]) -> str:
    """Make the function call ``runtime.c`` instead of Python for each value."""
    body = _BOXED.sub(lambda call: f"call void @pyops_say_{_SAID[call[1]]}(ptr %said, ", _PYTHON.sub("", match[3]))
    body = re.sub(r"ret ptr .*", "ret ptr null", _ENVIRONMENT.sub("bitcast ptr %said to ptr", body))
    return f"{match[1]}, ptr %said{match[2]}{body}}}"


def _spell_constant(match: re.Match[str]) -> str:
    escaped = re.compile(r"\\(\\|[0-9A-F]{2})")
    data = escaped.sub(lambda code: "\\" if code[1] == "\\" else chr(int(code[1], 16)), match[2]).encode("latin-1")
    raised = pickle.loads(data)
    if not (isinstance(raised, tuple) and len(raised) == 3 and isinstance(raised[0], type)):
        return match[0]  # part of something that needs the interpreter anyway
    text = (_text(*raised) + "\0").encode()
    spelled = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text)
    return f'{match[1]}[{len(text)} x i8] c"{spelled}"{match[3]}'


def _text(kind: Any, args: Any, where: tuple[str, str, int] | None) -> str:
    given = [None if isinstance(arg, ir.Value) else arg for arg in args or ()]
    if len(given) == 1:
        message = VALUE if given[0] is None else str(given[0])
    else:
        message = f"({', '.join(REPR if arg is None else repr(arg) for arg in given)})" if given else ""
    line = f" ({Path(where[1]).name}:{where[2]}, in {where[0].rpartition('.')[2]})" if where else ""
    return f"{getattr(kind, '__name__', kind)}{': ' * bool(message)}{message}{line}".replace("\0", "\\0")
