"""Corrections of numba's code, so that compiled code gives NumPy's numbers.

They hold for all that this process compiles from the first compiled kernel on. numba looks up code for operators, casts
and ufuncs by their types, and what is registered last for the same types wins.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_cast
from numba.core.targetconfig import ConfigStack
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, _OverloadFunctionTemplate, infer_global
from numba.cpython import numbers
from numba.extending import lower_builtin, register_jitable
from numba.np import arraymath, arrayobj
from numba.np.ufunc_db import get_ufunc_info

from .intrinsics import overload

_OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UFUNCS = (
    "add subtract multiply floor_divide remainder divmod fmod power left_shift right_shift bitwise_and bitwise_or "
    "bitwise_xor gcd lcm maximum minimum"
)


def _without_overflow(divide: Callable[..., Any]) -> Callable[..., Any]:
    """Return numba's code for a division of signed integers, with x / -1 computed as -x / 1.

    If x is the lowest integer, the processor's instruction for x / -1 ends the process.
    """

    def divided(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
        x, y = operands
        negates = builder.icmp_signed("==", y, y.type(-1))
        operands = builder.select(negates, builder.neg(x), x), builder.select(negates, y.type(1), y)
        return divide(context, builder, kind, operands)

    return divided


def _fmod(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    x, y = operands
    return builder.srem(x, builder.select(builder.icmp_signed("==", y, y.type(0)), y.type(1), y))


def _divmod_of_floats(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    parts = (numbers.real_floordiv_impl, numbers.real_mod_impl)
    results = [part(context, builder, kind.return_type[0](*kind.args), operands) for part in parts]
    return context.make_tuple(builder, kind.return_type, results)


def _sign(x: Any) -> Any:
    return (x > 0) - (x < 0)


def _sign_of_float(x: Any) -> Any:
    return math.copysign(1.0, x) if x != 0 and x == x else abs(x)


def _lcm(x: Any, y: Any) -> Any:
    return (abs(x) // np.gcd(x, y) if x != 0 else x) * abs(y)


def _compile(function: Any, context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    return context.compile_internal(builder, function, kind, operands)


def _shift(right: bool) -> Callable[..., Any]:
    """Return code for a shift, also by as many bits as there are or more, which the processor's instruction ignores."""

    def shifted(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
        x, y = (context.cast(builder, *item, kind.return_type) for item in zip(operands, kind.args, strict=True))
        bits = kind.return_type.bitwidth
        possible = builder.icmp_unsigned("<", y, y.type(bits))  # a negative number of bits is a large one
        if right and kind.return_type.signed:
            return builder.ashr(x, builder.select(possible, y, y.type(bits - 1)))
        return builder.select(possible, (builder.lshr if right else builder.shl)(x, y), x.type(0))

    return shifted


def _multiplied(x: Any, y: Any) -> Any:
    result, one = np.uint64(1), np.uint64(1)
    while y != 0:
        if y & one:
            result *= x
        x *= x
        y >>= one
    return result


def _power(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    """Compute the power of an integer in integers, which numba computes in float64 for large exponents."""
    y = kind.args[1]
    if isinstance(y, types.IntegerLiteral) and 0 <= y.literal_value <= 0x10000:
        return numbers.static_power_impl(context, builder, kind, operands)
    wide = types.uint64
    words = [context.cast(builder, *item, wide) for item in zip(operands, kind.args, strict=True)]
    if y.signed:
        with builder.if_then(builder.icmp_signed("<", words[1], words[1].type(0)), likely=False):
            text = "Integers to negative integer powers are not allowed."  # NumPy's
            context.call_conv.return_user_exc(builder, ValueError, (text,))
    result = context.compile_internal(builder, _multiplied, wide(wide, wide), words)
    return context.cast(builder, result, wide, kind.return_type)


def _power_of_float(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    """Compute the power of a float by numba's code, but as 1 / x**-y if y is a negative integer.

    For these, numba's code raises where x is 0, and where y is the lowest integer.
    """
    x, y = kind.args
    if isinstance(y, types.IntegerLiteral):
        positive = signature(kind.return_type, x, types.literal(abs(y.literal_value)))
        result = numbers.static_power_impl(context, builder, positive, operands)
        return builder.fdiv(result.type(1), result) if y.literal_value < 0 else result
    value = operands[1]
    negative = builder.icmp_signed("<", value, value.type(0)) if y.signed else cgutils.false_bit
    size = context.cast(builder, builder.select(negative, builder.neg(value), value), y, types.uint64)
    positive = signature(kind.return_type, x, types.uint64)
    result = numbers.int_power_impl(context, builder, positive, (operands[0], size))
    return builder.select(negative, builder.fdiv(result.type(1), result), result)


def _hypot_of_integers(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
    floats = [context.cast(builder, *item, types.float64) for item in zip(operands, kind.args, strict=True)]
    wide = signature(types.float64, types.float64, types.float64)
    return context.get_function(math.hypot, wide)(builder, floats)


def _integer_of_float(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    """Cast a float, also NaN, a negative or a large one, as C compilers for x86-64 do, and so NumPy."""
    bits, width = wanted.bitwidth, wanted.bitwidth if wanted.signed else 2 * wanted.bitwidth
    result = builder.fptosi(value, ir.IntType(min(64, max(32, width))))
    if bits == 64 and not wanted.signed:
        half = value.type(2.0**63)
        rest = builder.xor(builder.fptosi(builder.fsub(value, half), result.type), result.type(1 << 63))
        return builder.select(builder.fcmp_ordered(">=", value, half), rest, result)
    return builder.trunc(result, ir.IntType(bits)) if bits < result.type.width else result


_numbas_decorator = _OverloadFunctionTemplate._get_jit_decorator
_numbas_sizes, _numbas_median = map(register_jitable, (arrayobj.normalize_reshape_value, arraymath._median_inner))


def _normalize_sizes(size: Any, shape: Any) -> None:
    unknown = empty = False
    for n in shape:
        unknown |= n < 0
        empty |= n == 0
    if unknown and empty:
        raise ValueError("cannot reshape array of size 0 into a shape with -1 and 0: any size would do for -1")
    _numbas_sizes(size, shape)


def _median(a: Any) -> Any:
    if not isinstance(a, types.Array) or not isinstance(a.dtype, types.Float):
        return None

    def median(a: Any) -> Any:
        values = a.flatten()
        for value in values:
            if value != value:
                return value
        return _numbas_median(values, values.size) if values.size else a.dtype.type(np.nan)

    return median


overload(np.median, target="cpu")(_median)  # rather than numba's own, which compares NaN


def _flat(numbas: Callable[..., Any]) -> Callable[..., Any]:
    """Return numba's code for an index of ``x.flat``, with negative ones from the end, and bounds checked in debug."""

    def indexed(context: Any, builder: Any, kind: Any, operands: Any) -> Any:
        (flat, index, *value), (flats, given, *rest) = operands, kind.args
        size = arrayobj.iternext_numpy_getitem_flat(context, builder, types.intp(flats), (flat,))
        index = arrayobj.fix_integer_index(context, builder, given, index, size)
        if context.enable_boundscheck:
            cgutils.do_boundscheck(context, builder, index, size)
        return numbas(context, builder, kind.return_type(flats, types.intp, *rest), (flat, index, *value))

    return indexed


def _get_decorator(self: Any) -> Any:
    """Return numba's decorator for the code of an overload, which checks bounds if the calling function does."""
    flags = ConfigStack.top_or_none()  # of the function that is being compiled
    return functools.partial(_numbas_decorator(self), boundscheck=flags is not None and flags.boundscheck)


class _WithLiteral(AbstractTemplate):  # type: ignore[misc]  # numba has no types
    """An operator or ufunc of uint64 and a number in the code, which is uint64 too; to numba it is int64."""

    prefer_literal = True
    metadata: ClassVar = {"target": "cpu"}  # rather than numba's own

    def generic(self, args: Any, kws: Any) -> Any:
        literals = [isinstance(arg, types.IntegerLiteral) and arg.literal_value >= 0 for arg in args]
        others = [getattr(arg, "dtype", arg) for arg, literal in zip(args, literals, strict=True) if not literal]
        if any(literals) and set(others) == {types.uint64}:
            own = [types.uint64 if literal else arg for arg, literal in zip(args, literals, strict=True)]
            return self.context.resolve_function_type(self.key, own, kws)
        return None


def correct_numbers() -> None:
    """Replace numba's code for operators, casts, ufuncs and indices of ``x.flat``.

    It gives 0 for the lowest integer // -1, takes negative integers as unsigned ones in ``np.fmod`` and unsigned ones
    as signed ones in ``np.sign``, rounds uint64 to float64 in ``np.lcm``, and floors the rounded quotient in
    ``np.floor_divide`` of floats. The code of its overloads checks no bounds, whatever the calling function does.
    """
    signed, integers, floats = "bhilq", "bhilqBHILQ", "fd"
    for ufunc, kinds, correct in (
        (np.floor_divide, signed, _without_overflow),
        (np.remainder, signed, _without_overflow),
        (np.divmod, signed, _without_overflow),
        (np.fmod, signed, lambda numbas: _without_overflow(_fmod)),
        (np.sign, integers, lambda numbas: functools.partial(_compile, _sign)),
        (np.sign, floats, lambda numbas: functools.partial(_compile, _sign_of_float)),
        (np.lcm, integers, lambda numbas: functools.partial(_compile, _lcm)),
        (np.left_shift, integers, lambda numbas: _shift(right=False)),
        (np.right_shift, integers, lambda numbas: _shift(right=True)),
        (np.power, integers, lambda numbas: _power),
        (np.floor_divide, floats, lambda numbas: numbers.real_floordiv_impl),
        (np.remainder, floats, lambda numbas: numbers.real_mod_impl),
        (np.divmod, floats, lambda numbas: _divmod_of_floats),
    ):
        loops = get_ufunc_info(ufunc)
        loops |= {loop: correct(numbas) for loop, numbas in loops.items() if loop[0] in kinds}
    operators = numbers.int_divmod_signed
    divmod_ = _without_overflow(lambda context, builder, kind, operands: operators(context, builder, kind, *operands))
    numbers.int_divmod_signed = lambda context, builder, kind, *operands: divmod_(context, builder, kind, operands)
    for name, code in (("lshift", _shift(right=False)), ("rshift", _shift(right=True)), ("pow", _power)):
        for kind in (types.Integer, types.IntegerLiteral):
            for symbol in (getattr(operator, name), getattr(operator, f"i{name}")):
                lower_builtin(symbol, types.Integer, kind)(code)
    lower_builtin(math.hypot, types.uint64, types.uint64)(_hypot_of_integers)
    for kind in (*types.integer_domain, types.IntegerLiteral):
        for symbol in (operator.pow, operator.ipow):
            lower_builtin(symbol, types.Float, kind)(_power_of_float)
    lower_cast(types.Float, types.Integer)(_integer_of_float)
    lower_builtin(operator.getitem, types.NumpyFlatType, types.Integer)(_flat(arrayobj.iternext_numpy_getitem))
    write = arrayobj.iternext_numpy_getitem_any
    lower_builtin(operator.setitem, types.NumpyFlatType, types.Integer, types.Any)(_flat(write))
    _OverloadFunctionTemplate._get_jit_decorator = _get_decorator
    arrayobj.normalize_reshape_value = _normalize_sizes
    names = (*_OPERATORS, *(f"i{name}".rstrip("_") for name in _OPERATORS), *_COMPARISONS)
    symbols = [getattr(operator, name) for name in names]
    for symbol in (*symbols, divmod, *(getattr(np, name) for name in _UFUNCS.split())):
        # Not as a decorator, which needs the module of the symbol: ufuncs of NumPy 2.0 have none.
        infer_global(symbol, types.Function(type("_OfSymbol", (_WithLiteral,), {"key": symbol})))
