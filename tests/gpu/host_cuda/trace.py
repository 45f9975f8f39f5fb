"""Trace of what is asked of CUDA: launches, copies, waits and allocations, and on which stream and device.

.. code-block:: python

    with traced() as trace:
        session.run_with_iobinding(binding)
    assert trace.steps == ["launch add_one"]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.gpu.host_cuda import runtime

# How calls are told; other calls are no steps.
STEPS = {
    "cuLaunchKernel": "launch {name}",
    "cudaLaunchKernel": "launch {name}",
    "cudaMemcpyAsync": "copy {kind} {bytes}",
    "cudaMemcpy2DAsync": "copy {kind} {bytes}",
    "cudaMemcpy": "copy and wait {kind} {bytes}",
    "cudaMemsetAsync": "fill {bytes}",
    "cudaMalloc": "allocate {bytes}",
    "cudaFree": "free",
    "cudaEventRecord": "record an event",
    "cudaEventSynchronize": "wait for the event",
    "cudaStreamWaitEvent": "have the stream wait for the event",
    "cudaStreamSynchronize": "wait for the stream",
    "cudaDeviceSynchronize": "wait for the device",
    "cudaStreamBeginCapture": "begin a capture",
    "cudaStreamEndCapture": "end the capture",
    "cudaGraphInstantiate": "make a graph of {nodes}",
    "cudaGraphLaunch": "replay the graph",
    "error": "error {status}",
}
LAUNCHES = {"cuLaunchKernel", "cudaLaunchKernel"}
COPIES = {"cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpy"}
# In which the host waits. It also waits in a copy to memory of the host that is not pinned.
WAITS = {"cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy", "cudaFree"}


class Call(NamedTuple):
    """A call of the CUDA runtime, with its arguments as the runtime writes them."""

    name: str
    arguments: dict[str, str]

    @property
    def step(self) -> str:
        """Return it in words."""
        return STEPS[self.name].format_map(self.arguments)

    @property
    def stream(self) -> int:
        """Return the address of its stream; 0 for the default one, and for calls that take none."""
        text = self.arguments.get("stream", "(nil)")
        address = 0 if text == "(nil)" else int(text, 16)
        return 0 if address <= 2 else address


class Trace:
    """The calls made while a `traced` block ran; empty until its end."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    @property
    def steps(self) -> list[str]:
        """Return all of them in words, in order."""
        return [call.step for call in self.calls]

    @property
    def launched(self) -> list[str]:
        """Return the names of the kernels."""
        return [call.arguments["name"] for call in self.calls if call.name in LAUNCHES]

    @property
    def copied(self) -> list[str]:
        """Return the copies: between which places, and how many bytes. H is the host, and D is a device."""
        return ["{kind} {bytes}".format_map(call.arguments) for call in self.calls if call.name in COPIES]

    @property
    def waited(self) -> list[str]:
        """Return what the host waited for, in words."""
        return [call.step for call in self.calls if call.name in WAITS]

    @property
    def allocated(self) -> list[str]:
        """Return the numbers of bytes."""
        return [call.arguments["bytes"] for call in self.calls if call.name == "cudaMalloc"]

    @property
    def streams(self) -> set[int]:
        """Return the streams that work was put on; 0 is the default one."""
        working = LAUNCHES | COPIES | {"cudaMemsetAsync", "cudaGraphLaunch"}
        return {call.stream for call in self.calls if call.name in working}

    @property
    def devices(self) -> set[str]:
        """Return the devices that kernels were launched on."""
        return {call.arguments["device"] for call in self.calls if call.name in LAUNCHES}


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace the CUDA runtime on host memory, in all threads."""
    trace = Trace()
    runtime.take_trace()
    runtime.library().host_cuda_set_tracing(1)
    try:
        yield trace
    finally:
        runtime.library().host_cuda_set_tracing(0)
        for line in runtime.take_trace():
            name, *arguments = line.split(" ")
            if name in STEPS:
                trace.calls.append(Call(name, dict(argument.split("=", 1) for argument in arguments)))
