"""Faults to plant in the CUDA engine, and the tests that see them: ``python -m tests.gpu.faults CACHE [NAME ...]``.

Each fault is one mistake that the engine could contain. It replaces a function or an attribute before any session is
created, in a process of its own, which then runs the tests that are to fail. The processes are forks of one that has
imported everything, since that takes most of the time.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from pyops._core.cuda import cuda_memory, cuda_node, devices
from pyops._core.runtime.native import c_api, ort_custom_op
from tests.gpu.host_cuda import runtime

Node, Workspace = cuda_node.CudaNode, cuda_memory.CudaWorkspace


class Fault(NamedTuple):
    """What plants it, and the tests of this folder that see it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    seen_by: tuple[str, ...]
    harmless_from: int
    """The major version of CuPy with which it is no fault any more."""


FAULTS: dict[str, Fault] = {}
FILES = "tests/gpu/test_traces.py", "tests/gpu/test_gpu_sessions.py", "tests/gpu/test_graphs.py"
MOST_SECONDS = 120  # until a process that hangs ends


def fault(*seen_by: str, harmless_from: int = 999) -> Callable[[Callable[[pytest.MonkeyPatch], None]], None]:
    """Enter the decorated function in `FAULTS`, under its name."""

    def enter(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
        FAULTS[plant.__name__] = Fault(plant, seen_by, harmless_from)

    return enter


class Outcome(NamedTuple):
    """What came of the tests with a fault planted."""

    failed: list[str]
    """Their names."""
    signal: int
    """What ended the process early; 0 if nothing did."""
    output: str


def outcome(name: str) -> Outcome:
    """Run the tests that see a fault, in a process in which it is planted."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "output").open("w+") as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os._exit(_run_with(name, folder))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        text = output.read()
    failed = [line.partition("::")[2] for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return Outcome([test.partition(" ")[0].partition("[")[0] for test in failed], ended_by, text)


def _run_with(name: str, cache: str) -> int:
    signal.alarm(MOST_SECONDS)
    os.environ.pop("CI", None)  # with which pytest prints differences whole, and may take minutes to find them
    FAULTS[name].plant(pytest.MonkeyPatch())
    options = ["-q", "-rfE", "-p", "tests.gpu.host_cuda", "-p", "no:xdist", "-p", "no:faulthandler", "-W", "default"]
    options += ["-o", "addopts=", "-o", f"cache_dir={cache}", "-k", " or ".join(FAULTS[name].seen_by)]
    return pytest.main([*options, *FILES])


def main(cache: str, *names: str) -> None:
    """Print the outcome of each fault as a line of JSON."""
    runtime.start(Path(cache))
    import cupy  # noqa: F401
    import onnxruntime  # noqa: F401

    for name in names or FAULTS:
        print(json.dumps([name, *outcome(name)]), flush=True)


def after(patch: pytest.MonkeyPatch, owner: Any, name: str, more: Callable[..., Any]) -> None:
    """Replace a method: `more` gets its result, and its arguments, and returns what takes the result's place."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: more(real(*given, **named), *given))


# Streams.

OUT = "test_a_kernel_with_out_is_one_launch_and_nothing_else"
RETURNED = "test_a_returned_array_is_copied_once_on_the_device"
GIVEN_STREAM = "test_everything_runs_on_the_stream_that_the_user_gave"


@fault(OUT, RETURNED)
def kernels_on_the_default_stream(patch: pytest.MonkeyPatch) -> None:

    patch.setattr(devices, "cupy_stream", lambda cupy, pointer: cupy.cuda.Stream.null)


@fault(GIVEN_STREAM)
def kernels_on_a_stream_of_their_own(patch: pytest.MonkeyPatch) -> None:

    made: dict[int, Any] = {}

    def stream(cupy: Any, pointer: int) -> Any:
        return made.setdefault(pointer, cupy.cuda.Stream(non_blocking=True))

    patch.setattr(devices, "cupy_stream", stream)


@fault(OUT)
def the_slot_of_another_function(patch: pytest.MonkeyPatch) -> None:
    # KernelContext_GetInputCount's takes the same arguments, and writes a count.
    patch.setitem(c_api._FUNCTIONS, "KernelContext_GetGPUComputeStream", (88, (c_void_p, c_void_p)))


# Devices, memory types and memory.

TWO_DEVICES = "test_sessions_on_two_devices_run_each_on_its_own"


@fault(TWO_DEVICES)
def kernels_on_the_first_device(patch: pytest.MonkeyPatch) -> None:
    after(patch, cuda_memory.Arena, "__init__", lambda none, arena, *_: setattr(arena, "device", 0))


@fault("test_a_host_input_that_lies_on_the_host_is_neither_copied_nor_waited_for")
def host_inputs_in_device_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ort_custom_op, "_CPU_INPUT", 0)  # the host reads them all the same


