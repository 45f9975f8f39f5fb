"""Device types, access to CuPy (imported only when something needs a GPU), and CuPy arrays of every element type.

CuPy can view an array as bfloat16 or a float8 type, but depending on its version cannot create, copy or fetch one. The
functions here do so through unsigned integers of the same size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Any, Literal, get_args

import numpy as np

from ..._support.element_types import DType
from ...errors import DeclarationError, DeviceError, MissingDependencyError

DeviceType = Literal["cpu", "cuda"]
DEVICE_TYPES = get_args(DeviceType)
CUDA_PROVIDER = "CUDAExecutionProvider"

OUT_OF_MEMORY = 2
"""``cudaErrorMemoryAllocation``, the `status` of CuPy's error when the GPU has no memory left."""

BREAKING_STATUSES = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""``cudaError_t`` values after which the process can no longer use the GPU.

CUDA reports them asynchronously: the call that raises is not the one at fault.
"""

_USER_DEFINED = 2  # dtype.isbuiltin of a type that another package (ml_dtypes) registered with NumPy

_INSTALL = 'pip install "onnx-pyops[cuda]" on a machine with an NVIDIA GPU'


def check_device_types(device_types: Any, op_type: str) -> tuple[str, ...]:
    """Validate the ``device_types`` of a declaration and return them as a tuple.

    Raises
    ------
    DeclarationError
        They are not in a sequence, there are none, one is unknown, or one is repeated.
    """
    named = () if isinstance(device_types, str) or not isinstance(device_types, Iterable) else tuple(device_types)
    if not named or any(item not in DEVICE_TYPES for item in named) or len(set(named)) < len(named):
        raise DeclarationError(
            f'{op_type}: device_types is {device_types!r}; write ("cpu",), ("cuda",) or ("cpu", "cuda")'
        )
    return named


def is_cupy(array: Any) -> bool:
    """Return whether `array` is a CuPy array, without importing CuPy, which takes seconds."""
    return type(array).__module__.partition(".")[0] == "cupy"


def cupy(purpose: str) -> Any:
    """Import CuPy and return the module.

    Parameters
    ----------
    purpose : str
        What needs CuPy, for the error message: ``"the CUDA kernel of ops::Halve"``.

    Raises
    ------
    MissingDependencyError
        CuPy is not installed.
    """
    try:
        import cupy
    except ImportError as error:
        raise MissingDependencyError(f"{purpose} needs CuPy and onnxruntime-gpu; {_INSTALL}") from error
    return cupy


def cupy_with_gpu(purpose: str) -> Any:
    """Import CuPy, check that it finds a GPU, and return the module.

    Parameters
    ----------
    purpose : str
        As for `cupy`.

    Raises
    ------
    MissingDependencyError
        CuPy is not installed.
    DeviceError
        CuPy finds no GPU, or an earlier error has left CUDA unusable.
    """
    module = cupy(purpose)
    reason: Exception | None = None
    try:
        if module.cuda.runtime.getDeviceCount():
            return module
    except Exception as error:
        reason = error
    if getattr(reason, "status", None) in BREAKING_STATUSES:
        raise DeviceError(f"{purpose} needs an NVIDIA GPU: {broken(str(reason))}") from reason
    raise DeviceError(
        f"{purpose} needs an NVIDIA GPU, but CuPy finds none here (python -m pyops doctor shows what it sees); "
        f"{_INSTALL}, or register a kernel for the CPU"
    ) from reason


def broken(words: str) -> str:
    """Return the message for one of `BREAKING_STATUSES`.

    Parameters
    ----------
    words : str
        CUDA's own message.
    """
    return (
        f"an earlier error ({words}) has left CUDA unusable for this process; restart it "
        "(CUDA_LAUNCH_BLOCKING=1 makes CUDA raise such an error at the call that causes it)"
    )


class _ForeignStream:
    """A stream owned by another library, in the protocol that CuPy accepts."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def cupy_stream(cupy: Any, pointer: int) -> Any:
    """Return CuPy's object for a ``cudaStream_t`` that another library owns; 0 is CUDA's default stream."""
    if not pointer:
        return cupy.cuda.Stream.null
    # CuPy 13 has only ExternalStream, which CuPy 14 deprecates.
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_ForeignStream(pointer))
    return cupy.cuda.ExternalStream(pointer)


def asarray(cupy: Any, array: Any) -> Any:
    """Return a copy of a NumPy array on the GPU."""
    return _through_bits(cupy.asarray, array)


def asnumpy(array: Any) -> Any:
    """Return a copy of a CuPy array on the host, and any other value unchanged.

    Blocks until the array has been computed.
    """
    return _through_bits(sys.modules["cupy"].asnumpy, array) if is_cupy(array) else array


def copy(array: Any) -> Any:
    """Return a copy of a CuPy array in new memory."""
    return _through_bits(methodcaller("copy"), array)


def copy_to_cupy(cupy: Any, target: Any, array: Any) -> None:
    """Copy a CuPy array into `target`, which has the same shape and dtype."""
    cupy.copyto(_bits(target), _bits(array))


def empty(cupy: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return an uninitialized CuPy array."""
    return _view_as(dtype, cupy.empty(shape, _bits_dtype(dtype)))


def _through_bits(function: Callable[[Any], Any], array: Any) -> Any:
    return _view_as(array.dtype, function(_bits(array)))


def _bits(array: Any) -> Any:
    return _view_as(_bits_dtype(array.dtype), array)


def _bits_dtype(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}") if dtype.isbuiltin == _USER_DEFINED else dtype


def _view_as(dtype: DType, array: Any) -> Any:
    return array if array.dtype == dtype else array.view(dtype)
