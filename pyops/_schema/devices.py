"""Where arrays lie: the device types, and CuPy, which is imported when something first needs a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Literal, get_args

from ..errors import DeclarationError, DeviceError, MissingDependencyError

DeviceType = Literal["cpu", "cuda"]
DEVICE_TYPES = get_args(DeviceType)
CUDA_PROVIDER = "CUDAExecutionProvider"

OUT_OF_MEMORY = 2
"""The ``cudaError_t`` for it, which CuPy's errors have as `status`."""

BREAKING_STATUSES = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""Those after which the process can use the GPU no more; of what was launched before, and told later."""

_INSTALL = 'pip install "onnx-pyops[cuda]" on a machine with an NVIDIA GPU'


def check_device_type(device_type: Any, where: str) -> None:
    """Refuse what is no device type.

    Raises
    ------
    DeclarationError
        It is neither ``"cpu"`` nor ``"cuda"``.
    """
    if device_type not in DEVICE_TYPES:
        raise DeclarationError(f"{where} got {device_type!r}; expected {' or '.join(map(repr, DEVICE_TYPES))}")


def check_device_types(device_types: Any, op_type: str) -> tuple[str, ...]:
    """The device types that a declaration names, as a tuple.

    Raises
    ------
    DeclarationError
        They are none, one is unknown, or one is there twice.
    """
    where = f"{op_type}: device_types"
    if isinstance(device_types, str) or not isinstance(device_types, Iterable):
        raise DeclarationError(f'{where} is {device_types!r}; write a tuple: device_types=("cpu", "cuda")')
    named = tuple(device_types)
    for device_type in named:
        check_device_type(device_type, where)
    if not named or len(set(named)) != len(named):
        problem = "names a device type twice" if named else "is empty"
        raise DeclarationError(f'{where} {problem}; write ("cpu",), ("cuda",) or ("cpu", "cuda")')
    return named


def is_cupy(array: Any) -> bool:
    """Whether it is an array of CuPy, which is not imported to find out: that takes seconds."""
    return type(array).__module__.partition(".")[0] == "cupy"


def cupy(purpose: str) -> Any:
    """CuPy.

    Parameters
    ----------
    purpose : str
        What needs it, for the error: ``"the CUDA kernel of ops::Halve"``.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    try:
        import cupy
    except ImportError as error:
        raise MissingDependencyError(f"{purpose} needs CuPy and onnxruntime-gpu; {_INSTALL}") from error
    return cupy


def cupy_with_gpu(purpose: str) -> Any:
    """CuPy, where it has a GPU to run on.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    DeviceError
        It finds no GPU.
    """
    module = cupy(purpose)
    with contextlib.suppress(Exception):  # CuPy 13's, of a driver that is missing or too old
        if module.cuda.is_available():
            return module
    reason: Exception | None = None
    try:
        module.cuda.runtime.getDeviceCount()
    except Exception as error:
        reason = error
    if getattr(reason, "status", None) in BREAKING_STATUSES:
        raise DeviceError(f"{purpose} needs an NVIDIA GPU: {broken(str(reason))}") from reason
    raise DeviceError(
        f"{purpose} needs an NVIDIA GPU, and CuPy finds none here (python -m pyops doctor says what it sees); "
        f"{_INSTALL}, or register a kernel for the CPU"
    ) from reason


def broken(words: str) -> str:
    """Return what to say of CUDA after one of `BREAKING_STATUSES`, which CUDA puts into these words."""
    return (
        f"an earlier error ({words}) has left CUDA unusable for this process; start it again "
        "(CUDA_LAUNCH_BLOCKING=1 has such an error raised where it is made)"
    )


class _ForeignStream:
    """What CuPy takes for a stream of somebody else's."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def stream(cupy: Any, pointer: int) -> Any:
    """CuPy's object for a ``cudaStream_t`` that somebody else owns; 0 is CUDA's default stream."""
    if not pointer:
        return cupy.cuda.Stream.null
    # CuPy 13 has the one, and CuPy 14 warns of it.
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_ForeignStream(pointer))
    return cupy.cuda.ExternalStream(pointer)
