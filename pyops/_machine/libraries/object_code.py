"""Machine code of kernels as LLVM modules, and as one object file."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CellType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from ..._core import AnyOp
from ...errors import CompileError
from ..compiled import callback_source
from ..compiled.compilation import CallableKernel, define
from ..compiled.compiled_kernel import CompiledKernel
from ..compiled.disk_cache import global_names
from ..compiled.intrinsics import INNER
from ..compiled.specialization import (
    Specialization,
    as_arguments,
    as_stored,
    half_types,
    specialize,
    stored,
    weak_float,
)
from .external_symbols import reason_against
from .shape_functions import CompiledShapes, sizes_are_known
from .specializations import Use

_DYNAMIC = re.compile(r"^@\"?numba\.dynamic\.globals\.([0-9a-f]+)\"? = .*$", re.MULTILINE)
# What LLVM makes, for x86-64, of an atomic subtraction whose result is compared with 0.
_X86_ATOMIC = re.compile(
    r"^( *)%(\S+) = .*call i8 @llvm\.x86\.atomic\.sub\.cc\.i64\(ptr (?:\w+ )*(\S+), i64 1, i32 4\).*$", re.MULTILINE
)

# Exceptions of machine code without Python are text in place of pickled classes, and Python's C API has stand-ins in
# ``runtime.c``, which puts the values that are known only at run time into the text.
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


@dataclass
class Code:
    """The machine code of one use of an op.

    Attributes
    ----------
    module : llvmlite.binding.ModuleRef
    body, part, shapes : str
        The names of its functions; `part` is empty if the kernel is not called on parts, `shapes` without a shape
        function.
    """

    use: Use
    specialization: Specialization
    module: Any
    body: str
    part: str
    shapes: str
    warnings: list[str]


@contextmanager
def aimed_at(machine: Any) -> Iterator[None]:
    """Make numba optimize for a target machine; other threads that compile wait."""
    codegen = cpu_target.target_context.codegen()
    with global_compiler_lock:
        own, codegen._tm = codegen._tm, machine
        try:
            yield
        finally:
            codegen._tm = own


def compile_use(op: AnyOp, use: Use, name: str) -> Code:
    """Compile an op for a use.

    Parameters
    ----------
    name : str
        The beginning of the names of the functions in the module.

    Raises
    ------
    CompileError
        It cannot be compiled, or needs something that a library without Python lacks.
    """
    kernel, signature = op.kernels["cpu"], op.signature
    assert isinstance(kernel, CompiledKernel)
    arrays = [None if item is None else np.empty((0,) * item[1], item[0]) for item in use.inputs]
    dtypes = kernel.output_dtypes(arrays)
    if lacking := kernel.lacking([*(item and item[0] for item in use.inputs), *dtypes], use.attributes):
        raise CompileError(f"numba does not support {lacking}")
    given, _ = specialize(signature, None, arrays, use.attributes, dtypes, len(dtypes), None)
    specialization, warnings, shapes = given, [], None
    if op.shape_function is not None:
        try:
            shapes = CompiledShapes(op, given)
        except Exception as error:  # from numba, or from what it runs to find types
            reason = shortened(str(error) or type(error).__name__)
            if use.without_loops is not None:
                return compile_use(op, replace(use, inputs=use.without_loops, without_loops=None), name)
            warnings.append(f"the shape function is not in the library, so kernels allocate their outputs: {reason}")
        else:
            size = 1 if sizes_are_known(op, given, dict(use.attributes)) else None
            known = [(size,) * rank for rank in shapes.ranks]
            specialization, _ = specialize(signature, kernel.cores, arrays, use.attributes, dtypes, len(dtypes), known)
    halves = half_types(arrays), half_types(use.attributes[a.name] for a in signature.attributes)
    call = CallableKernel(
        kernel.function, signature, halves, dtypes, specialization.buffers, kernel.options | INNER, cached=False
    )
    if signature.outputs[-1].variadic:
        dtypes = _outputs(call, use, dtypes, arrays)
        specialization, _ = specialize(signature, kernel.cores, arrays, use.attributes, dtypes, len(dtypes), None)
        shapes = None
    names = callback_source.CODE_NAMES | {"kernel": call.call}
    others: dict[str, tuple[Any, int]] = {}  # with the number of parameters of each
    if shapes is not None:
        names["shape_of"] = shapes.shape_of
        others["shapes"] = shapes.shape_of, 3
    try:
        if specialization.cores is not None:
            code = callback_source.Writer(specialization).part()
            names["part_body"] = numba.njit(**INNER)(define("part_body", code, names))
            others["part"] = names["part_body"], 2
        code = callback_source.Writer(specialization, computes_shapes=shapes is not None).body()
        body = numba.njit(**INNER)(define("body", code, names))
        module = _module(body, 6, f"{name}_body")
        for kind, (function, parameters) in others.items():
            module.link_in(_module(function, parameters, f"{name}_{kind}"))
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(f"numba says:\n{error}") from error
    exports = {kind: f"{name}_{kind}" if kind in {"body", *others} else "" for kind in ("body", "part", "shapes")}
    _keep_only(module, exports.values())
    undefined = [function.name for function in module.functions if function.is_declaration]
    undefined += [variable.name for variable in module.global_variables if variable.is_declaration]
    if reason := reason_against(undefined):
        raise CompileError(reason)
    return Code(use, specialization, module, **exports, warnings=warnings)


def _outputs(call: CallableKernel, use: Use, dtypes: Any, arrays: Any) -> tuple[Any, ...]:
    """Return the dtypes of all outputs that a kernel with a variadic output returns for a use."""
    floats = weak_float([*(None if array is None else array.dtype for array in arrays), *dtypes])
    values = tuple(map(as_stored, as_arguments(use.attributes, floats).values()))
    kinds = tuple(
        types.none if array is None else types.Array(numba.from_dtype(stored(array.dtype)), array.ndim, "C", True)
        for array in arrays
    )
    signature = types.Tuple(kinds), numba.typeof(values), types.Tuple(())
    if reason := call.compile(signature):
        raise CompileError(reason)
    count = len(call.call.overloads[signature].signature.return_type)
    return (*dtypes, *[dtypes[-1]] * (count - len(dtypes)))[:count]


def _module(dispatcher: Any, parameters: int, name: str) -> Any:
    """Return the optimized LLVM module, without Python in it, of a function of words; there the function is `name`."""
    kinds = (types.intp,) * parameters
    dispatcher.compile(kinds)
    result = dispatcher.overloads[kinds]
    module = llvm.parse_assembly(_without_python(result.library.get_llvm_str(), _reached(dispatcher, set()), name))
    module.get_function(result.fndesc.llvm_func_name).name = name
    return module


def _without_python(text: str, reached: Iterable[Any], name: str) -> str:
    """Return a module, as text, without addresses in this process and without Python's exceptions."""
    text = _with_exceptions_as_text(text)
    text = _X86_ATOMIC.sub(
        r'\1%"\2.was" = atomicrmw sub ptr \3, i64 1 monotonic\n'
        r'\1%"\2.last" = icmp eq i64 %"\2.was", 1\n'
        r'\1%\2 = zext i1 %"\2.last" to i8',
        text,
    )
    arrays = {value.ctypes.data: value for value in reached if isinstance(value, np.ndarray)}
    objects = {id(array) for array in arrays.values()}

    def embedded(match: re.Match[str]) -> str:
        address = int(match[1], 16)
        variable = f'@"numba.dynamic.globals.{match[1]}" = internal constant ptr'
        if address in objects:
            return f"{variable} null"
        if address not in arrays:
            raise CompileError(
                "it uses an address in this process (a ctypes function, or an array that is not a constant)"
            )
        data = arrays[address].tobytes()
        spelled = "".join(f"\\{byte:02X}" for byte in data)
        constant = f'@"{name}.{match[1]}" = internal constant [{len(data)} x i8] c"{spelled}", align 64'
        return f'{constant}\n{variable} @"{name}.{match[1]}"'

    return _DYNAMIC.sub(embedded, text)


