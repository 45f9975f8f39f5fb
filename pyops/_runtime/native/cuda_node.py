"""One node of a session that an Op's CUDA kernel computes: on CuPy arrays, on the session's own stream.

What the kernel does is queued on that stream, and nothing here waits for it.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from ctypes import addressof, c_int, c_void_p
from typing import Any

from ..._ops.cuda_kernel import check_returned, extra_references, on_host
from ..._ops.op import kernel_of
from ..._schema import cupy_arrays
from ..._schema.devices import BREAKING_STATUSES, OUT_OF_MEMORY, cupy_with_gpu, is_cupy
from ..._schema.dtypes import DType, dtype_name, is_viewable
from ..._schema.node import add_note
from ...errors import BorrowedArrayWarning, InputError, PyopsError
from .c_api import Api
from .cuda_memory import CudaWorkspace, arena_of
from .hosted_op import HostedOp
from .kernel_node import ALWAYS, KernelNode, read_only_copy

_CAPTURE = range(900, 909)  # of cudaError_t

_CAPTURING = (
    "the session captures a CUDA graph (enable_cuda_graph), and this node cannot be captured: within a capture nothing "
    "may wait for the GPU, nor be copied to the host (cupy.asnumpy, .get(), float(x), x.item(), an if on an array's "
    "value, synchronize()). Compute it on the GPU, or take enable_cuda_graph from the provider's options"
)
_LATE = (
    "CUDA tells of such an error when the GPU gets to it, so that an earlier node may have made it; set "
    "CUDA_LAUNCH_BLOCKING=1 before the process starts to have it raised where it is made. This process can use the GPU "
    "no more"
)
_FULL = "the session's arena is full; gpu_mem_limit in the CUDA provider's options says how large it may grow"


def explanation(error: BaseException, captured: bool) -> str | None:
    """What to say of a kernel's exception besides; None where it is none of CUDA's, or says all itself.

    Parameters
    ----------
    captured : bool
        The kernel was called within a capture.
    """
    if type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends"):
        status = getattr(error, "status", None)
        if isinstance(error, MemoryError) or status == OUT_OF_MEMORY:
            return _FULL
        if status in _CAPTURE:
            return _CAPTURING
        return _LATE if status in BREAKING_STATUSES else None
    # CuPy refuses most of what cannot be captured before CUDA sees it, and torch all: a RuntimeError without status.
    refused = isinstance(error, RuntimeError) and not isinstance(error, PyopsError)
    return _CAPTURING if refused and captured else None


def is_capturing(stream: Any) -> bool:
    """Return whether a stream of CuPy is being captured, into a graph that may be void by now."""
    try:
        return bool(stream.is_capturing())
    except (
        RuntimeError
    ) as error:  # CuPy's answer where the capture is no longer valid; or CUDA's, to whatever it is asked
        return getattr(error, "status", None) is None


def void_capture(cupy: Any, stream: Any) -> None:
    """Make the graph that a stream is being captured into void.

    ONNX Runtime ends a capture in which a node failed like any other, and replays what is in it from then on. Of a
    void capture CUDA makes no graph: its end is an error, and the next run captures anew.
    """
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.streamSynchronize(stream.ptr)  # which no captured stream may do


class CudaNode(KernelNode):
    """A node of a session.

    Attributes
    ----------
    failed : list
        Of the last call that raised, until somebody takes it: the exception if it was in a capture, and else None.

    Raises
    ------
    InputError
        As `KernelNode`; or a tensor of the node cannot lie on a GPU (strings, 4-bit elements).
    MissingDependencyError
        CuPy is not installed.
    DeviceError
        CuPy finds no GPU.
    """

    device_type = "cuda"

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        super().__init__(api, info, hosted)
        signature, dtypes = self._signature, self._node.input_dtypes
        self._array_module = self._cupy = cupy_with_gpu(f"the CUDA kernel of {signature.qualified_name}")
        # What NumPy's array of this dtype is in a CPU kernel: a result that needs no other check.
        self._only_cupy_dtype, self._only_dtype = self._only_dtype, None
        self._arena = arena_of(self._cupy, api, info)
        self.failed: list[BaseException | None] = []
        self._on_host = on_host(signature, len(dtypes), hosted.host_inputs)
        self._hosts = [present and stays for present, stays in zip(self._present, self._on_host, strict=True)]
        hosts = [index for index, stays in enumerate(self._hosts) if stays]
        self._on_device = [index for index, present in enumerate(self._present) if present and index not in hosts]
        self._read_once = [index for index in hosts if not _is_constant(api, info, index)]
        self._check_types()

    def compute(self, context: int) -> None:
        """As `KernelNode.compute`; what the kernel queued may still be running when this returns."""
        workspace = self._workspaces.pop() if self._workspaces else CudaWorkspace(self._api, self._arena)
        handed: list[Any] = []
        pointer = workspace.context
        pointer.value = context
        stream: Any = None
        try:
            address = self._api.get(c_void_p, self._api.KernelContext_GetGPUComputeStream, context)
            arena, stream = self._arena, self._arena.stream(address or 0)
            cuda = self._cupy.cuda
            # A device of its own for each call: some versions of CuPy's keep in it where a thread came from.
            with cuda.Device(arena.device), stream, cuda.using_allocator(arena.malloc):
                if self._read_once and stream.is_capturing():
                    raise self._captured()
                self._read(pointer, workspace, handed)
                self._run(pointer, workspace, handed)
        except BaseException as error:  # an interrupt gets the note, too
            self._explain(error, context, handed)
            captured = stream is not None and is_capturing(stream)
            note = explanation(error, captured)
            if note is not None:
                add_note(error, note)
            self.failed[:] = [error if captured else None]
            if captured:
                void_capture(self._cupy, stream)
            raise
        finally:
            self._workspaces.append(workspace)
        memories = [array.data.mem for array in handed if is_cupy(array)]
        handed.clear()
        if self._keeper is not self.op.kernels.get("cuda") and any(extra_references(memories)):
            gc.collect()  # a cycle of an exception and its frames keeps them as well, and is none of the kernel's doing
            if any(extra_references(memories)):
                self._report_kept_on_gpu()

    def _check_types(self) -> None:
        inputs, outputs = self._node.input_dtypes, self._node.output_dtypes
        name = self._signature.qualified_name
        for item, dtype, stays in zip(self._signature.parameters(len(inputs)), inputs, self._on_host, strict=True):
            if dtype is not None and not stays and not is_viewable(dtype):
                raise InputError(
                    f"{name}: input {item.name!r} is {dtype_name(dtype)}, which CuPy has no arrays of; have the CUDA "
                    f"kernel take it on the host: host_inputs=({item.name!r},)"
                )
        for dtype in outputs:
            if not is_viewable(dtype):
                raise InputError(
                    f"{name}: an output is {dtype_name(dtype)}, which CuPy has no arrays of; leave the op to its CPU "
                    "kernel"
                )

    def _read(self, context: c_void_p, workspace: CudaWorkspace, into: list[Any]) -> None:
        """Add the inputs: host inputs as arrays with memory of their own, the others on ONNX Runtime's."""
        get = self._api.KernelContext_GetInput
        if True in self._hosts:
            workspace.read(get, context, self._hosts, into)
            into[:] = map(read_only_copy, into)
        else:
            into += [None] * len(self._hosts)
        for index in self._on_device:
            into[index] = workspace.view(get, context, index)
        # The op may have no such kernel any more, or another, which wants them elsewhere than the session was told.
        if "cuda" not in self.op.kernels:
            kernel_of(self.op, "cuda")
        wanted = self.op.host_inputs
        if wanted != self._hosted.host_inputs:
            for index, to_host in enumerate(on_host(self._signature, len(into), wanted)):
                if not self._present[index] or to_host == self._on_host[index]:
                    continue
                array = into[index]
                into[index] = cupy_arrays.asnumpy(array) if to_host else cupy_arrays.asarray(self._cupy, array)

    def _lender_for(self, info: int) -> Any:
        return ALWAYS  # an array on the device keeps its arena's pages mapped

    def _copy(self, array: Any) -> Any:
        return cupy_arrays.copy(array) if is_cupy(array) else array

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return cupy_arrays.empty(self._cupy, shape, dtype)

    def _checked(self, result: Any) -> tuple[Any, ...]:
        if type(result) is self._cupy.ndarray and result.dtype == self._only_cupy_dtype:
            return (result,)
        check_returned(self._signature, result)
        return super()._checked(result)

    def _captured(self) -> InputError:
        parameters = list(self._signature.parameters(len(self._on_host)))
        names = ", ".join(repr(parameters[index].name) for index in self._read_once)
        return InputError(
            f"{self._signature.qualified_name}: the session captures a CUDA graph (enable_cuda_graph), and the host "
            f"input {names} would be read now and never again; feed a constant (an initializer), make it an attribute, "
            "or take enable_cuda_graph from the provider's options"
        )

    def _report_kept_on_gpu(self) -> None:
        self._keeper = self.op.kernels.get("cuda")
        warnings.warn(
            f"{self._signature.qualified_name} kept a CuPy array that it was handed, or a view of one, which is valid "
            "during its call only: it is on memory of ONNX Runtime's, which others write to from now on. The kernel "
            f"gets copies in later calls. Keep a copy instead: x.copy() ({self.op.location})",
            BorrowedArrayWarning,
            stacklevel=2,
        )


def _is_constant(api: Api, info: int, index: int) -> bool:
    constant, value = c_int(), c_void_p()
    api.check(api.KernelInfoGetConstantInput_tensor(info, index, addressof(constant), addressof(value)))
    return bool(constant.value)
