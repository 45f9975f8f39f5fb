"""Compilation of compute callbacks; their code is never freed, since another thread may be about to run it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CellType, FunctionType, ModuleType
from typing import Any

import numba
from numba import types
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target

from ..._core import Signature
from ..._support.annotations import signature_of
from ..._support.element_types import DType, format_scalar
from ...errors import CompileError
from . import callback_source
from .callback_parts import as_tuple, conform, conform_all
from .disk_cache import fingerprint, global_names, use_cache
from .half_precision import compute_in_float32
from .intrinsics import INNER, NarrowVectors
from .numpy_corrections import correct_numbers
from .read_only_inputs import keep_read_only
from .specialization import HALVES, Specialization
from .text_of_values import correct_texts
from .vector_math import MODULES, vectorised

compute_in_float32()
correct_numbers()
correct_texts()
keep_read_only()

Types = tuple[Any, Any, Any]
"""The numba types of the three tuples that ``call`` takes: inputs, attribute values and out buffers."""


class CallableKernel:
    """The compiled form of a kernel function for one set of output dtypes.

    Parameters
    ----------
    halves : (tuple of str, tuple of str)
        The types of the inputs, and of the attributes, that are arrays of float16 or bfloat16: see `half_types`.
    options : mapping
        Further numba options.
    cached : bool
        Whether the code is loaded from disk, and saved there.

    Attributes
    ----------
    call : numba dispatcher
        Takes three tuples, see `Types`.
    made_from : tuple
        What the code depends on, for `pyops._machine.compiled.disk_cache.use_cache`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        halves: tuple[Sequence[str], Sequence[str]],
        dtypes: Sequence[DType],
        buffers: bool,
        options: Mapping[str, Any],
        cached: bool = True,
    ) -> None:
        outs = [format_scalar(dtype) if dtype.name in HALVES else "" for dtype in dtypes if buffers]
        views = "".join(map(_view_code, ("inputs", "values", "outs"), (*halves, outs)))
        code = _call_code(views, format_arguments(function, signature, buffers), signature, dtypes)
        # As in NumPy, division by zero does not raise.
        options = {"nogil": True, "error_model": "numpy", **options}
        # Only `call` is called from Python; the others need no wrapper for that.
        inner = options | INNER
        names = {
            "function": make_dispatcher(positional(function), inner, {}),
            "conform": conform,
            "conform_all": conform_all,
            "as_tuple": as_tuple,
            **MODULES,
        }
        self.call = numba.njit(**options)(define("call", code, names))
        spelled = {name: sorted(value) if isinstance(value, set) else value for name, value in options.items()}
        # Computed for each object, because the values of globals may have changed.
        self._function = function
        self.made_from = (fingerprint(self._function), code, str(spelled))
        if cached:
            use_cache(self.call, signature.qualified_name, *self.made_from, is_current=self.is_current)

    def is_current(self) -> bool:
        """Return whether the function's globals, and whatever else its code depends on, are what they were."""
        return fingerprint(self._function) == self.made_from[0]

    def compile(self, kinds: Types) -> str | None:
        """Compile for numba types, or load the code from disk; return why it cannot be compiled, or None."""
        try:
            self.call.compile(kinds)
        except Exception as error:
            return f"numba says:\n{str(error) or type(error).__name__}"
        return None


def define(name: str, code: str, names: dict[str, Any]) -> Any:
    """Execute code and return the function of this name that it defines."""
    names = {"__name__": __name__} | names
    exec(compile(code, f"<pyops {name}>", "exec"), names)
    return names[name]


