"""An Op's CUDA kernel in its torch operator, without a GPU: a stand-in for CuPy on CPU tensors."""

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
import pyops
from exporters import _custom_op, _operator_calls, verify
from exporters._torch.tensors import as_array
from pyops import errors, onnx_op
from tests.helpers import cupy_on_host
from tests.pyops._core.cuda.cuda_ops import bits_of

F32, I64 = NDArray[np.float32], NDArray[np.int64]
CPU = torch.device("cpu")
X = torch.arange(3, dtype=torch.float32)
STREAM = 0x5EED


def on_stand_in(tensor):
    """The stand-in's array on a tensor's memory."""
    array = as_array(tensor)
    bits = bits_of(array)
    shared = cupy_on_host.from_dlpack(array.view(bits))
    return shared if bits == array.dtype else shared.view(array.dtype)


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=STREAM, device_index=0)
    )
    # How the stand-in's arrays, on the host, are tensors' as CuPy's are those of a GPU.
    monkeypatch.setattr(_operator_calls, "as_array", on_stand_in)
    cupy_on_host.log.clear()
    return cupy_on_host


def declare(function: Any, name: str = "Op", **options: Any) -> Any:
    return onnx_op(f"torchcuda::{name}", device_types=("cuda",), **options)(function)


def copies(cupy: Any) -> int:
    return sum(event[0] == "copy" for event in cupy.log)


def test_the_kernel_runs_on_the_tensor_s_memory_and_on_torch_s_stream(cupy) -> None:
    seen = []

    def kernel(x: F32, *, by: float = 1.0) -> F32:
        seen.append((x.data.ptr, cupy.cuda.get_current_stream().ptr))
        return x + np.float32(by)

    (y,) = _operator_calls.call_cuda_kernel(declare(kernel), [X], {"by": 2.0}, CPU)
    assert y.tolist() == [2, 3, 4]
    assert seen == [(X.data_ptr(), STREAM)]
    assert cupy.log == [
        ("enter device", 0),
        ("enter stream", STREAM),
        ("copy", X.nbytes, STREAM),
        ("leave stream", STREAM),
        ("leave device", 0),
    ]


def test_an_out_is_torch_s_memory(cupy) -> None:
    outs = []

    def kernel(x: F32, *, out: F32 | None = None) -> F32:
        outs.append(out.data.ptr)
        return cupy.add(x, np.float32(1), out=out)

    op = declare(kernel)
    op.register_shape_inference(lambda x: x)
    (y,) = _operator_calls.call_cuda_kernel(op, [X], {}, CPU)
    assert y.tolist() == [1, 2, 3]
    assert outs == [y.data_ptr()]
    assert copies(cupy) == 0


def test_no_out_for_a_shape_that_only_the_kernel_tells(cupy) -> None:
    def positive(x: F32, *, out: F32 | None = None) -> F32:
        outs.append(out)
        return x + np.float32(1)

    def parts(x: F32, *, out: tuple[F32, ...] | None = None) -> tuple[F32, ...]:
        outs.append(out)
        return x + np.float32(1), x + np.float32(1)

    outs: list[Any] = []
    for kernel, shapes in (
        (positive, lambda x: x.like(shape=(pyops.shapes.new_dim(),))),
        (parts, lambda x: (x, x)),
    ):
        op = declare(kernel, kernel.__name__)
        op.register_shape_inference(shapes)
        assert [y.tolist() for y in _operator_calls.call_cuda_kernel(op, [X], {}, CPU)] == [[1, 2, 3]] * len(outs)
    assert outs == [None, None]


CONSTANT = []


@pytest.mark.parametrize(
    "returned",
    [
        lambda cupy, x: x + np.float32(0),
        lambda cupy, x: x,
        lambda cupy, x: x[:3],
        lambda cupy, x: (x + np.float32(0))[::-1][::-1],
        lambda cupy, x: cupy.from_dlpack(torch.from_dlpack(x)),
        lambda cupy, x: CONSTANT.append(x + np.float32(0)) or CONSTANT[-1],
    ],
    ids=["an array of its own", "its input", "a view of it", "a view", "torch's", "a constant"],
)
def test_what_a_kernel_returns_is_copied(cupy, returned) -> None:
    op = declare(lambda_f32())
    op.register_kernel("cuda")(lambda x: returned(cupy, x))
    (y,) = _operator_calls.call_cuda_kernel(op, [X], {}, CPU)
    assert y.tolist() == [0, 1, 2]
    assert copies(cupy) == 1
    assert y.data_ptr() != X.data_ptr()


