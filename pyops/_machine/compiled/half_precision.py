"""float16 and bfloat16 in compiled code: their values are float32, and have 16 bits in memory.

numba converts a value where it loads or stores it, so everything that it has for float32 applies to an element that is
loaded. A store rounds once, to the nearest value, or of two equally near to the even one, as ONNX Runtime's casts do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.imputils import lower_cast
from numba.core.registry import cpu_target
from numba.core.typeconv import Conversion
from numba.core.typing.context import BaseContext
from numba.core.typing.typeof import typeof_impl
from numba.extending import register_model
from numba.np import arraymath
from numba.np.ufunc.dufunc import DUFunc

from .intrinsics import for_compiled_code, overload

_WORD, _BITS, _HALF, _SINGLE = ir.IntType(16), ir.IntType(32), ir.HalfType(), ir.FloatType()


class Narrow(types.Float):  # type: ignore[misc]  # numba has no types
    """numba's type of elements that are float32 as values, and float16 or bfloat16 in memory.

    Parameters
    ----------
    name : str
        ``"float16"`` or ``"bfloat16"``.
    by_instruction : bool
        Whether the target machine has instructions that convert them.
    """

    def __init__(self, name: str, by_instruction: bool) -> None:
        types.Number.__init__(self, name=f"{name} as float32{' by instruction' * by_instruction}")
        self.bitwidth = 16
        self.half = name
        self.conversions = _CONVERSIONS[name, by_instruction]

    def __str__(self) -> str:
        return "float32"  # the dtype for which numba looks up ufuncs

    def cast_python_value(self, value: Any) -> Any:
        """Return a number of Python's as a constant."""
        return np.float32(value)

    def can_convert_to(self, typingctx: Any, other: Any) -> Any:
        """Return how numba may convert a value, as it may a float32."""
        conversion = typingctx.can_convert(types.float32, other)
        return Conversion.promote if conversion == Conversion.exact else conversion

    def can_convert_from(self, typingctx: Any, other: Any) -> Any:
        """Return how numba may convert to this type."""
        return None if typingctx.can_convert(other, types.float32) is None else Conversion.unsafe


@register_model(Narrow)
class _NarrowModel(models.PrimitiveModel):  # type: ignore[misc]  # numba has no types
    def __init__(self, manager: Any, kind: Narrow) -> None:
        super().__init__(manager, kind, _SINGLE)

    def get_data_type(self) -> Any:
        return _WORD

    def as_data(self, builder: Any, value: Any) -> Any:
        return self.fe_type.conversions[0](builder, value)

    def from_data(self, builder: Any, value: Any) -> Any:
        return self.fe_type.conversions[1](builder, value)


def _narrow_by_instruction(builder: Any, value: Any) -> Any:
    return builder.bitcast(builder.fptrunc(value, _HALF), _WORD)


def _widen_by_instruction(builder: Any, value: Any) -> Any:
    return builder.fpext(builder.bitcast(value, _HALF), _SINGLE)


def _half_of(builder: Any, value: Any) -> Any:
    bits = builder.bitcast(value, _BITS)
    sign, size = builder.and_(builder.lshr(bits, _BITS(16)), _BITS(0x8000)), builder.and_(bits, _BITS(0x7FFFFFFF))
    # The exponent of float16 has another bias.
    normal = builder.lshr(_rounded(builder, builder.sub(size, _BITS(112 << 23)), 13), _BITS(13))
    # Adding 0.5 rounds to a multiple of 2**-24, the smallest subnormal, which the lowest bits then count.
    sum_ = builder.fadd(builder.bitcast(size, _SINGLE), _SINGLE(0.5))
    subnormal = builder.sub(builder.bitcast(sum_, _BITS), _BITS(126 << 23))
    nan = builder.or_(builder.and_(builder.lshr(size, _BITS(13)), _BITS(0x3FF)), _BITS(0x7E00))
    found = builder.select(builder.icmp_unsigned("<", size, _BITS(113 << 23)), subnormal, normal)
    found = builder.select(builder.icmp_unsigned(">=", size, _BITS(0x477FF000)), _BITS(0x7C00), found)
    found = builder.select(builder.icmp_unsigned(">", size, _BITS(0x7F800000)), nan, found)
    return builder.trunc(builder.or_(found, sign), _WORD)


def _single_of_half(builder: Any, value: Any) -> Any:
    bits = builder.zext(value, _BITS)
    sign, size = builder.shl(builder.and_(bits, _BITS(0x8000)), _BITS(16)), builder.and_(bits, _BITS(0x7FFF))
    shifted = builder.shl(size, _BITS(13))
    normal = builder.add(shifted, _BITS(112 << 23))
    quiet = builder.select(builder.icmp_unsigned(">", size, _BITS(0x7C00)), _BITS(1 << 22), _BITS(0))
    special = builder.or_(builder.add(normal, _BITS(112 << 23)), quiet)  # infinity and NaN
    # The exponent 1 of float16 adds 2**-14 to a subnormal.
    above = builder.bitcast(builder.add(normal, _BITS(1 << 23)), _SINGLE)
    subnormal = builder.bitcast(builder.fsub(above, _SINGLE(2.0**-14)), _BITS)
    found = builder.select(builder.icmp_unsigned("<", size, _BITS(0x400)), subnormal, normal)
    found = builder.select(builder.icmp_unsigned(">=", size, _BITS(0x7C00)), special, found)
    return builder.bitcast(builder.or_(found, sign), _SINGLE)


