"""Texts of values in compiled code: ``str``, ``repr`` and f-strings, as in the messages of exceptions.

numba formats only integers, bools and strings, writes the type of anything else, and needs more memory than there is
for the lowest integer. Numbers are formatted by the C library, so a library without Python has the same texts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cpython.unicode import _empty_string, _set_code_point
from numba.extending import intrinsic, register_jitable
from numba.np.numpy_support import as_dtype

from ..._support.system import IS_WINDOWS
from ...errors import CompileError
from .intrinsics import for_compiled_code, overload

_WORD, _INT, _BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_SIZE = 64
"""The size of a number's text: less than 16 digits before the point, and less than 24 after it."""


def _printing(notation: str) -> Any:
    @intrinsic
    def printed(typingctx: Any, value: Any, digits: Any) -> Any:
        """Return the address of C's text of a float64, which is valid until the calling function returns."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            digits = builder.trunc(args[1], _INT)
            buffer = cgutils.snprintf_stackbuffer(builder, _SIZE, f"%.*{notation}", digits, args[0])
            return builder.ptrtoint(buffer, _WORD)

        return types.intp(types.float64, types.intp), codegen

    return printed


_scientific, _fixed = _printing("e"), _printing("f")


@intrinsic
def _parsed(typingctx: Any, address: Any) -> Any:
    """Return the float64 whose text is at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.DoubleType(), [_BYTES, _BYTES.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, kind, "strtod")
        return builder.call(function, [builder.inttoptr(args[0], _BYTES), ir.Constant(_BYTES.as_pointer(), None)])

    return types.float64(types.intp), codegen


@intrinsic
def _byte(typingctx: Any, address: Any, index: Any) -> Any:
    """Return the byte at `index` from an address on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(builder.gep(builder.inttoptr(args[0], _BYTES), [args[1]])), _INT)

    return types.uint32(types.intp, types.intp), codegen


@register_jitable
def _text_at(address: Any) -> Any:
    length = 0
    while _byte(address, length) != 0:
        length += 1
    text = _empty_string(1, length, 1)
    for i in range(length):
        _set_code_point(text, i, _byte(address, i))
    return text


@register_jitable
def _text_of_float(value: Any) -> Any:
    """Return the shortest decimal that is this float64, in Python's notation, as f-strings do for a float32 too."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    digits = 0
    while digits < 16 and _parsed(_scientific(value, digits)) != value:
        digits += 1
    address = _scientific(value, digits)
    text = _text_at(address)
    exponent = int(_parsed(address + text.find("e") + 1))
    if -4 <= exponent < 16:
        return _text_at(_fixed(value, max(1, digits - exponent)))
    if IS_WINDOWS:  # whose C library writes three digits of an exponent at least
        start = text.find("e") + 2
        if len(text) == start + 3 and text[start] == "0":
            return text[:start] + text[start + 1 :]
    return text


@register_jitable
def _text_of_integer(value: Any) -> Any:
    rest, ten = np.uint64(value), np.uint64(10)
    if value < 0:
        rest = np.uint64(0) - rest
    power, length = rest // ten, 1 + (value < 0)
    while power != 0:
        power //= ten
        length += 1
    text = _empty_string(1, length, 1)
    for i in range(length - 1, -1, -1):
        _set_code_point(text, i, np.uint32(48 + rest % ten))
        rest //= ten
    if value < 0:
        _set_code_point(text, 0, np.uint32(45))
    return text


@for_compiled_code
def _items(values: Any) -> Any:
    if len(values) == 0:
        return lambda values: ""
    return lambda values: ", " + repr(values[0]) + _items(values[1:])


def _text(object: Any = "") -> Any:
    kind = types.unliteral(object)
    if isinstance(kind, types.Integer):
        return lambda object="": _text_of_integer(object)
    if isinstance(kind, types.Float):
        return lambda object="": _text_of_float(object)
    if isinstance(kind, types.BaseAnonymousTuple):
        end = ",)" if len(kind) == 1 else ")"
        return lambda object="": "(" + _items(object)[2:] + end
    if isinstance(kind, (types.DType, types.NoneType)):
        name = "None" if isinstance(kind, types.NoneType) else str(as_dtype(kind.dtype))
        return lambda object="": name
    if not isinstance(kind, (types.Boolean, types.UnicodeType, types.Omitted)):
        raise CompileError(
            f"machine code cannot format {kind}; write one of its numbers or sizes, or pass it to the "
            "exception: raise ValueError('what is wrong', value)"
        )
    return None


def correct_texts() -> None:
    """Replace numba's ``str`` and ``repr``, which f-strings call."""
    overload(str, target="cpu")(_text)
    overload(repr, target="cpu")(_text)
