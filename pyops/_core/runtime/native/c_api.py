"""The functions and structures of ONNX Runtime's C API that the native engine uses, through ctypes.

Slots of ``OrtApi`` and fields of ``OrtCustomOp`` never move; ONNX Runtime only appends. API version 25 is the first
with everything used here, so every later ONNX Runtime provides a compatible table.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import re
from collections.abc import Callable
from ctypes import PYFUNCTYPE, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...._support.system import HOST
from ...._support.tested_releases import OLDEST, is_older
from ....errors import EngineError

API_VERSION = 25
ORT_FAIL = 1
_OUT_OF_MEMORY = re.compile("Failed to allocate memory|storage size overflow")

# For functions called for every tensor of every call, no argtypes are declared: converting arguments is most of a
# call's cost. Pointers must then be ctypes objects (c_void_p, byref), never ints, which would be truncated to 32 bits;
# small Python ints are fine for counts.
_UNCHECKED: tuple[Any, ...] = ()

# The functions used, with their slots in OrtApi and their parameters. All return an OrtStatus* (None on success),
# except the Release functions.
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateStatus": (0, (c_int, c_char_p)),
    "GetErrorMessage": (2, (c_void_p,)),
    "CreateCustomOpDomain": (26, (c_char_p, c_void_p)),
    "CustomOpDomain_Add": (27, (c_void_p, c_void_p)),
    "AddCustomOpDomain": (28, (c_void_p, c_void_p)),
    "GetTensorMutableData": (51, _UNCHECKED),
    "GetStringTensorDataLength": (53, (c_void_p, c_void_p)),
    "GetStringTensorContent": (54, (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)),
    "CastTypeInfoToTensorInfo": (55, (c_void_p, c_void_p)),
    "CreateTensorTypeAndShapeInfo": (57, (c_void_p,)),
    "SetTensorElementType": (58, (c_void_p, c_int)),
    "SetDimensions": (59, (c_void_p, c_void_p, c_size_t)),
    "GetTensorElementType": (60, (c_void_p, c_void_p)),
    "MemoryInfoGetId": (72, (c_void_p, c_void_p)),
    "MemoryInfoGetType": (74, (c_void_p, c_void_p)),
    "AllocatorAlloc": (75, (c_void_p, c_size_t, c_void_p)),
    "AllocatorFree": (76, (c_void_p, c_void_p)),
    "GetDimensionsCount": (61, (c_void_p, c_void_p)),
    "GetDimensions": (62, (c_void_p, c_void_p, c_size_t)),
    "GetSymbolicDimensions": (63, (c_void_p, c_void_p, c_size_t)),
    "AllocatorGetInfo": (77, (c_void_p, c_void_p)),
    "GetAllocatorWithDefaultOptions": (78, (c_void_p,)),
    "CreateValue": (82, (c_void_p, c_size_t, c_int, c_void_p)),
    "KernelInfoGetAttribute_float": (85, (c_void_p, c_char_p, c_void_p)),
    "KernelInfoGetAttribute_int64": (86, (c_void_p, c_char_p, c_void_p)),
    "KernelInfoGetAttribute_string": (87, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelContext_GetInput": (90, _UNCHECKED),
    "KernelContext_GetOutput": (91, _UNCHECKED),
    "ReleaseStatus": (93, (c_void_p,)),
    "ReleaseValue": (96, (c_void_p,)),
    "ReleaseTypeInfo": (98, (c_void_p,)),
    "ReleaseTensorTypeAndShapeInfo": (99, (c_void_p,)),
    "ReleaseCustomOpDomain": (101, (c_void_p,)),
    "ReleaseAllocator": (132, (c_void_p,)),
    "KernelInfoGetAttributeArray_float": (162, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelInfoGetAttributeArray_int64": (163, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "KernelContext_GetGPUComputeStream": (193, (c_void_p, c_void_p)),
    "KernelInfo_GetInputCount": (230, (c_void_p, c_void_p)),
    "KernelInfo_GetOutputCount": (231, (c_void_p, c_void_p)),
    "KernelInfo_GetInputName": (232, (c_void_p, c_size_t, c_void_p, c_void_p)),
    "KernelInfo_GetInputTypeInfo": (234, (c_void_p, c_size_t, c_void_p)),
    "KernelInfo_GetOutputTypeInfo": (235, (c_void_p, c_size_t, c_void_p)),
    "KernelInfoGetAttribute_tensor": (236, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "GetSessionConfigEntry": (238, (c_void_p, c_char_p, c_void_p, c_void_p)),
    "GetKeyValuePairs": (298, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "ReleaseKeyValuePairs": (300, (c_void_p,)),
    "GetSessionOptionsConfigEntries": (379, (c_void_p, c_void_p)),
    "KernelInfo_GetNodeName": (244, (c_void_p, c_void_p, c_void_p)),
    "KernelInfoGetConstantInput_tensor": (249, (c_void_p, c_size_t, c_void_p, c_void_p)),
    "GetResizedStringTensorElementBuffer": (252, (c_void_p, c_size_t, c_size_t, c_void_p)),
    "ShapeInferContext_GetInputCount": (267, (c_void_p, c_void_p)),
    "ShapeInferContext_GetInputTypeShape": (268, (c_void_p, c_size_t, c_void_p)),
    "ShapeInferContext_GetAttribute": (269, (c_void_p, c_char_p, c_void_p)),
    "ShapeInferContext_SetOutputTypeShape": (270, (c_void_p, c_size_t, c_void_p)),
    "SetSymbolicDimensions": (271, (c_void_p, c_void_p, c_size_t)),
    "ReadOpAttr": (272, (c_void_p, c_int, c_void_p, c_size_t, c_void_p)),
    "KernelContext_ParallelFor": (274, (c_void_p, c_void_p, c_size_t, c_size_t, c_void_p)),
    "CreateTensorWithDataAndDeleterAsOrtValue": (
        292,
        (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_void_p),
    ),
    "KernelInfoGetAllocator": (278, (c_void_p, c_int, c_void_p)),
    "GetTensorElementTypeAndShapeDataReference": (414, _UNCHECKED),
    "KernelInfoGetAttributeArray_string": (417, (c_void_p, c_char_p, c_void_p, c_void_p, c_void_p)),
}


class Api:
    """An ``OrtApi`` table; each function is an attribute with its C name.

    Pointers are plain ints and output parameters are addresses, except for `_UNCHECKED` functions. PYFUNCTYPE keeps the
    GIL: none of these calls takes long or calls back.
    """

    def __init__(self, table: int) -> None:
        self._table = table
        for name, (_, parameters) in _FUNCTIONS.items():
            address = self.address(name)
            if not address:
                raise EngineError(f"this ONNX Runtime's C API lacks {name}; pyops needs onnxruntime {OLDEST} or later")
            setattr(self, name, PYFUNCTYPE(c_void_p, *parameters)(address))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def address(self, name: str) -> int:
        """Return the address of a function; 0 if this ONNX Runtime lacks it."""
        return c_void_p.from_address(self._table + _FUNCTIONS[name][0] * ctypes.sizeof(c_void_p)).value or 0

    def check(self, status: int | None) -> None:
        """Raise the error that an ``OrtStatus*`` describes and release it; do nothing for None.

        Raises
        ------
        EngineError
            The call failed; the message is ONNX Runtime's.
        MemoryError
            The requested memory could not be allocated.
        """
        if status:
            message = ctypes.string_at(self.GetErrorMessage(status)).decode(errors="replace")
            self.ReleaseStatus(status)
            raise (MemoryError if _OUT_OF_MEMORY.search(message) else EngineError)(message)

    def get(self, kind: type[ctypes._SimpleCData[Any]], function: Callable[..., int | None], *arguments: Any) -> Any:
        """Call `function` with an out-parameter of ctypes type `kind` appended, and return its value.

        The value is None for a null pointer.

        Raises
        ------
        EngineError
            The call failed.
        """
        out = kind()
        self.check(function(*arguments, ctypes.addressof(out)))
        return out.value

    def status(self, message: str) -> int:
        """Create an ``OrtStatus*`` with a message; ONNX Runtime takes ownership."""
        text = message.replace("\0", "\\0").encode(errors="replace")
        try:
            created: int = self.CreateStatus(ORT_FAIL, text)
        except ctypes.ArgumentError as error:  # what ctypes makes of a RecursionError
            raise RecursionError(str(error)) from None
        return created


@functools.cache
def api_from_table(table: int) -> Api:
    """Return the functions of the ``OrtApi*`` that ONNX Runtime passes to a callback."""
    return Api(table)


class Pair(ctypes.Structure):
    """Two pointer-sized arguments as one Python object.

    A structure of two words is passed in the same two registers as two pointers, both on x86-64 (System V) and on
    AArch64; on Windows, `immortal` puts one together. A callback of two C parameters thus takes one Python argument, as
    ``generator.send`` does.
    """

    _fields_ = (("first", c_void_p), ("second", c_void_p))


class Question(ctypes.Structure):
    """The arguments of ONNX Runtime's query about one of an op's tensors; its ``__index__`` is the position.

    A structure of two words, as `Pair`. It converts to its position without running bytecode.
    """

    _fields_ = (("op", c_void_p), ("position", c_size_t))

    __index__ = property(operator.attrgetter("position.__index__"))


# The fields of ``OrtCustomOp`` after its version, in order, with the prototypes of their callbacks; None if unused.
# Prototypes without parameters ignore the arguments, which the calling convention passes in registers.
PROTOTYPES: dict[str, Any] = {
    "CreateKernel": None,
    "GetName": PYFUNCTYPE(c_void_p, c_void_p),
    "GetExecutionProviderType": PYFUNCTYPE(c_void_p),
    "GetInputType": PYFUNCTYPE(c_int, Question),
    "GetInputTypeCount": PYFUNCTYPE(c_size_t),
    "GetOutputType": PYFUNCTYPE(c_int, Question),
    "GetOutputTypeCount": PYFUNCTYPE(c_size_t),
    "KernelCompute": None,
    "KernelDestroy": PYFUNCTYPE(None, c_void_p),
    "GetInputCharacteristic": PYFUNCTYPE(c_int, Question),
    "GetOutputCharacteristic": PYFUNCTYPE(c_int, Question),
    "GetInputMemoryType": PYFUNCTYPE(c_int, Question),
    "GetVariadicInputMinArity": PYFUNCTYPE(c_int),
    "GetVariadicInputHomogeneity": PYFUNCTYPE(c_int),
    "GetVariadicOutputMinArity": PYFUNCTYPE(c_int),
    "GetVariadicOutputHomogeneity": PYFUNCTYPE(c_int),
    "CreateKernelV2": PYFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "KernelComputeV2": PYFUNCTYPE(c_void_p, Pair),
    "InferOutputShapeFn": PYFUNCTYPE(c_void_p, Pair),
    "GetStartVersion": PYFUNCTYPE(c_int),
    "GetEndVersion": PYFUNCTYPE(c_int),
    "GetMayInplace": PYFUNCTYPE(c_size_t, c_void_p, c_void_p),
    "ReleaseMayInplace": PYFUNCTYPE(None),
    "GetAliasMap": None,
    "ReleaseAliasMap": None,
}


class OrtCustomOp(ctypes.Structure):
    """``OrtCustomOp`` of API version 25; unused callbacks are null."""

    _fields_ = (("version", c_uint32), *((name, c_void_p) for name in PROTOTYPES))


# The C library beside the Python bindings, by system; braces stand for the version.
_LIBRARIES = {
    "linux-x86-64": "libonnxruntime.so.{}",
    "linux-aarch64": "libonnxruntime.so.{}",
    "windows-x86-64": "onnxruntime.dll",
    "macos-arm64": "libonnxruntime.{}.dylib",
}


@functools.cache
def load() -> Api:
    """Return the C API of the installed ONNX Runtime.

    It belongs to a second copy of the library that the Python bindings contain: enough to create domains and to add
    them to session options. Callbacks use the table that ONNX Runtime passes in.

    Raises
    ------
    EngineError
        The platform is not supported, or the installed onnxruntime has no such library or is too old.
    """
    from onnxruntime import __version__
    from onnxruntime.capi import onnxruntime_pybind11_state as bindings

    if HOST not in _LIBRARIES:
        raise EngineError(f"pyops hosts kernels in ONNX Runtime's C API on {', '.join(_LIBRARIES)}; this is {HOST}")
    if is_older(__version__, OLDEST):
        package = min(packages_distributions().get("onnxruntime", ["onnxruntime"]))
        raise EngineError(
            f'pyops needs onnxruntime {OLDEST} or later; {__version__} is installed: pip install "{package}>={OLDEST}"'
        )
    path = Path(bindings.__file__).with_name(_LIBRARIES[HOST].format(__version__))
    try:
        library = ctypes.PyDLL(str(path))
        library.OrtGetApiBase.restype = c_void_p
        get_api = PYFUNCTYPE(c_void_p, c_uint32)(c_void_p.from_address(library.OrtGetApiBase()).value or 0)
        table = get_api(API_VERSION)
    except (OSError, AttributeError) as error:
        raise EngineError(f"{path} is not the C library of ONNX Runtime {__version__}: {error}") from error
    if not table:
        raise EngineError(f"ONNX Runtime {__version__} does not offer version {API_VERSION} of its C API")
    return Api(table)