def _brain_of(builder: Any, value: Any) -> Any:
    bits = builder.bitcast(value, _BITS)
    is_nan, quiet = builder.fcmp_unordered("uno", value, value), builder.or_(bits, _BITS(1 << 22))
    found = builder.select(is_nan, quiet, _rounded(builder, bits, 16))
    return builder.trunc(builder.lshr(found, _BITS(16)), _WORD)


def _single_of_brain(builder: Any, value: Any) -> Any:
    return builder.bitcast(builder.shl(builder.zext(value, _BITS), _BITS(16)), _SINGLE)


def _rounded(builder: Any, bits: Any, count: int) -> Any:
    """Round bits, all but the lowest `count`, to the nearest value, or of two equally near to the even one.

    The lowest bits of the result are to be dropped.

    If the value below is odd, the lowest bit is set, so that half of the distance between two counts as more. This
    takes one operation fewer than an addition.
    """
    odd = builder.and_(builder.lshr(bits, _BITS(count)), _BITS(1))
    return builder.add(builder.or_(bits, odd), _BITS((1 << count - 1) - 1))


_CONVERSIONS: dict[tuple[str, bool], tuple[Callable[..., Any], Callable[..., Any]]] = {
    ("float16", True): (_narrow_by_instruction, _widen_by_instruction),
    ("float16", False): (_half_of, _single_of_half),
    ("bfloat16", False): (_brain_of, _single_of_brain),
}


@functools.cache
def _has_instructions(machine: Any) -> bool:
    """Return whether a target machine converts float16 itself: LLVM calls a function of its runtime elsewhere."""
    code = "define half @f(float %x) {\n %y = fptrunc float %x to half\n ret half %y\n}"
    return "__truncsfhf2" not in machine.emit_assembly(llvm.parse_assembly(code))


@dataclass(frozen=True)
class HalfPrecision:
    """What stands for ``np.float16`` and ``ml_dtypes.bfloat16`` in compiled code, whose type depends on the machine."""

    name: str


def _number_class(value: HalfPrecision, context: Any) -> Any:
    machine = cpu_target.target_context.codegen()._tm
    return types.NumberClass(Narrow(value.name, value.name == "float16" and _has_instructions(machine)))


typeof_impl.register(HalfPrecision)(_number_class)


def _cast_from(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    return context.cast(builder, value, types.float32, wanted)


def _cast_to(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    return context.cast(builder, value, given, types.float32)


for _kind in (types.Float, types.Integer, types.IntegerLiteral, types.Boolean, types.Complex):
    lower_cast(Narrow, _kind)(_cast_from)
    lower_cast(_kind, Narrow)(_cast_to)
lower_cast(Narrow, Narrow)(lambda context, builder, given, wanted, value: value)


def _as_value(kind: Any) -> Any:
    return types.float32 if isinstance(kind, Narrow) else kind


_numbas_type, _numbas_accumulator = BaseContext.resolve_function_type, arraymath.get_ret_dtype_if_any


def _resolve(self: Any, function: Any, args: Any, kws: Any) -> Any:
    """Type a call as one of float32: an element has no other type where it is a value."""
    given = {name: _as_value(kind) for name, kind in dict(kws).items()}
    found = _numbas_type(self, function, tuple(map(_as_value, args)), given)
    return found.replace(return_type=_as_value(found.return_type)) if found else found


def _of_values(numbas: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of ``numba.vectorize``'s functions that takes the types of elements."""
    return lambda self, kinds, *rest: numbas(self, tuple(map(_as_value, kinds)), *rest)


@for_compiled_code
def _widened(array: Any) -> Any:
    if isinstance(array.dtype, Narrow):
        return lambda array: array.astype(np.float32)
    return lambda array: array


def _product(numbas: Callable[..., Any]) -> Callable[..., Any]:
    """Return the typing of a product that is computed by BLAS, which knows float32."""

    def typed(a: Any, b: Any) -> Any:
        if any(isinstance(getattr(kind, "dtype", None), Narrow) for kind in (a, b)):
            return lambda a, b: numbas(_widened(a), _widened(b))
        return None

    return typed


def _finfo(dtype: Any) -> Any:
    kind = getattr(dtype, "dtype", dtype)
    if not isinstance(kind, Narrow):
        return None
    found = ml_dtypes.finfo(kind.half)  # type: ignore[no-untyped-call]  # it has no types
    numbers = [getattr(found, name) for name in arraymath._finfo_supported]
    data = tuple(np.float32(number) if isinstance(number, np.generic) else number for number in numbers)
    return lambda dtype: arraymath.finfo(*data)


def compute_in_float32() -> None:
    """Make numba compute with elements of float16 and bfloat16, and with reductions of them, in float32."""
    BaseContext.resolve_function_type = _resolve
    types.SimpleIteratorType.yield_type = property(lambda self: _as_value(self._yield_type))
    types.Array.literal_type = property(lambda self: self)  # tells numba that an array is not None
    types.ArrayIterator.key = property(lambda self: self.array_type)  # rather than its text, which is that of float32
    for name in ("find_ewise_function", "_compile_for_argtys"):
        setattr(DUFunc, name, _of_values(getattr(DUFunc, name)))
    arraymath.get_ret_dtype_if_any = lambda array, dtype: _as_value(_numbas_accumulator(array, dtype))
    overload(np.finfo, target="cpu")(_finfo)
    for product in (np.dot, np.vdot, operator.matmul):
        overload(product, target="cpu")(_product(product))
