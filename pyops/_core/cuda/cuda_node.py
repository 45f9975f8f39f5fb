"""Nodes whose op has a CUDA kernel, called with CuPy arrays on the session's stream.

Kernels queue work on that stream, and nothing here waits for it.
"""

from __future__ import annotations

import contextlib
import gc
from ctypes import addressof, c_int, c_void_p
from typing import Any

from ..._support.element_types import DType, dtype_name, is_viewable
from ...errors import InputError, PyopsError, add_note
from ..ops.op import kernel_of
from ..runtime.native.borrowing import extra_references, warn_kept
from ..runtime.native.c_api import Api
from ..runtime.native.kernel_node import ALWAYS, KernelNode, Learn, read_only_copy
from ..runtime.native.ort_custom_op import HostedOp
from . import devices
from .cuda_arguments import check_returned, on_host
from .cuda_memory import CudaWorkspace, arena_of
from .devices import BREAKING_STATUSES, OUT_OF_MEMORY, cupy_with_gpu, is_cupy

_CAPTURE = range(900, 909)  # of cudaError_t

_CAPTURING = (
    "the session captures a CUDA graph (enable_cuda_graph), but this node cannot be captured: during a capture, "
    "nothing may wait for the GPU or be copied to the host (cupy.asnumpy, .get(), float(x), x.item(), an if on an "
    "array's value, synchronize()). Compute it on the GPU, or remove enable_cuda_graph from the provider's options"
)
_READ_ONCE = (
    "{}: the session captures a CUDA graph (enable_cuda_graph), and the host inputs ({}) would be read only during the "
    "capture; make each a constant (an initializer) or an attribute, or remove enable_cuda_graph from the provider's "
    "options"
)
_LATE = (
    "CUDA reports such an error when the GPU reaches it, so an earlier node may have caused it; set "
    "CUDA_LAUNCH_BLOCKING=1 before the process starts to have it raised where it occurs. This process can no "
    "longer use the GPU"
)
_FULL = "the session's arena is full; gpu_mem_limit in the CUDA provider's options limits its size"


def explanation(error: BaseException, captured: bool) -> str | None:
    """Return a note for a kernel's exception; None if it is not CUDA's, or needs no explanation.

    Parameters
    ----------
    captured : bool
        Whether the kernel was called during a graph capture.
    """
    if type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends"):
        status = getattr(error, "status", None)
        if isinstance(error, MemoryError) or status == OUT_OF_MEMORY:
            return _FULL
        if status in _CAPTURE:
            return _CAPTURING
        return _LATE if status in BREAKING_STATUSES else None
    # CuPy rejects most calls that cannot be captured before CUDA sees them, and torch all of them: a RuntimeError
    # without a status.
    refused = isinstance(error, RuntimeError) and not isinstance(error, PyopsError)
    return _CAPTURING if refused and captured else None


def is_capturing(stream: Any) -> bool:
    """Return whether a CuPy stream is being captured, even into a graph that is already invalid."""
    try:
        return bool(stream.is_capturing())
    except RuntimeError as error:
        # Without a status, it is CuPy's error for an invalid capture; with one, CUDA's, left by an earlier failure.
        return getattr(error, "status", None) is None


def void_capture(cupy: Any, stream: Any) -> None:
    """Invalidate the graph that a stream is being captured into.

    ONNX Runtime ends a capture in which a node failed like any other, and replays its contents from then on. From an
    invalid capture CUDA creates no graph: ending it is an error, and the next run captures again.
    """
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.streamSynchronize(stream.ptr)  # forbidden during a capture, so it invalidates it


