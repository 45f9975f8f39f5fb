"""Exceptions of machine code without Python: text in place of pickled classes, and of values that are boxed.

``runtime.c`` puts the values that are known only at run time in the place of ``VALUE`` and ``REPR``.
"""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import callconv, cgutils

VALUE, REPR = "\1", "\2"

_PICKLED = re.compile(r'^(@"?\.const\.pickledata\.[0-9a-f]+[.\d]*"? = .*?)\[\d+ x i8\] c"(.*?)"(.*)$', re.MULTILINE)


def spelled(module: str) -> str:
    """Return a module, as LLVM's text, whose exceptions are texts."""
    return _PICKLED.sub(_spell_constant, module)


def _spell_constant(match: re.Match[str]) -> str:
    escaped = re.compile(r"\\(\\|[0-9A-F]{2})")
    data = escaped.sub(lambda code: "\\" if code[1] == "\\" else chr(int(code[1], 16)), match[2]).encode("latin-1")
    raised = pickle.loads(data)
    if not (isinstance(raised, tuple) and len(raised) == 3 and isinstance(raised[0], type)):
        return match[0]  # of something that needs the interpreter anyway
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


@contextmanager
def said_in_c() -> Iterator[None]:
    """Have numba emit calls of ``runtime.c`` for the values of an exception, in place of calls of Python."""
    # numba also makes machine code for this process, which nobody runs.
    nowhere = ctypes.cast(ctypes.CDLL(None)["abort"], ctypes.c_void_p).value
    for kind in ("bool", "int", "float", "text", "nothing"):
        llvm.add_symbol(f"pyops_say_{kind}", nowhere)
    original = callconv.CPUCallConv.emit_unwrap_dynamic_exception_fn
    callconv.CPUCallConv.emit_unwrap_dynamic_exception_fn = _emit
    try:
        yield
    finally:
        callconv.CPUCallConv.emit_unwrap_dynamic_exception_fn = original


def _emit(self: Any, module: Any, st_type: Any, nb_types: Any) -> Any:
    name = f"pyops_say_{hashlib.sha1(str((st_type, nb_types)).encode()).hexdigest()}"
    if name in module.globals:
        return module.globals[name]
    pointer = ir.IntType(8).as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, pointer]), name)
    function.linkage = "linkonce_odr"
    builder = ir.IRBuilder(function.append_basic_block())
    values = builder.load(builder.bitcast(function.args[0], st_type.as_pointer()))
    for i, kind in enumerate(kind for kind in nb_types if kind is not None):
        said, given = _say(self.context, builder, kind, builder.extract_value(values, i))
        kinds = [pointer, *(value.type for value in given)]
        say = cgutils.get_or_insert_function(module, ir.FunctionType(ir.VoidType(), kinds), f"pyops_say_{said}")
        builder.call(say, [function.args[1], *given])
        self.context.nrt.decref(builder, kind, builder.extract_value(values, i))  # as boxing it does
    builder.ret_void()
    return function


def _say(context: Any, builder: Any, kind: Any, value: Any) -> tuple[str, list[Any]]:
    """Return the function of ``runtime.c`` that says a value, and its arguments."""
    if isinstance(types.unliteral(kind), types.Boolean):
        return "bool", [context.cast(builder, value, kind, types.int64)]
    if isinstance(kind, types.Integer):
        return "int", [context.cast(builder, value, kind, types.int64)]
    if isinstance(kind, types.Float):
        return "float", [context.cast(builder, value, kind, types.float64)]
    if isinstance(kind, types.UnicodeType):
        text = cgutils.create_struct_proxy(kind)(context, builder, value=value)
        # numba's kinds are those of Python's str: bytes for each character
        return "text", [text.data, text.length, text.kind]
    return "nothing", []
