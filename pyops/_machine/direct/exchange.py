"""The exchange: ONNX Runtime takes over the memory of an array that a plain kernel returned, instead of a copy of it.

ONNX Runtime's C API has no function that makes memory of ours an output: `KernelContext_GetOutput` allocates it. But
an output is an `OrtValue`, which begins with a shared pointer to its tensor, and the API makes further values, on
memory of ours and with a function of ours that frees it. So the output is allocated as always, a second value is made
on the array's memory, and the two exchange their shared pointers: now the output has the array's memory, and the second
value, which is released, what ONNX Runtime had allocated. The array no longer owns its memory, and ends at once.

That a value begins so is not public, and nothing but looking tells whether it does. So there is a list of the releases
of ONNX Runtime that this was tested with, and each process tries it on values of its own before its first use. Anywhere
else results are copied.

At no time do a Python object and ONNX Runtime both own memory. It is taken only if

- it is large memory of `array_memory`, which knows how to free it in any thread, with no help from Python;
- nothing but the array refers to it, or, if a view was returned, nothing but the view refers to the array: each has one
  reference, which the result holds, and no weak ones. Whatever else could read the memory later, a slice, a memoryview,
  a variable in a frame, would be another reference;
- nothing else holds the output's tensor, whose shared pointer counts its holders. Memory that the user has bound to an
  output has others, and so have outputs of the branches and bodies of If, Loop and Scan.

One reader is left that ONNX Runtime does not know: a kernel further on that keeps an array which it was given. Its
tensor may be one that ONNX Runtime has put into the same memory, without owning it: a result computed in place, or the
slice of a tensor that Scan gives to its body. An arena stays mapped as long as its session; this memory does not. So
kept arrays are *pinned*: memory with a pinned address in it is parked in the pin, and freed when the array ends.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Iterable, Mapping
from ctypes import PYFUNCTYPE, addressof, byref, c_int32, c_int64, c_void_p, py_object, pythonapi
from typing import Any, ClassVar

import numpy as np

from ..._support.element_types import ort_code
from ..._support.system import HOST
from ..._support.tested_releases import EXCHANGE
from ...errors import EngineError
from ..memory_layout import address_of, words
from .array_memory import BLOCK, CAPACITY, ArrayMemory, fits, release
from .llvm_code import c, call, exchange, load, load_int, replace, scratch, store
from .numpy_arrays import (
    ARRAY_BASE,
    ARRAY_DATA,
    ARRAY_DIMS,
    ARRAY_FLAGS,
    ARRAY_HANDLER,
    ARRAY_RANK,
    ARRAY_WEAK,
    OBJECT_TYPE,
    OWNS_DATA,
    is_alone,
)

# The words of an `OrtValue`: the shared pointer, which is the addresses of the tensor and of what counts its holders,
# and the type. The count is the lower half of the second word there.
_COUNTER, _TYPE, _COUNT = 1, 2, 1
_VALUE_WORDS = 3

# The words of the exchange: `OrtAllocator` of the C API, then ours.
_API_VERSION = 17  # of `OrtAllocator`, whose later functions are all optional
_FREE, _INFO = 2, 3
MEMORY, HANDLER, MEMORY_INFO, CREATE_TENSOR, RELEASE_VALUE, RELEASE_STATUS, TOO_MANY, FIRST_PIN = range(16, 24)
PINS = 64
PARKED, _PIN_WORDS = 1, 2  # of a pin, after the address

_NUMPY_DOMAIN = 389047  # of tracemalloc


def _owner(place: int, value: int, size: int) -> int:
    """Return the array whose memory can be taken for a returned one, which it is or is the base of; 0 if none can."""
    if place == 0 or load(place, TOO_MANY) or not is_alone(value) or load(value, ARRAY_WEAK) != 0:
        return 0
    owner = load(value, ARRAY_BASE)
    if owner == 0:
        owner = value
    if (
        load(owner, OBJECT_TYPE) != load(value, OBJECT_TYPE)
        or not is_alone(owner)
        or load(owner, ARRAY_WEAK) != 0
        or load(owner, ARRAY_DATA) != load(value, ARRAY_DATA)
        or load_int(owner, ARRAY_FLAGS) & OWNS_DATA == 0
        or load(owner, ARRAY_HANDLER) != load(place, HANDLER)
        or load(load(owner, ARRAY_DATA) + BLOCK) == 0
        or not fits(load(load(owner, ARRAY_DATA) + CAPACITY), size)
    ):
        return 0
    return owner


def take(place: int, value: int, size: int, code: int, output: int) -> int:
    """Give a returned array's memory to an output, with this element type; return whether that was possible.

    If it was, the array must end before any other thread runs.
    """
    owner = _owner(place, value, size)
    if owner == 0 or load_int(load(output, _COUNTER), _COUNT) != 1:
        return 0
    cell = scratch(1)
    data = load(value, ARRAY_DATA)
    rank = load_int(value, ARRAY_RANK)
    status = call(load(place, CREATE_TENSOR), place, data, size, load(value, ARRAY_DIMS), rank, code, cell)
    if status != 0:
        call(load(place, RELEASE_STATUS), status)
        return 0
    exchange_tensors(output, load(cell))
    call(load(place, RELEASE_VALUE), load(cell))
    # As NumPy does when an array's memory is freed.
    c.PyTraceMalloc_Untrack(_NUMPY_DOMAIN, data)
    store(load(owner, ARRAY_FLAGS) - OWNS_DATA, owner, ARRAY_FLAGS)
    store(0, owner, ARRAY_HANDLER)
    c.Py_DecRef(load(place, HANDLER))
    return 1


def exchange_tensors(first: int, second: int) -> int:
    """Exchange the tensors of two values."""
    for i in range(2):
        kept = load(first, i)
        store(load(second, i), first, i)
        store(kept, second, i)
    return 0


def delete(place: int, data: int) -> int:
    """Free what was taken, or park it if an array in it is kept: `OrtAllocator.Free`, in any thread."""
    for i in range(PINS):
        pinned = place + 8 * (FIRST_PIN + _PIN_WORDS * i)
        if load(pinned) != 0 and load(pinned) - data < load(data + CAPACITY):
            store(data, pinned, PARKED)
            return 0
    if load(place, TOO_MANY):
        return 0
    return release(load(place, MEMORY), data, 0)


def memory_info(place: int) -> int:
    """Return where the memory is: `OrtAllocator.Info`."""
    return load(place, MEMORY_INFO)


def pin(place: int, address: int) -> int:
    """Keep memory with some address in it; return the pin. Without any left, nothing is taken or freed from now on."""
    for i in range(PINS):
        free = place + 8 * (FIRST_PIN + _PIN_WORDS * i)
        if replace(0, address, free):
            return free
    store(1, place, TOO_MANY)
    return 0


def unpin(place: int, pinned: int) -> int:
    """Undo `pin`, and free what was parked."""
    if pinned == 0:
        return 0
    store(0, pinned)
    data = exchange(0, pinned, PARKED)
    if data == 0:
        return 0
    return delete(place, data)  # there may be another pin


class Exchange:
    """The exchange in this process, which lives until the process ends: tensors may live longer than modules.

    Parameters
    ----------
    api : Api
        The functions of the ONNX Runtime that runs sessions.
    code : mapping
        The addresses of the functions of this module.
    memory : ArrayMemory
        The memory that is taken.

    Attributes
    ----------
    address : int
        The address of its words.
    is_known : bool
        Whether values are as this module expects.
    """

    _VARIABLE = "PYOPS_EXCHANGE"
    _made: ClassVar[list[Exchange]] = []

    def __init__(self, api: Any, code: Mapping[str, int], memory: ArrayMemory) -> None:
        self._api, self._memory = api, memory
        info = api.get(c_void_p, api.AllocatorGetInfo, api.get(c_void_p, api.GetAllocatorWithDefaultOptions))
        of_api = map(api.address, ("CreateTensorWithDataAndDeleterAsOrtValue", "ReleaseValue", "ReleaseStatus"))
        allocator = [_API_VERSION, 0, code["delete"], code["memory_info"], *[0] * (MEMORY - _INFO - 1)]
        ours = address_of(memory.words), id(memory.handler), info, *of_api, *[0] * (1 + _PIN_WORDS * PINS)
        self._words = words(*allocator, *ours)
        self.address = address_of(self._words)
        word = c_int64
        names = "allocate", "exchange_tensors", "pin", "unpin"
        functions = (PYFUNCTYPE(word, word, word)(code[name]) for name in names)
        self._allocate, self._exchange, self._pin, self._unpin = functions
        pythonapi.Py_IncRef(py_object(self))
        self.is_known = self._is_known()
        self._made.append(self)

    @classmethod
    def pin(cls, arrays: Iterable[Any]) -> None:
        """Keep memory that was taken from being freed while arrays on it live."""
        for made in cls._made:
            for array in arrays:
                pinned = made._pin(made.address, array.ctypes.data)
                weakref.finalize(array, made._unpin, made.address, pinned).atexit = False

    @classmethod
    def problem(cls) -> str:
        """Return why results are copied, as far as that is known before the exchange is tried; empty if they are not.

        Raises
        ------
        EngineError
            ``PYOPS_EXCHANGE`` is neither 0 nor 1.
        """
        setting = os.environ.get(cls._VARIABLE, "1")
        if setting not in ("0", "1"):
            raise EngineError(f"{cls._VARIABLE} is {setting!r}; set it to 0 to copy results, or to 1 (the default)")
        return cls._untested() if setting == "1" else f"{cls._VARIABLE} is 0"

    @staticmethod
    @functools.cache
    def _untested() -> str:
        import onnxruntime

        here = {
            "onnxruntime": onnxruntime.__version__,
            "Python": ".".join(map(str, sys.version_info[:2])),
            "the system": HOST,
        }
        found = [f"{name} {here[name]}" for name, tested in EXCHANGE.items() if here[name] not in tested]
        others = set(onnxruntime.get_available_providers()) - {"CPUExecutionProvider", "AzureExecutionProvider"}
        found += [f"an onnxruntime with {name}" for name in sorted(others)]
        return f"not tested with {', '.join(found)}" if found else ""

    def _is_known(self) -> bool:
        """Try the exchange on two values; return whether they are as this module expects."""
        api, size = self._api, 2**16
        dims, kind = words(size), ort_code(np.dtype(np.uint8))
        create = functools.partial(api.get, c_void_p, api.CreateTensorWithDataAndDeleterAsOrtValue, self.address)
        data = [self._allocate(address_of(self._memory.words), size) for _ in range(2)]
        values = [create(at, size, address_of(dims), 1, kind) for at in data]
        raw = [(c_int64 * _VALUE_WORDS).from_address(value) for value in values]
        counts = [c_int32.from_address(memory[_COUNTER] + 8 * _COUNT) for memory in raw]

        def seen() -> list[Any]:
            at = c_void_p()
            found = []
            for value in values:
                api.check(api.GetTensorMutableData(c_void_p(value), byref(at)))
                found.append(at.value)
            return [*found, *[count.value for count in counts], raw[0][_TYPE] == raw[1][_TYPE]]

        first = (c_int64 * 1)(values[0])
        before = seen()
        sequence = api.get(c_void_p, api.CreateValue, addressof(first), 1, 2)
        shared = seen()
        api.ReleaseValue(sequence)
        self._exchange(*values)
        after = seen()
        for value in values:
            api.ReleaseValue(value)
        one, other = data
        return [before, shared, after] == [[one, other, 1, 1, True], [one, other, 2, 1, True], [other, one, 1, 1, True]]
