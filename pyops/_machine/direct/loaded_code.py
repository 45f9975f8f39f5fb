"""The machine code of direct calls in this process, or why there is none."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import weakref
from ctypes import PYFUNCTYPE, c_int32, c_int64, c_void_p, py_object
from typing import Any

import numpy as np

from ..._core import signals_deferred
from ...errors import EngineError
from . import array_memory, direct_call, exchange, llvm_code, numpy_arrays

_VARIABLE = "PYOPS_DIRECT_CALLS"
_PYTHONS = (3, 11), (3, 14)
"""The oldest and the newest Python whose objects this code is known to read correctly."""

# Functions of NumPy's C API, by their number there.
_NUMPY_FUNCTIONS = {"PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282, "PyDataMem_SetHandler": 304}
_GET_HANDLER, _OWN_HANDLER = 305, 306

MODULES = numpy_arrays, array_memory, exchange, direct_call
"""The modules whose functions are machine code."""


def problem() -> str:
    """Return why no machine code calls plain kernels; empty if it does.

    Raises
    ------
    EngineError
        ``PYOPS_DIRECT_CALLS`` is neither 0 nor 1.
    """
    setting = os.environ.get(_VARIABLE, "1")
    if setting not in ("0", "1"):
        raise EngineError(f"{_VARIABLE} is {setting!r}; set it to 0 to call kernels from Python, or to 1 (the default)")
    return _problem() if setting == "1" else f"{_VARIABLE} is 0"


@functools.cache
def _problem() -> str:
    version = sys.version_info[:2]
    if sys.implementation.name != "cpython" or not _PYTHONS[0] <= version <= _PYTHONS[1]:
        return f"machine code was not tested with {sys.implementation.name} {sys.version.split()[0]}"
    try:
        if not _is_known_layout():
            return "this Python or NumPy has another memory layout of its objects"
        with signals_deferred():
            _code()
    except ModuleNotFoundError:
        return "llvmlite is not installed: pip install llvmlite"
    except Exception as error:  # LLVM may not support this machine
        return f"{type(error).__name__}: {error}"
    return ""


def address_of(name: str) -> int:
    """Return the address of a function of `MODULES`, where there is no `problem`."""
    return _code()[name]


@functools.cache
def memory_of_arrays() -> array_memory.ArrayMemory:
    """Return the handler that NumPy allocates by while kernels run, where there is no `problem`."""
    with signals_deferred():
        return array_memory.ArrayMemory(_code(), c_int64.from_address(_numpy_table()[_OWN_HANDLER]).value)


def exchange_in(api: Any) -> int:
    """Return the address of the words of the exchange with an ONNX Runtime; 0 where results are copied.

    Parameters
    ----------
    api : Api
        The functions of the ONNX Runtime that runs sessions.
    """
    return 0 if exchange_problem(api) else _exchange(api).address


def exchange_problem(api: Any) -> str:
    """Return why the results of plain kernels are copied; empty if ONNX Runtime takes over their memory."""
    found = exchange.Exchange.problem() or problem()
    if not found and not _exchange(api).is_known:
        found = "this ONNX Runtime or NumPy has another memory layout of its values or arrays"
    return found


@functools.cache
def _exchange(api: Any) -> exchange.Exchange:
    with signals_deferred():
        return exchange.Exchange(api, _code(), memory_of_arrays())


@functools.cache
def _code() -> dict[str, int]:
    return llvm_code.compile_modules(MODULES, _c_function)


def _c_function(name: str) -> int:
    if name in _NUMPY_FUNCTIONS:
        return int(_numpy_table()[_NUMPY_FUNCTIONS[name]])
    function: Any = ctypes.memmove if name == "memmove" else ctypes.pythonapi[name]
    return ctypes.cast(function, c_void_p).value or 0


@functools.cache
def _numpy_table() -> Any:
    """Return NumPy's C API: the addresses of its functions and types."""
    numpy_core: Any = importlib.import_module("numpy._core._multiarray_umath")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, (py_object, c_void_p)
    return (c_int64 * (_OWN_HANDLER + 1)).from_address(get(numpy_core._ARRAY_API, None))


def _is_known_layout() -> bool:
    """Return whether objects are laid out as `numpy_arrays` says."""
    array = np.zeros((2, 3), np.float32)
    memory, references = (c_int64 * 12).from_address(id(array)), c_int32.from_address(id(array))
    alone = references.value
    more = [array] * 5
    view, weak = array[1:], weakref.ref(array)
    handler = PYFUNCTYPE(py_object)(_numpy_table()[_GET_HANDLER])()
    found = (
        references.value,
        (c_int64 * 12).from_address(id(view))[numpy_arrays.ARRAY_BASE],
        memory[numpy_arrays.ARRAY_WEAK],
        memory[numpy_arrays.ARRAY_HANDLER],
        memory[numpy_arrays.OBJECT_TYPE],
        memory[numpy_arrays.ARRAY_DATA],
        memory[numpy_arrays.ARRAY_RANK] & 0xFFFFFFFF,
        (c_int64 * 2).from_address(memory[numpy_arrays.ARRAY_DIMS])[:],
        memory[numpy_arrays.ARRAY_DTYPE],
        memory[numpy_arrays.ARRAY_FLAGS] & 0xFFFFFFFF,
        _numpy_table()[2],
    )
    flags = array.flags.num
    type_ = id(np.ndarray)
    its_own = array.ctypes.data, 2, [2, 3], id(array.dtype), flags, type_
    return alone == 1 and found == (2 + len(more), id(array), id(weak), id(handler), type_, *its_own)