@fault(OUT)
def device_inputs_in_host_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ort_custom_op, "_DEFAULT_MEMORY", ort_custom_op._CPU_INPUT)


@fault("test_what_kernels_allocate_is_the_session_s_and_is_allocated_once")
def memory_from_cupy_s_own_pool(patch: pytest.MonkeyPatch) -> None:
    import cupy

    own = cupy.get_default_memory_pool().malloc
    after(patch, cuda_memory.Arena, "__init__", lambda none, arena, *_: setattr(arena, "malloc", own))


# What is released too early, or never.

KEPT = "test_what_a_kernel_keeps_outlives_the_session"
LEAK = "test_a_session_s_memory_goes_with_it"


@fault(KEPT)
def blocks_freed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuda_memory, "_Block", lambda owner, address: owner.free(address))


@fault(KEPT)
def inputs_that_do_not_keep_the_arena(patch: pytest.MonkeyPatch) -> None:
    def view(arena: Any, address: int, shape: tuple[int, ...], dtype: Any) -> Any:
        cuda = arena.cupy.cuda
        memory = cuda.UnownedMemory(address, dtype.itemsize * math.prod(shape), None, arena.device)
        return arena.cupy.ndarray(shape, dtype, memptr=cuda.MemoryPointer(memory, 0))

    patch.setattr(cuda_memory.Arena, "view", view)


@fault(KEPT, harmless_from=14)  # whose pools keep what is in use when they go
def pools_dropped_with_the_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuda_memory, "_retire", lambda retired: None)


@fault(LEAK)
def arrays_of_each_call_kept(patch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    after(patch, Workspace, "view", lambda array, *_: kept.append(array) or array)


@fault(LEAK)
def the_arena_never_released(patch: pytest.MonkeyPatch) -> None:
    real = cuda_memory.weakref.finalize

    def finalize(of: Any, *given: Any) -> Any:
        return SimpleNamespace() if isinstance(of, cuda_memory._Owner) else real(of, *given)

    patch.setattr(cuda_memory, "weakref", SimpleNamespace(finalize=finalize))


@fault("test_gpu_mem_limit_holds_for_what_kernels_allocate")
def memory_given_back_while_work_is_queued(patch: pytest.MonkeyPatch) -> None:
    import cupy

    patch.setattr(cupy.cuda.runtime, "deviceSynchronize", lambda: None)


# Waits, copies and reads.


@fault(OUT, RETURNED)
def a_wait_for_the_stream_after_each_kernel(patch: pytest.MonkeyPatch) -> None:
    def wait(none: None, *_: Any) -> None:
        import cupy

        cupy.cuda.get_current_stream().synchronize()

    after(patch, Node, "_invoke", wait)


@fault(RETURNED)
def a_wait_for_the_device_after_each_copy(patch: pytest.MonkeyPatch) -> None:
    def wait(none: None, cupy: Any, *_: Any) -> None:
        cupy.cuda.runtime.deviceSynchronize()

    after(patch, devices, "copy_to_cupy", wait)


@fault(OUT, RETURNED)
def a_look_at_the_result_on_the_host(patch: pytest.MonkeyPatch) -> None:
    def look(outputs: Any, *_: Any) -> Any:
        devices.asnumpy(outputs[0])
        return outputs

    after(patch, Node, "_checked", look)


@fault(OUT)
def inputs_copied(patch: pytest.MonkeyPatch) -> None:
    def copied(array: Any, *_: Any) -> Any:
        return array.copy()

    after(patch, Workspace, "view", copied)


@fault(RETURNED)
def results_not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(devices, "copy_to_cupy", lambda *_: None)


@fault(RETURNED)
def results_copied_twice(patch: pytest.MonkeyPatch) -> None:
    after(patch, devices, "copy_to_cupy", lambda none, cupy, target, array: cupy.copyto(target, array))


@fault(OUT)
def out_not_passed(patch: pytest.MonkeyPatch) -> None:
    after(patch, Node, "__init__", lambda none, node, *_: setattr(node, "takes_buffers", False))


@fault("test_outputs_in_the_memory_of_other_outputs")
def outputs_in_each_other_s_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "_is_in_any", lambda *_: False)


@fault("test_a_kept_array_is_reported")
def kept_arrays_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuda_node, "extra_references", lambda objects: [0] * len(objects))


# Graphs.


@fault("test_no_graph_is_made_of_a_capture_in_which_a_kernel_raised")
def a_graph_of_the_nodes_before_one_that_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cuda_node, "void_capture", lambda cupy, stream: None)


@fault("test_a_host_input_cannot_be_captured")
def host_inputs_read_once_and_replayed(patch: pytest.MonkeyPatch) -> None:
    after(patch, Node, "__init__", lambda none, node, *_: setattr(node, "_read_once", []))


if __name__ == "__main__":
    main(*sys.argv[1:])