def lambda_f32() -> Any:
    def kernel(x: F32) -> F32:
        raise NotImplementedError

    return kernel


def test_the_same_array_twice_is_two_tensors() -> None:
    def kernel(x: F32) -> tuple[F32, F32]:
        y = x + np.float32(1)
        return y, y

    first, second = _operator_calls.call_cuda_kernel(declare(kernel), [X], {}, CPU)
    assert first.tolist() == second.tolist() == [1, 2, 3]
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize("scalar", [np.bool_, np.int64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("step", [1, -1])
def test_dtypes_that_pass_as_integers_come_out_as_themselves(cupy, scalar, step) -> None:
    def kernel(x: F32) -> NDArray[scalar]:  # type: ignore[valid-type] # one for each case
        cast = cupy.asnumpy(x).astype(scalar)
        return cupy.asarray(cast.view(bits_of(cast))).view(scalar)[::step]

    (y,) = _operator_calls.call_cuda_kernel(declare(kernel), [X], {}, CPU)
    assert y.float().tolist() == np.arange(3)[::step].astype(scalar).astype(np.float32).tolist()


def test_a_host_input_is_numpy_s_wherever_the_tensor_lies() -> None:
    def kernel(x: F32, shape: I64) -> F32:
        assert type(shape) is np.ndarray
        return x.reshape(*shape.tolist())

    op = declare(kernel, host_inputs=("shape",))
    with pytest.MonkeyPatch.context() as patch:
        real = _operator_calls.as_array
        patch.setattr(_operator_calls, "as_array", lambda t: t.numpy() if t.dtype == torch.int64 else real(t))
        (y,) = _operator_calls.call_cuda_kernel(op, [X, torch.tensor([3, 1])], {}, CPU)
    assert y.shape == (3, 1)


def test_a_numpy_array_is_no_result_of_a_cuda_kernel() -> None:
    def kernel(x: F32) -> F32:
        return np.zeros(3, np.float32)

    with pytest.raises(errors.OutputError, match="the CUDA kernel returned a NumPy array"):
        _operator_calls.call_cuda_kernel(declare(kernel), [X], {}, CPU)


def test_tensors_of_a_gpu_go_to_the_cuda_kernel(monkeypatch) -> None:
    def kernel(x: F32, shape: I64) -> F32:
        raise NotImplementedError

    op = declare(kernel, host_inputs=("shape",))
    op.register_shape_inference(lambda x, shape: x)
    torch_op = exporters.custom_op(op, "torchcuda::op")
    calls = []
    monkeypatch.setattr(_operator_calls, "call_cuda_kernel", lambda *args: calls.append(args) or [X.clone()])
    monkeypatch.setattr(_custom_op, "device_of", lambda op, tensors: torch.device("cuda", 0))
    assert torch_op(X, torch.tensor([3, 1])).tolist() == X.tolist()
    assert calls[0][3] == torch.device("cuda", 0)


# Where a model is verified.


class OnGpu(torch.nn.Linear):
    def parameters(self, recurse: bool = True):
        yield SimpleNamespace(device=torch.device("cuda", 0))


@pytest.fixture(scope="module")
def program():
    return exporters.export(torch.nn.Linear(1, 1).eval(), (torch.ones(2, 1),), verbose=False)


def linear(kind: Any, program: Any) -> Any:
    model = kind(1, 1)
    weights = {
        value.name: torch.from_numpy(value.const_value.numpy()) for value in program.model.graph.initializers.values()
    }
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize(("kind", "name"), [(OnGpu, "CUDAExecutionProvider"), (torch.nn.Linear, None)])
def test_a_model_is_verified_where_its_tensors_lie(kind, name, program, monkeypatch) -> None:
    seen = []
    real = pyops.InferenceSession

    def session(program: Any, *, providers: Any, **_: Any) -> Any:
        seen.append(providers)
        return real(program, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(pyops, "InferenceSession", session)
    assert verify(linear(kind, program), (torch.ones(2, 1),), program).ok
    assert seen == [([name] if name else []) + ["CPUExecutionProvider"]]


def test_a_model_on_a_gpu_cannot_be_verified_where_onnx_runtime_has_none(program) -> None:
    with pytest.raises(
        errors.MissingDependencyError, match=r'CUDAExecutionProvider .* pip install "onnx-pyops\[cuda\]"'
    ):
        verify(linear(OnGpu, program), (torch.ones(2, 1),), program)