def _reached(value: Any, seen: set[int]) -> Iterator[Any]:
    """Iterate over a dispatcher, and over the dispatchers and contiguous arrays that its code refers to."""
    function = getattr(value, "py_func", None)
    if function is None or id(value) in seen:
        if isinstance(value, np.ndarray) and value.flags.c_contiguous:
            yield value
        return
    seen.add(id(value))
    yield value
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    for inner in [*map(function.__globals__.get, global_names(function.__code__)), *cells]:
        yield from _reached(inner, seen)


def _keep_only(module: Any, exports: Iterable[str]) -> None:
    """Make everything but the exports internal, and drop what they do not need."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in exports and not value.name.startswith("llvm."):
            value.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    machine = llvm.Target.from_default_triple().create_target_machine()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


def object_file(modules: Iterable[Any], machine: Any) -> bytes:
    """Return the object file of modules, for a target machine.

    The modules are already optimized, and are only translated: optimizing again could change the order of sums.
    """
    whole = llvm.parse_assembly("")
    whole.triple, whole.data_layout = machine.triple, str(machine.target_data)
    for module in modules:
        text = re.sub(r'^target (triple|datalayout) = ".*"$', "", str(module), flags=re.MULTILINE)
        if "llvm.x86." in text and "x86_64" not in machine.triple:  # LLVM would end the process
            raise CompileError(f"numba used instructions of this machine's CPU, which {machine.triple} lacks")
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = whole.triple, whole.data_layout
        whole.link_in(module)
    for function in whole.functions:
        if not function.is_declaration and function.linkage == llvm.Linkage.external:
            function.visibility = "hidden"
    whole.verify()
    code: bytes = machine.emit_object(whole)
    return code


def shortened(reason: str) -> str:
    """Return the line of numba's message that says what is wrong, with the place."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(("numba says", "Failed in"))] or lines
    place = re.search(r"^During: typing of .* at (.*) \((\d+)\)$", reason, re.MULTILINE)
    more = f" {shown[1]}" if shown[0].endswith(":") and len(shown) > 1 else ""
    return f"{shown[0]}{more}{f' ({place[1]}:{place[2]})' if place else ''}"


class _Later:
    """A value that is known only at run time: two bytes that are no UTF-8 stand for its text."""

    def __init__(self, number: int) -> None:
        self._number = chr(number)

    def __str__(self) -> str:
        return f"\udcfe{self._number}"

    def __repr__(self) -> str:
        return f"\udcff{self._number}"


def _with_exceptions_as_text(module: str) -> str:
    """Return a module, as LLVM assembly, whose exceptions are text."""
    module = _NO_ENVIRONMENT.sub("", _PICKLED.sub(_format_constant, module))
    return _BOXING.sub(r"@pyops_\1", _ENVIRONMENT.sub("inttoptr i64 1 to ptr", module))


def _format_constant(match: re.Match[str]) -> str:
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
