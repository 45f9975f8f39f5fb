"""Kernels that numba compiles, for plain calls and as ONNX Runtime's compute callbacks."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import unpickle
from ..._core import Input, Output, Signature, named_tuple_of, output_dtypes, split_arguments
from ..._support.element_types import DType, dtype_name
from ..._support.locks import RLock
from ...errors import CompileError, CompileWarning, DeclarationError, MissingDependencyError, warn
from . import specialization
from .specialization import HALVES, Specialization, as_arguments, as_stored, half_types, weak_float

if TYPE_CHECKING:
    from .compilation import CallableKernel

_FLAGS = ("afn", "arcp", "contract", "ninf", "nnan", "nsz", "reassoc")

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_COMPILABLE = {"bool", *_INTEGERS, *HALVES, "float32", "float64"}


class CompiledKernel:
    """A kernel that numba compiles for the types of its arguments.

    Parameters
    ----------
    function : callable
        A plain Python function.
    plain : callable
        The kernel to call instead for element types that numba does not support, and if compilation fails and
        `mode` is ``"try"``.
    mode : True, "try" or "debug"
        ``"debug"`` checks the bounds of every index.
    parallel : str, optional
        The core dimensions of inputs and outputs in NumPy's notation (``"(n)->(n)"``). The other, leading dimensions
        are independent, so the work is split along them.
    fastmath : bool or collection of str
        Passed to ``numba.njit``.
    """

    def __init__(
        self,
        signature: Signature,
        function: Callable[..., Any],
        plain: Callable[..., Any],
        mode: bool | str,
        parallel: str | None = None,
        fastmath: bool | Collection[str] = False,
    ) -> None:
        functools.update_wrapper(self, function)
        self.signature = signature
        self.function = function
        self.plain = plain
        self.parallel = parallel
        self.cores = None if parallel is None else specialization.parse(parallel, signature)
        self._mode = mode
        flags = fastmath if isinstance(fastmath, bool) else set(fastmath)
        self.options = {"fastmath": flags} | ({"boundscheck": True} if mode == "debug" else {})
        self._lock = RLock()
        self._callables: dict[Any, CallableKernel] = {}
        self._entries: dict[Specialization, tuple[int, int] | None] = {}
        self._is_compiled: dict[Any, bool] = {}
        self._warned: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        fastmath = self.options["fastmath"]
        state = self.signature, self.function, self.plain, self._mode, self.parallel, fastmath
        return unpickle, ("compiled kernel", *state)

    @functools.cached_property
    def result_type(self) -> Callable[..., Any] | None:
        """Return the NamedTuple class that a plain call returns, or None."""
        return named_tuple_of(self.plain)

    def __call__(self, /, *inputs: Any, **attributes: Any) -> Any:
        """Call the compiled kernel, or the plain one if it cannot be compiled for these types."""
        out = attributes.pop("out", None)
        dtypes = self.output_dtypes(inputs)
        if self._compile_call(inputs, attributes, dtypes, out):
            arguments = self._arguments(inputs, attributes, dtypes, out)
            results = self._callable(inputs, attributes, dtypes, out is not None).call(*arguments)
            results = tuple(_of_dtype(result, dtypes[min(i, len(dtypes) - 1)]) for i, result in enumerate(results))
            if self.result_type is not None:
                return self.result_type(*results)
            return results if self.signature.returns_tuple else results[0]
        return self.plain(*inputs, **attributes, **({} if out is None else {"out": out}))

    def output_dtypes(self, inputs: Sequence[Any]) -> tuple[DType, ...]:
        """Return the dtype of each declared output, for arrays (None: absent) as inputs."""
        dtypes = output_dtypes(self.signature, [None if array is None else array.dtype for array in inputs])
        return tuple(dtype for dtype in dtypes if dtype is not None)

    def lacking(self, dtypes: Sequence[DType | None], attributes: Mapping[str, Any]) -> str | None:
        """Return the name of the first element type, of these and the attributes', that cannot be compiled, or None."""
        used = [*dtypes, *(value.dtype for value in attributes.values() if isinstance(value, np.ndarray))]
        return next((dtype_name(dtype) for dtype in used if dtype is not None and not is_compilable(dtype)), None)

    def entry(self, specialization: Specialization, attributes: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return the result of `machine_code` for a specialization; None if the plain kernel must run instead."""
        from .compilation import machine_code

        with self._lock:
            if specialization not in self._entries:
                inputs = [None if item is None else _sample(*item) for item in specialization.inputs]
                dtypes = self.output_dtypes(inputs)
                pairs = zip(specialization.outputs, specialization.output_ranks or (), strict=False)
                out = tuple(_sample(*pair) for pair in pairs) if specialization.buffers else None
                made = None
                if self._compile_call(inputs, attributes, dtypes, out):
                    call = self._callable(inputs, attributes, dtypes, specialization.buffers)
                    made = machine_code(self.signature.qualified_name, call, specialization)
                self._entries[specialization] = made
            return self._entries[specialization]

    def _callable(self, inputs: Any, attributes: Any, dtypes: Sequence[DType], buffers: bool) -> CallableKernel:
        from .compilation import CallableKernel

        halves = half_types(inputs), half_types(attributes[a.name] for a in self.signature.attributes)
        key = (halves, tuple(dtypes), buffers)
        with self._lock:
            if key not in self._callables:
                call = CallableKernel(self.function, self.signature, halves, dtypes, buffers, self.options)
                self._callables[key] = call
            return self._callables[key]

    def _arguments(self, inputs: Any, attributes: Any, dtypes: Any, out: Any) -> tuple[Any, Any, Any]:
        inputs = [None if array is None else _read_only(array) for array in inputs]
        missing = len(self.signature.inputs) - any(item.variadic for item in self.signature.inputs) - len(inputs)
        floats = weak_float([*(None if array is None else array.dtype for array in inputs), *dtypes])
        values = as_arguments({a.name: attributes[a.name] for a in self.signature.attributes}, floats)
        outs = () if out is None else out if isinstance(out, tuple) else (out,)
        return (*inputs, *[None] * missing), tuple(map(as_stored, values.values())), tuple(map(as_stored, outs))

    def _compile_call(self, inputs: Any, attributes: Any, dtypes: Any, out: Any) -> bool:
        key = _key(inputs, attributes, dtypes, out is not None)
        if self._is_compiled.get(key):
            return True
        with self._lock:
            given = [None if array is None else array.dtype for array in inputs]
            if lacking := self.lacking([*given, *dtypes], attributes):
                self._warn(f"cannot be compiled for {lacking}, which numba does not support; the plain kernel runs")
                self._is_compiled[key] = False
            if key not in self._is_compiled:
                from numba import typeof

                kinds = tuple(map(typeof, self._arguments(inputs, attributes, dtypes, out)))
                try:
                    call = self._callable(inputs, attributes, dtypes, out is not None)
                    reason = call.compile(kinds)
                except CompileError as error:  # a function calls itself
                    reason = str(error)
                if reason is not None:
                    what = ", ".join("None" if array is None else type_of(array.dtype, array.ndim) for array in inputs)
                    if not any(self._is_compiled.values()):  # names it refers to may be defined by the next call
                        self._callables.clear()
                    self._fail_compilation(what, reason)
                self._is_compiled[key] = reason is None
            return self._is_compiled[key]

    def _fail_compilation(self, what: str, reason: str) -> None:
        code = self.function.__code__
        text = f"cannot be compiled for {what} ({code.co_filename}:{code.co_firstlineno})"
        if self._mode != "try":
            raise CompileError(
                f"{self.signature.qualified_name} {text}; change it, or run the plain kernel where this happens: "
                f'compile="try". {reason}'
            )
        self._warn(f"{text}; the plain kernel runs instead. {reason}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(f"{self.signature.qualified_name} {text}", CompileWarning)


def make(
    signature: Signature,
    function: Callable[..., Any],
    plain: Callable[..., Any],
    compile: bool | str,
    parallel: str | None = None,
    fastmath: bool | Collection[str] = False,
) -> Callable[..., Any]:
    """Return the compiled kernel for a declaration; `plain` if numba is not installed and `compile` is ``"try"``.

    A warning says so, unless `plain` is another function, which was written for this.

    Raises
    ------
    DeclarationError
        The arguments are invalid, or the kernel can never be compiled.
    MissingDependencyError
        numba is not installed and `compile` is not ``"try"``.
    """
    name = signature.qualified_name
    if compile not in (True, "try", "debug"):
        raise DeclarationError(f'{name}: compile={compile!r} is unknown; it must be True, "try" or "debug"')
    flags = () if isinstance(fastmath, bool) else fastmath
    if isinstance(flags, str) or not isinstance(flags, Collection) or any(flag not in _FLAGS for flag in flags):
        raise DeclarationError(
            f"{name}: fastmath is {fastmath!r}; write True or a set of LLVM's flags, which are {', '.join(_FLAGS)}"
        )
    if not isinstance(function, FunctionType):
        raise DeclarationError(f"{name}: compile={compile!r} needs a function written in Python, not {function!r}")
    if hasattr(function, "__wrapped__"):
        raise DeclarationError(
            f"{name}: compile={compile!r} needs a function without decorators, because numba would not compile what "
            f"they do; remove them from {function.__qualname__}"
        )
    tensors: list[Input | Output] = [*signature.inputs, *signature.outputs]
    if not all(item.homogeneous for item in tensors):
        raise DeclarationError(
            f"{name}: compile={compile!r} needs one type for all tensors of a variadic input or output; use a TypeVar"
        )
    if importlib.util.find_spec("numba") is None:
        text = f'{name}: compile={compile!r} needs numba; pip install "onnx-pyops[compiled]"'
        if compile != "try":
            raise MissingDependencyError(text)
        if plain is function:
            warn(f"{text}. The plain kernel runs", CompileWarning)
        return plain
    return CompiledKernel(signature, function, plain, compile, parallel, fastmath)


def compile_kernel(
    signature: Signature,
    kernel: Callable[..., Any],
    output_shapes: Callable[..., Any] | None,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
) -> None:
    """Compile an op's CPU kernel for examples of its inputs, as `Op.compile` documents.

    Parameters
    ----------
    output_shapes : callable or None
        `pyops._core.ops.op.output_shapes` bound to the shape function; None if the op has no shape function.
    """
    name = signature.qualified_name
    if not isinstance(kernel, CompiledKernel):
        raise DeclarationError(f'{name} has no kernel to compile; declare it with @onnx_op("{name}", compile=True)')
    arrays, values = split_arguments(signature, inputs, attributes)
    dtypes = kernel.output_dtypes(arrays)
    if kernel._compile_call(arrays, values, dtypes, None):
        shapes = None if output_shapes is None else output_shapes(arrays, values)
        found, _ = specialization.specialize(signature, kernel.cores, arrays, values, dtypes, len(dtypes), shapes)
        kernel.entry(found, values)


def type_of(dtype: DType, rank: int) -> str:
    """Return a type in the form used in messages: ``float32[:, :]``."""
    return f"{dtype_name(dtype)}[{', '.join(':' * rank)}]"


def _sample(dtype: DType, rank: int) -> np.ndarray[Any, Any]:
    return np.empty((0,) * rank, dtype)


def is_compilable(dtype: DType) -> bool:
    """Return whether arrays of a dtype can be given to compiled code."""
    return dtype.name in _COMPILABLE and dtype.isnative


def _of_dtype(array: Any, dtype: DType) -> Any:
    return array if array.dtype == dtype else array.view(dtype)


def _read_only(array: Any) -> Any:
    array = as_stored(np.ascontiguousarray(array).reshape(array.shape))
    view = array.view()
    view.flags.writeable = False
    return view


def _key(inputs: Any, attributes: Any, dtypes: Any, buffers: bool) -> Any:
    def kind(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype, value.ndim
        return tuple(map(kind, value)) if isinstance(value, (list, tuple)) else type(value)

    return kind(inputs), tuple((name, kind(attributes[name])) for name in sorted(attributes)), tuple(dtypes), buffers