def format_arguments(function: Callable[..., Any], signature: Signature, buffers: bool) -> list[str]:
    """Return the expression for each parameter of the kernel, in terms of ``inputs``, ``values`` and ``outs``."""
    attributes = [attribute.name for attribute in signature.attributes]
    arguments: list[str] = []
    rest: list[str] = []
    for parameter in signature_of(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = [f"inputs[{len(arguments)}:]"]
        elif parameter.name == "out" and parameter.kind is parameter.KEYWORD_ONLY:
            whole = "outs" if signature.returns_tuple else "outs[0]"
            arguments.append(whole if buffers else "None")
        elif parameter.name in attributes:
            arguments.append(f"values[{attributes.index(parameter.name)}]")
        else:
            arguments.append(f"inputs[{len(arguments)}]")
    return arguments + rest


def _view_code(name: str, halves: Sequence[str]) -> str:
    """Return the line that views the bits in a tuple as float16 and bfloat16, if it has any."""
    items = [f"{name}[{i}]{half and f'.view({half})'}" for i, half in enumerate(halves)]
    return f"    {name} = ({', '.join(items)}, *{name}[{len(items)}:])\n" if any(halves) else ""


def _call_code(views: str, arguments: Sequence[str], signature: Signature, dtypes: Sequence[DType]) -> str:
    kinds = list(map(format_scalar, dtypes))
    called, results = f"function({', '.join(arguments)})", [f"conform(result, {kinds[0]})"]
    if signature.outputs[-1].variadic:
        singles = len(signature.outputs) - 1
        results = [f"conform(result[{i}], {kind})" for i, kind in enumerate(kinds[:singles])]
        results.append(f"*conform_all(result[{singles}:], {kinds[-1]})")
    elif signature.returns_tuple:
        results = [f"conform(result[{i}], {kind})" for i, kind in enumerate(kinds)]
        called = f"as_tuple({called}, ({'0, ' * len(dtypes)}))"
    return f"def call(inputs, values, outs):\n{views}    result = {called}\n    return ({', '.join(results)},)\n"


def positional(function: Callable[..., Any]) -> FunctionType:
    """Return the function with positional parameters only, the ones that numba supports; ``*xs`` comes last."""
    code = function.__code__
    rest = bool(code.co_flags & inspect.CO_VARARGS)
    count = code.co_argcount + code.co_kwonlyargcount + rest
    code = code.replace(
        co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=code.co_flags & ~inspect.CO_VARARGS
    )
    made = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    made.__qualname__ = function.__qualname__
    return made


def make_dispatcher(function: FunctionType, options: dict[str, Any], known: dict[FunctionType, Any]) -> Any:
    """Return the numba dispatcher of a function, with the plain functions that it calls compiled too.

    Parameters
    ----------
    known : dict
        The dispatchers that are made already, and None for the functions whose dispatchers are being made.

    Raises
    ------
    CompileError
        A function calls itself, directly or through others: machine code has no recursion limit.
    """
    known[function] = None
    code = function.__code__
    # Cached code is loaded together with its function's module; this one exists in every process.
    names: dict[str, Any] = {"__name__": __name__}
    cells = tuple(CellType() for _ in function.__closure__ or ())
    for name in ("__builtins__", *global_names(code)):
        if name in function.__globals__:
            value = names[name] = _compilable(function.__globals__[name], options, known)
            if isinstance(value, ModuleType):  # dispatchers of numba's in it may be called
                for attribute in code.co_names:
                    if hasattr(vars(value).get(attribute), "py_func"):
                        _compilable(vars(value)[attribute], options, known)
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the name has no value yet
            cell.cell_contents = _compilable(original.cell_contents, options, known)
    made = FunctionType(code, names, function.__name__, function.__defaults__, cells)
    made.__qualname__ = function.__qualname__
    # Vectors of 512 bits pay off in loops of many operations, such as those of exp.
    width = {} if "exp" in code.co_names else {"pipeline_class": NarrowVectors}
    known[function] = dispatcher = numba.njit(**options, **width)(made)
    return dispatcher


def _compilable(value: Any, options: dict[str, Any], known: dict[FunctionType, Any]) -> Any:
    value = vectorised(value)
    function = getattr(value, "py_func", value)  # what numba compiled already is searched for recursion only
    if not isinstance(function, FunctionType) or function.__module__.startswith("numba.") or _is_known(function):
        return value
    if function in known and known[function] is None:
        raise CompileError(
            f"{function.__qualname__} ({function.__code__.co_filename}:{function.__code__.co_firstlineno}) calls "
            "itself, directly or through others; machine code has no recursion limit, so write a loop"
        )
    made = known.get(function) or make_dispatcher(function, options, known)
    return made if function is value else value


def _is_known(function: FunctionType) -> bool:
    """Return whether numba has an implementation registered for a function."""
    cpu_target.typing_context.refresh()  # for what is registered since numba last compiled
    try:
        return cpu_target.typing_context.resolve_value_type(function) is not None
    except ValueError:
        return False


_kept: list[CFunc] = []


def machine_code(name: str, kernel: CallableKernel, specialization: Specialization) -> tuple[int, int]:
    """Compile the compute callback of one specialization.

    Returns
    -------
    (int, int)
        The addresses of the entry point and of the one for a part, 0 if the kernel is not called on parts.
    """
    codes = {"body": callback_source.Writer(specialization).body()}
    names: dict[str, Any] = callback_source.CODE_NAMES | {"kernel": kernel.call}
    if specialization.cores is not None:
        codes["part_body"] = callback_source.Writer(specialization).part()
        names["part_body"] = numba.njit(**INNER)(define("part_body", codes["part_body"], names))
    names["body"] = numba.njit(**INNER)(define("body", codes["body"], names))

    def callback(kind: str, code: str, parameters: int) -> int:
        """Compile code to a C function of words that returns a word; return its address."""
        signature = ((types.intp,) * parameters, types.intp)
        made = CFunc(define(kind, code, names), signature, locals={}, options={"nopython": True})
        made_from = (*kernel.made_from, *codes.values())
        use_cache(made, f"{name} for sessions ({kind})", code, *made_from, is_current=kernel.is_current)
        made.compile()
        _kept.append(made)
        return made.address or 0

    part = callback("part", callback_source.PART, 2) if "part_body" in names else 0
    return callback("entry", callback_source.entry_code(specialization), 5), part
