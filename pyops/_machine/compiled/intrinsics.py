"""What compiled code needs beyond numba's Python: memory access and calls by address, and catching exceptions.

Everything that depends on internals of numba and Python is here. Addresses are passed to compiled code at run time, so
that it contains none and can be cached on disk.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic

INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Numba options for functions that only compiled code calls."""

overload = functools.partial(extending.overload, strict=False)
"""A decorator for what compiled code calls in place of a function; parameter names may differ."""


def for_compiled_code(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that only compiled code can call; the decorated one returns its implementation for types."""

    @functools.wraps(typed)
    def called(*args: Any) -> Any:
        raise NotImplementedError("for compiled code")

    overload(called)(typed)
    return called


_WORD = ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()

# numba counts the functions that a process compiles, and puts the count into their symbols. Code from the disk cache
# brings symbols of another process, and a function of the same name and count would be linked to that code.
FunctionIdentity._unique_ids = iter(functools.partial(secrets.randbits, 62), None)


class _NarrowLower(Lower):  # type: ignore[misc]  # numba has no types
    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # llvmlite's own `add` accepts only attributes without a value.
        set.add(self.function.attributes, '"prefer-vector-width"="256"')


@register_pass(mutates_CFG=True, analysis_only=False)
class _NarrowLowering(NativeLowering):  # type: ignore[misc]  # numba has no types
    _name = "pyops_narrow_lowering"
    lowering_class = _NarrowLower


class NarrowVectors(CompilerBase):  # type: ignore[misc]  # numba has no types
    """A numba ``pipeline_class`` for loops over vectors of at most 256 bits.

    Where LLVM prefers 512 bits (AMD's Zen 4 and 5), each access to an array that does not begin at a multiple of
    64 bytes, as NumPy's do not, touches two cache lines.
    """

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's pipeline, with its own lowering pass replaced."""
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (_NarrowLowering if made is NativeLowering else made, name) for made, name in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


@intrinsic
def scratch(typingctx: Any, count: Any) -> Any:
    """Return the address of `count` words of zeros (`count` is a constant).

    The memory is valid until the calling function returns.
    """
    if not isinstance(count, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = ir.Constant(_WORD, count.literal_value)
        memory = cgutils.alloca_once(builder, _WORD, size)
        cgutils.memset(builder, memory, ir.Constant(_WORD, 8 * count.literal_value), 0)
        return builder.ptrtoint(memory, _WORD)

    return types.intp(count), codegen


@intrinsic
def load(typingctx: Any, address: Any, index: Any) -> Any:
    """Return the word at `index` from `address` on."""
    return _loaded(types.intp, _WORD)


@intrinsic
def load_float(typingctx: Any, address: Any, index: Any) -> Any:
    """Return the float64 at `index` from `address` on."""
    return _loaded(types.float64, ir.DoubleType())


def _loaded(result: Any, kind: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(args[0], kind.as_pointer()), [args[1]]))

    return result(types.intp, types.intp), codegen


@intrinsic
def store(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Write the word at `index` from `address` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], builder.gep(builder.inttoptr(args[0], _WORD.as_pointer()), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def move_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes from `source` to `target`, which may overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, at = (builder.inttoptr(address, _POINTER) for address in args[:2])
        cgutils.raw_memmove(builder, to, at, args[2], ir.Constant(_WORD, 1))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def in_register(typingctx: Any, value: Any) -> Any:
    """Return a floating-point constant, and make a loop that needs it keep it in a register.

    LLVM loads known constants from memory in each iteration. An empty assembler instruction hides that this is a
    constant. A floating-point register is "w" on AArch64, where "x" is one of 128 bits, and "x" on x86-64, which has no
    "w"; LLVM takes the first that there is.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(args[0].type, [args[0].type])
        empty = ir.InlineAsm(kind, "", "=wx,0", side_effect=False)
        return builder.call(empty, args, attrs=("nounwind", "readnone"))

    return value(value), codegen


@intrinsic
def call(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at `address` with a tuple of words; return its result, a word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = cgutils.unpack_tuple(builder, args[1])
        function = ir.FunctionType(_WORD, [_WORD] * len(words))
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), words)

    return types.intp(types.intp, types.UniTuple(types.intp, len(arguments))), codegen


@intrinsic
def tuple_at(typingctx: Any, address: Any, count: Any) -> Any:
    """Return the tuple of `count` words (a constant) at `address`."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    kind = types.UniTuple(types.intp, count.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.inttoptr(args[0], _WORD.as_pointer())
        words = [builder.load(builder.gep(first, [ir.Constant(_WORD, i)])) for i in range(kind.count)]
        return context.make_tuple(builder, kind, words)

    return kind(types.intp, count), codegen


@intrinsic
def array_at(typingctx: Any, address: Any, shape: Any, dtype: Any, writeable: Any) -> Any:
    """Return a C-contiguous array on the memory at `address`, which is never freed here."""
    if not isinstance(writeable, types.BooleanLiteral):
        return None
    kind = types.Array(dtype.dtype, len(shape), "C", readonly=not writeable.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from numba.np.arrayobj import make_array, populate_array

        array = make_array(kind)(context, builder)
        item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        dims = cgutils.unpack_tuple(builder, args[1])
        strides = [ir.Constant(_WORD, item)]
        for dim in reversed(dims[1:]):
            strides.insert(0, builder.mul(strides[0], dim))
        populate_array(
            array,
            data=builder.inttoptr(args[0], array.data.type),
            shape=dims,
            strides=strides[: len(dims)],
            itemsize=ir.Constant(_WORD, item),
            meminfo=None,
        )
        return array._getvalue()

    return kind(types.intp, shape, dtype, writeable), codegen


@intrinsic
def attempt(typingctx: Any, function: Any, arguments: Any, failure: Any) -> Any:
    """Call a compiled function of words that returns a word, and catch what it raises.

    If it raises, return 0 and store the three pointers of Python's ``PyErr_Fetch`` (type, value, traceback) at the
    address `failure`; the caller owns these references.
    """
    called = function.get_call_type(typingctx, tuple(arguments), {})

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        compiled = function.dispatcher.overloads[called.args]
        context.active_code_library.add_linking_library(compiled.library)
        words = cgutils.unpack_tuple(builder, args[1])
        status, result = context.call_internal_no_propagate(builder, compiled.fndesc, called, words)
        answer = cgutils.alloca_once_value(builder, ir.Constant(_WORD, 0))
        with builder.if_else(status.is_error, likely=False) as (failed, succeeded):
            with failed:
                api = context.get_python_api(builder)
                state = api.gil_ensure()
                context.call_conv.raise_error(builder, api, status)
                kind = ir.FunctionType(ir.VoidType(), [_POINTER.as_pointer()] * 3)
                first = builder.inttoptr(args[2], _POINTER.as_pointer())
                places = [builder.gep(first, [ir.Constant(_WORD, i)]) for i in range(3)]
                for name in ("PyErr_Fetch", "PyErr_NormalizeException"):
                    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), places)
                api.gil_release(state)
            with succeeded:
                builder.store(result, answer)
        return builder.load(answer)

    return types.intp(function, arguments, types.intp), codegen


@intrinsic
def larger(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the larger of two floats of one type, or any value for NaN. Unlike a comparison, it vectorizes."""
    return _chosen(">", a, b)


@intrinsic
def smaller(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the smaller of two floats of one type, or any value for NaN."""
    return _chosen("<", a, b)


def _chosen(comparison: str, a: Any, b: Any) -> Any:
    """Return, as an intrinsic does, the signature and code of a choice between two numbers of one type, not NaN."""
    flags = ("nnan", "nsz")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(comparison, *args, flags=flags), *args, flags=flags)

    return a(a, b), codegen