class CudaNode(KernelNode):
    """A node of a session that a CUDA kernel computes.

    Attributes
    ----------
    failed : list
        The exception that a call during the capture of a CUDA graph raised last, until taken.

    Raises
    ------
    InputError
        As for `KernelNode`; or CuPy does not support a tensor's type (strings, 4-bit elements).
    MissingDependencyError
        CuPy is not installed.
    DeviceError
        CuPy finds no GPU.
    """

    device_type = "cuda"

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        super().__init__(api, info, hosted)
        signature, dtypes = self._signature, self.info.input_dtypes
        self._array_module = self._cupy = cupy_with_gpu(f"the CUDA kernel of {signature.qualified_name}")
        self._only_dtype = None  # NumPy arrays are no results of a CUDA kernel
        self._arena = arena_of(self._cupy, api, info)
        self.failed: list[BaseException] = []
        self._on_host = on_host(signature, len(dtypes), hosted.host_inputs)
        self._hosts = [present and stays for present, stays in zip(self._present, self._on_host, strict=True)]
        hosts = [index for index, stays in enumerate(self._hosts) if stays]
        self._on_device = [index for index, present in enumerate(self._present) if present and index not in hosts]
        self._read_once = [index for index in hosts if not _is_constant(api, info, index)]
        name = signature.qualified_name
        for item, dtype, stays in zip(signature.parameters(len(dtypes)), dtypes, self._on_host, strict=True):
            if dtype is not None and not stays and not is_viewable(dtype):
                raise InputError(
                    f"{name}: input {item.name!r} is {dtype_name(dtype)}, which CuPy does not support; have the CUDA "
                    f"kernel take it on the host: host_inputs=({item.name!r},)"
                )
        for dtype in self.info.output_dtypes:
            if not is_viewable(dtype):
                raise InputError(
                    f"{name}: an output is {dtype_name(dtype)}, which CuPy does not support; leave the op to its CPU "
                    "kernel"
                )

    def _call(self, context: c_void_p, workspace: Any, passed: list[Any], learn: Learn | None) -> None:
        """Run the kernel and fill the outputs; work that the kernel queued may still be running on return."""
        address = self._api.get(c_void_p, self._api.KernelContext_GetGPUComputeStream, context)
        stream, cuda = devices.cupy_stream(self._cupy, address or 0), self._cupy.cuda
        try:
            # A new Device object for each call: some CuPy versions store the previous device in it, which is not
            # thread-safe.
            with cuda.Device(self._arena.device), stream, cuda.using_allocator(self._arena.malloc):
                if self._read_once and stream.is_capturing():
                    parameters = list(self._signature.parameters(len(self._on_host)))
                    names = ", ".join(repr(parameters[index].name) for index in self._read_once)
                    raise InputError(_READ_ONCE.format(self._signature.qualified_name, names))
                super()._call(context, workspace, passed, learn)
        except BaseException as error:
            self._explain(error, context.value or 0, passed)  # before the note on CUDA
            captured = is_capturing(stream)
            note = explanation(error, captured)
            if note is not None:
                add_note(error, note)
            if captured:
                self.failed[:] = [error]
                void_capture(self._cupy, stream)
            raise

    def _check_kept(self, context: int, passed: list[Any]) -> None:
        memories = [array.data.mem for array in passed if is_cupy(array)]
        passed.clear()
        if self.keeper is not self.op.kernels.get("cuda") and any(extra_references(memories)):
            gc.collect()  # a cycle of an exception and its frames may be what keeps them
            if any(extra_references(memories)):
                self.keeper = self.op.kernels.get("cuda")  # which gets copies from now on
                warn_kept(self.op, "a CuPy array", ": ONNX Runtime owns its memory, and reuses it from now on")

    def _new_workspace(self) -> CudaWorkspace:
        return CudaWorkspace(self._api, self._arena)

    def _read(self, context: c_void_p, workspace: CudaWorkspace, into: list[Any]) -> None:
        """Append the inputs: host inputs as copies, the others as arrays on ONNX Runtime's memory."""
        get = self._api.KernelContext_GetInput
        if True in self._hosts:
            workspace.read(get, context, self._hosts, into)
            into[:] = map(read_only_copy, into)
        else:
            into += [None] * len(self._hosts)
        for index in self._on_device:
            into[index] = workspace.view(get, context, index)
        # The op may have lost its CUDA kernel, or have a new one with other host inputs than the session was created
        # with.
        if "cuda" not in self.op.kernels:
            kernel_of(self.op, "cuda")
        wanted = self.op.host_inputs
        if wanted != self._hosted.host_inputs:
            for index, to_host in enumerate(on_host(self._signature, len(into), wanted)):
                if not self._present[index] or to_host == self._on_host[index]:
                    continue
                array = into[index]
                into[index] = devices.asnumpy(array) if to_host else devices.asarray(self._cupy, array)

    def _lender_for(self, info: int) -> Any:
        return ALWAYS  # an array on the device keeps the arena's pages mapped

    def _copy(self, array: Any) -> Any:
        return devices.copy(array) if is_cupy(array) else array

    def _is_written(self, output: Any, buffer: Any) -> bool:
        return output is buffer and buffer.flags.c_contiguous

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return devices.empty(self._cupy, shape, dtype)

    def _checked(self, result: Any) -> tuple[Any, ...]:
        check_returned(self._signature, result)
        return super()._checked(result)


def _is_constant(api: Api, info: int, index: int) -> bool:
    constant, value = c_int(), c_void_p()
    api.check(api.KernelInfoGetConstantInput_tensor(info, index, addressof(constant), addressof(value)))
    return bool(constant.value)
