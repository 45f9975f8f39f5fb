"""Streams, devices and memory of CUDA kernels, and arrays that they keep. Without a GPU, see cuda_sessions."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import errors, onnx_op
from pyops._core.runtime.native import op_registration as native
from pyops.testing import Sample, check
from tests.helpers.models import assert_same, chain
from tests.pyops._core.cuda.cuda_ops import F32, X, bits_of, declare, on_the_host, parse
from tests.pyops._core.cuda.cuda_sessions import compute_stream, cuda_session, cupy, logged, needs_the_provider

pytestmark = [needs_the_provider, pytest.mark.usefixtures("cupy")]
__all__ = ["cupy"]


# Stream, device and memory.


def test_the_kernel_runs_on_the_session_s_device_and_stream(cupy) -> None:
    streams = []

    def kernel(x: F32) -> F32:
        streams.append(cupy.cuda.get_current_stream().ptr)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    cupy.log.clear()
    with compute_stream(0x5EED):
        session.run(None, {"x": X})
    assert streams == [0x5EED]
    assert logged() == [
        ("enter device", 0),
        ("enter stream", 0x5EED),
        ("copy", 12, 0x5EED),
        ("leave stream", 0x5EED),
        ("leave device", 0),
    ]


def test_hundreds_of_streams_are_told_apart(cupy) -> None:
    streams = []

    def kernel(x: F32) -> F32:
        streams.append(cupy.cuda.get_current_stream().ptr)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    wanted = [*range(1, 100), 99, 1]
    for pointer in wanted:
        with compute_stream(pointer):
            session.run(None, {"x": X})
    assert streams == wanted


def test_stream_and_device_are_left_when_the_kernel_raises(cupy) -> None:
    def kernel(x: F32) -> F32:
        raise ValueError("not today")

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    cupy.log.clear()
    with pytest.raises(ValueError, match="not today") as raised:
        session.run(None, {"x": X})
    assert [event[0] for event in logged()] == ["enter device", "enter stream", "leave stream", "leave device"]
    assert raised.value.__notes__ == ["in node 'node0' (cuda::Op), inputs x: float32[3] on the GPU"]
    assert cupy.get_allocator() == cupy.get_default_memory_pool().malloc


def test_an_out_is_onnx_runtime_s_own_memory_and_not_copied(cupy) -> None:
    outs = []

    def kernel(x: F32, *, out: F32 | None = None) -> F32:
        outs.append(out is not None and out.shape)
        return cupy.add(x, np.float32(1), out=out)

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: x)
    session = cuda_session(chain("cuda::Op"))
    cupy.log.clear()
    assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]
    assert outs == [(3,)]
    assert "copy" not in {event[0] for event in cupy.log}


def test_outputs_that_the_model_does_not_use_have_buffers_too(cupy) -> None:
    class Both(NamedTuple):
        less: F32
        more: F32

    def kernel(x: F32, *, out: tuple[F32, F32] | None = None) -> Both:
        assert out is not None
        cupy.add(x, np.float32(-1), out=out[0])
        cupy.add(x, np.float32(1), out=out[1])
        return Both(*out)

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: (x, x))
    assert cuda_session(parse("(float[3] x) => (float[3] b) { a, b = cuda.Op(x) }")).run(None, {"x": X})[
        0
    ].tolist() == [*(1, 2, 3)]
    assert cuda_session(parse("(float[3] x) => (float[3] a) { a = cuda.Op(x) }")).run(None, {"x": X})[0].tolist() == [
        *(-1, 0, 1)
    ]
    nameless = parse("(float[3] x) => (float[3] b) { a, b = cuda.Op(x) }")
    nameless.graph.node[0].output[0] = ""
    assert cuda_session(nameless).run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_outputs_in_each_other_s_memory_are_copied_before_it_is_written_to(cupy) -> None:
    def kernel(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        assert out is not None
        cupy.add(x, np.float32(-1), out=out[0])
        cupy.add(x, np.float32(1), out=out[1])
        return out[1][::-1], out[0]

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: (x, x))
    more, less = cuda_session(parse("(float[3] x) => (float[3] a, float[3] b) { a, b = cuda.Op(x) }")).run(
        None, {"x": X}
    )
    assert (more.tolist(), less.tolist()) == ([3, 2, 1], [-1, 0, 1])


def test_an_output_in_its_own_buffer_s_memory_in_another_order_is_right(cupy) -> None:
    def kernel(x: F32, *, out: F32 | None = None) -> F32:
        return cupy.add(x, np.float32(1), out=out)[::-1]

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: x)
    assert cuda_session(chain("cuda::Op")).run(None, {"x": X})[0].tolist() == [3, 2, 1]


def test_allocations_come_from_onnx_runtime_s_arena_and_go_back_with_the_session(cupy, monkeypatch) -> None:
    api = native.ort_api()
    allocated, freed = [], []
    alloc, free = api.AllocatorAlloc, api.AllocatorFree

    def allocate(allocator: int, size: int, out: int) -> Any:
        status = alloc(allocator, size, out)
        allocated.append(ctypes.c_void_p.from_address(out).value)
        return status

    monkeypatch.setattr(api, "AllocatorAlloc", allocate)
    monkeypatch.setattr(
        api, "AllocatorFree", lambda allocator, address: freed.append(address) or free(allocator, address)
    )
    declare(device_types=("cuda",))
    session = cuda_session(chain("cuda::Op", "cuda::Op"))
    session.run(None, {"x": X})
    freed.clear()  # what sessions of other tests had
    for _ in range(3):
        assert session.run(None, {"x": X})[0].tolist() == [2, 3, 4]
    # One block, which both nodes use in turn.
    assert len(allocated) == 1
    assert allocated[0] not in freed
    del session
    assert allocated[0] in freed


def test_streams_do_not_share_what_is_free(cupy) -> None:
    addresses = []

    def kernel(x: F32) -> F32:
        y = x + np.float32(1)
        addresses.append(y.data.ptr)
        return y

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    for stream in (1, 2, 1, 2):
        with compute_stream(stream):
            session.run(None, {"x": X})
    assert addresses[:2] == addresses[2:]
    assert addresses[0] != addresses[1]


def test_what_a_kernel_keeps_of_its_own_outlives_the_session(cupy, monkeypatch) -> None:
    kept = []
    api = native.ort_api()
    freed = []
    real = api.AllocatorFree
    monkeypatch.setattr(
        api, "AllocatorFree", lambda allocator, address: freed.append(address) or real(allocator, address)
    )

    def kernel(x: F32) -> F32:
        kept.append(x + np.float32(1))
        return kept[0]

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    session.run(None, {"x": X})
    freed.clear()
    del session
    assert cupy.asnumpy(kept[0]).tolist() == [1, 2, 3]
    address = kept[0].data.ptr
    assert address not in freed
    kept.clear()
    cuda_session(chain("cuda::Op"))  # which looks through what is left of others
    assert address in freed


def test_allocators_are_released_once_the_last_array_on_their_memory_is_gone(monkeypatch) -> None:
    api = native.ort_api()
    kept: list[Any] = []
    taken, released = [], []
    get, release = api.KernelInfoGetAllocator, api.ReleaseAllocator

    def take(info: int, memory_type: int, out: int) -> Any:
        status = get(info, memory_type, out)
        taken.append(ctypes.c_void_p.from_address(out).value)
        return status

    monkeypatch.setattr(api, "KernelInfoGetAllocator", take)
    monkeypatch.setattr(api, "ReleaseAllocator", lambda allocator: released.append(allocator) or release(allocator))

    def kernel(x: F32) -> F32:
        kept.append(x)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op", "cuda::Op"))
    assert len(taken) == 2
    assert released == taken[1:]  # one does for both nodes
    with pytest.warns(errors.BorrowedArrayWarning):
        session.run(None, {"x": X})
    del session
    assert released == taken[1:]
    kept.clear()
    assert sorted(released) == sorted(taken)


def test_what_a_kernel_allocates_on_another_device_is_not_the_session_s(cupy, monkeypatch) -> None:
    api = native.ort_api()
    alloc, allocated = api.AllocatorAlloc, []
    monkeypatch.setattr(api, "AllocatorAlloc", lambda *given: allocated.append(given[1]) or alloc(*given))

    def kernel(x: F32) -> F32:
        with cupy.cuda.Device(1):
            cupy.empty((1_000_000,), np.uint8)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    cuda_session(chain("cuda::Op")).run(None, {"x": X})
    assert allocated == [512]


def test_a_full_arena_is_an_error_of_the_node_that_says_how_to_let_it_grow(cupy) -> None:
    def kernel(x: F32) -> F32:
        cupy.empty((2**60,), np.uint8)
        return x

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError) as raised:
        session.run(None, {"x": X})
    assert "gpu_mem_limit" in "".join(raised.value.__notes__)
    # What is given back may be another stream's next: nothing may still use it.
    events = logged()
    assert events.index(("synchronize device",)) < events.index(("free_all_blocks",))


# Element types of which CuPy has arrays, and neither makes nor copies them.

bits_only = pytest.mark.parametrize("scalar", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])


def values(scalar: Any) -> Any:
    return np.arange(1, 4).astype(scalar)


@bits_only
def test_an_array_of_any_type_that_is_no_whole_is_copied_into_its_output(scalar) -> None:
    @onnx_op("cuda::Op", device_types=("cuda",))
    def reverse(x: NDArray[scalar]) -> NDArray[scalar]:
        return x[::-1]

    sample = Sample(reverse, values(scalar)).with_expected(values(scalar)[::-1])
    assert_same(cuda_session(sample.model()).run(None, sample.feed), sample.expected())


@bits_only
def test_buffers_of_any_type_are_made_and_copied(scalar) -> None:
    given = []

    @onnx_op("cuda::Op", device_types=("cuda",))
    def op(
        x: NDArray[scalar], *, out: tuple[NDArray[scalar], NDArray[scalar]] | None = None
    ) -> tuple[NDArray[scalar], NDArray[scalar]]:
        assert out is not None
        given.extend(out)
        for array in out:
            array.view(f"u{array.dtype.itemsize}")[...] = x.view(f"u{x.dtype.itemsize}")
        return out[1][::-1], out[0]

    op.register_shape_inference(lambda x: (x, x))
    model = Sample(op, values(scalar)).with_expected(values(scalar)[::-1], values(scalar)).model()
    del model.graph.output[1]
    model.graph.node[0].output[1] = ""
    with warnings.catch_warnings(action="ignore", category=errors.BorrowedArrayWarning):
        (y,) = cuda_session(model).run(None, {"x": values(scalar)})
    assert_same([y], [values(scalar)[::-1]])
    assert [array.dtype for array in given] == [scalar, scalar]


@bits_only
def test_a_kernel_that_keeps_arrays_gets_copies_of_any_type(scalar) -> None:
    kept = []

    @onnx_op("cuda::Op", device_types=("cuda",))
    def op(x: NDArray[scalar]) -> NDArray[scalar]:
        kept.append(x)
        return x

    sample = Sample(op, values(scalar)).with_expected(values(scalar))
    session = cuda_session(sample.model())
    with pytest.warns(errors.BorrowedArrayWarning):
        session.run(None, sample.feed)
    assert_same(session.run(None, sample.feed), sample.expected())
    assert kept[1].dtype == scalar
    assert type(kept[0].data.mem) is not type(kept[1].data.mem)


@bits_only
def test_arrays_of_any_type_go_between_host_and_gpu(cupy, scalar) -> None:
    # Where a kernel of another session wants them, in a session on the CPU, and in `check`.
    def reverse(x: NDArray[scalar]) -> NDArray[scalar]:
        return x[::-1]

    op = onnx_op("cuda::Op", device_types=("cuda",), host_inputs=("x",))(reverse)
    op.register_kernel("cuda", host_inputs=("x",))(on_the_host(cupy, reverse))
    sample = Sample(op, values(scalar)).with_expected(values(scalar)[::-1])
    session = cuda_session(sample.model())
    op.register_kernel("cuda")(reverse)
    assert_same(session.run(None, sample.feed), sample.expected())
    to_host = cuda_session(sample.model())
    op.register_kernel("cuda", host_inputs=("x",))(lambda x: reverse(cupy.asarray(x.view(bits_of(x))).view(scalar)))
    assert_same(to_host.run(None, sample.feed), sample.expected())
    op.register_kernel("cuda")(reverse)
    with pytest.warns(errors.DeviceCopyWarning, match="has only a CUDA kernel"):
        assert_same([op(values(scalar))], sample.expected())
    op.register_kernel("cpu")(reverse)
    assert check(op, values(scalar), checks="cuda")["cuda"].status == "passed"


# Arrays that a kernel keeps.


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: x,
        lambda x: x[1:],
        lambda x: x.data,
        lambda x: [x.T],
    ],
    ids=["itself", "a view", "its memory", "in a list"],
)
def test_a_kept_array_is_reported_once_and_later_ones_are_copies(keep) -> None:
    kept, memories = [], []

    def kernel(x: F32) -> F32:
        kept.append(keep(x))
        memories.append(type(x.data.mem).__name__)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    session = cuda_session(chain("cuda::Op"))
    with pytest.warns(errors.BorrowedArrayWarning, match=r"kept a CuPy array .* Keep a copy instead: x.copy\(\)"):
        session.run(None, {"x": X})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run(None, {"x": X + 1})[0].tolist() == [2, 3, 4]
    assert memories == ["UnownedMemory", "PooledMemory"]


def test_a_list_attribute_is_the_kernel_s_own() -> None:
    def kernel(x: F32, *, shifts: list[float]) -> F32:
        return x + np.float32(shifts.pop())

    declare(kernel, device_types=("cuda",))
    session = cuda_session(parse("(float[n] x) => (float[n] y) { y = cuda.Op <shifts: floats = [1.0]> (x) }"))
    for _ in range(2):
        assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_a_kept_out_is_reported(cupy) -> None:
    kept = []

    def kernel(x: F32, *, out: F32 | None = None) -> F32:
        kept.append(out)
        return cupy.add(x, np.float32(1), out=out)

    op = declare(kernel, device_types=("cuda",))
    op.register_shape_inference(lambda x: x)
    with pytest.warns(errors.BorrowedArrayWarning):
        cuda_session(chain("cuda::Op")).run(None, {"x": X})


def test_a_cycle_that_is_garbage_is_not_reported() -> None:
    def kernel(x: F32) -> F32:
        cycle: list[Any] = [x]
        cycle.append(cycle)
        return x + np.float32(1)

    declare(kernel, device_types=("cuda",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cuda_session(chain("cuda::Op")).run(None, {"x": X})
