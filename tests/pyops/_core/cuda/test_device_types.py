"""The devices that a declared function supports; here without a GPU, and without CuPy."""

import sys
import types
import warnings
from typing import NamedTuple, TypeVar

import numpy as np
import pytest
from array_api_compat import array_namespace
from numpy.typing import NDArray

import pyops
from pyops import errors, onnx_op
from tests.helpers import cupy_on_host

T = TypeVar("T", np.float32, np.float64)
F32, I64 = NDArray[np.float32], NDArray[np.int64]
ONE = np.ones(1, np.float32)


class Both(NamedTuple):
    less: F32
    more: F32


def twice(x: NDArray[T]) -> NDArray[T]:
    xp = array_namespace(x)
    return xp.add(x, x)


def test_one_function_is_the_kernel_of_both_devices() -> None:
    op = onnx_op("devices::Twice", device_types=("cpu", "cuda"))(twice)
    assert op.device_types == ("cpu", "cuda")
    assert op.kernels["cpu"] is op.kernels["cuda"] is twice
    assert op(ONE).tolist() == [2]


def test_without_saying_so_a_function_is_for_the_cpu() -> None:
    assert onnx_op("devices::Twice")(twice).device_types == ("cpu",)


def test_an_equal_declaration_replaces_the_devices_too() -> None:
    op = onnx_op("devices::Again", device_types=("cpu", "cuda"))(twice)
    assert onnx_op("devices::Again")(twice) is op
    assert op.device_types == ("cpu",)
    assert onnx_op("devices::Again", device_types=["cuda"])(twice) is op
    assert op.device_types == ("cuda",)


@pytest.mark.parametrize(
    ("device_types", "fragment"),
    [
        ((), r'device_types is \(\); write \("cpu",\), \("cuda",\) or \("cpu", "cuda"\)'),
        (("cuda", "cuda"), r"device_types is \('cuda', 'cuda'\); write"),
        (("cpu", "gpu"), r"device_types is \('cpu', 'gpu'\); write"),
        ((["cpu"],), r"device_types is \(\['cpu'\],\); write"),
        ("cuda", "device_types is 'cuda'; write"),
        (None, "device_types is None; write"),
    ],
)
def test_what_is_no_choice_of_devices_is_said_when_it_is_declared(device_types, fragment) -> None:
    with pytest.raises(errors.DeclarationError, match=f"devices::Wrong: {fragment}"):
        onnx_op("devices::Wrong", device_types=device_types)(twice)


def test_a_compiled_kernel_is_for_the_cpu_alone() -> None:
    with pytest.raises(
        errors.DeclarationError, match=r"compile, parallel and fastmath are for CPU kernels; leave device_t"
    ):
        onnx_op("devices::Compiled", device_types=("cpu", "cuda"), compile=True)(twice)


def test_the_form_of_onnxruntime_extensions_has_no_devices() -> None:
    with pytest.raises(errors.DeclarationError, match="unknown argument 'device_types'"):
        onnx_op(op_type="devices::Old", inputs=[1], outputs=[1], device_types=("cuda",))(lambda x: x)


def cuda_alone(name: str, function=twice):
    return onnx_op(f"devices::{name}", device_types=("cuda",))(function)


def test_a_cuda_kernel_alone_needs_cupy_to_run_on_the_cpu(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    match = r'devices::Alone, which has only a CUDA kernel, needs CuPy .*; pip install "onnx-pyops\[cuda\]"'
    with pytest.raises(errors.MissingDependencyError, match=match):
        cuda_alone("Alone")(ONE)


def test_a_cuda_kernel_alone_needs_a_gpu_to_run_on_the_cpu(monkeypatch) -> None:
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=int)))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(errors.DeviceError, match="needs an NVIDIA GPU, but CuPy finds none here"):
        cuda_alone("Alone")(ONE)


def test_a_kernel_for_the_cpu_ends_the_copying() -> None:
    op = cuda_alone("Later")
    op.register_kernel("cpu")(twice)
    assert op.device_types == ("cpu", "cuda")
    assert op(ONE).tolist() == [2]


@pytest.fixture
def cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    return cupy_on_host


def test_a_kernel_for_the_cpu_that_cannot_be_compiled_ends_the_copying() -> None:
    pytest.importorskip("numba")
    op = cuda_alone("Tried")
    op.register_kernel("cpu", compile="try")(twice)
    with pytest.warns(errors.CompileWarning, match="the plain kernel runs instead"):
        assert op(ONE).tolist() == [2]


def test_another_cuda_kernel_runs_between_the_copies(cupy) -> None:
    def doubled(x: F32) -> F32:
        return cupy.add(x, x)

    op = cuda_alone("Replaced", doubled)
    op.register_kernel("cuda")(lambda x: cupy.add(x, doubled(x)))
    with pytest.warns(errors.DeviceCopyWarning):
        assert op(ONE).tolist() == [3]


def test_a_cuda_kernel_alone_runs_between_copies_and_says_so_once(cupy) -> None:
    def around(x: F32, y: F32 | None = None, *, out: tuple[F32, F32] | None = None) -> Both:
        assert type(x) is cupy.ndarray
        assert y is None
        return Both(x + np.float32(-1), x + np.float32(1))

    op = cuda_alone("Around", around)
    with pytest.warns(
        errors.DeviceCopyWarning, match=r"devices::Around has only a CUDA kernel.*register_kernel\(\"cpu"
    ):
        less, more = op(ONE)
    assert (less.tolist(), more.tolist()) == ([0], [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(op(ONE), Both)


def test_what_lists_ops_names_the_devices() -> None:
    op = cuda_alone("Listed")
    assert "kernels cuda" in op._repr_html_()
    assert any("devices::Listed" in repr(op) for op in pyops.list_ops())


# Inputs that stay on the host.


def resize(x: F32, shape: I64, *rest: F32) -> F32:
    assert type(shape) is np.ndarray
    return x.reshape(*shape.tolist())


@pytest.mark.parametrize(
    ("host_inputs", "fragment"),
    [
        ("shape", r"host_inputs is 'shape'; write a tuple of names: host_inputs=\(\"shape\",\)"),
        (None, "host_inputs is None; write a tuple"),
        (("size",), "host_inputs names 'size'; the inputs are: x, shape, rest"),
        (("rest",), "host_inputs names 'rest', which is variadic, .* use cupy.asnumpy in the kernel"),
    ],
)
def test_what_is_no_host_input_is_said_when_it_is_declared(host_inputs, fragment) -> None:
    with pytest.raises(errors.DeclarationError, match=f"devices::Resize: {fragment}"):
        onnx_op("devices::Resize", device_types=("cuda",), host_inputs=host_inputs)(resize)
    op = onnx_op("devices::Resize")(resize)
    with pytest.raises(errors.DeclarationError, match=f"devices::Resize: {fragment}"):
        op.register_kernel("cuda", host_inputs=host_inputs)


def test_host_inputs_are_for_cuda_kernels() -> None:
    match = r'host_inputs is for CUDA kernels, .* or add "cuda" to device_types'
    with pytest.raises(errors.DeclarationError, match=match):
        onnx_op("devices::Resize", host_inputs=("shape",))(resize)
    op = onnx_op("devices::Resize", device_types=("cpu", "cuda"), host_inputs=("shape",))(resize)
    with pytest.raises(errors.DeclarationError, match=match):
        op.register_kernel("cpu", host_inputs=("shape",))
    assert op.host_inputs == ("shape",)
    op.register_kernel("cuda")(resize)
    assert op.host_inputs == ()


def test_a_call_takes_each_array_where_it_is_declared(cupy) -> None:
    op = onnx_op("devices::Resize", device_types=("cpu", "cuda"), host_inputs=("shape",))(resize)
    x, shape = np.ones(2, np.float32), np.array([2, 1])
    assert op(x, shape).shape == (2, 1)
    assert op(cupy.asarray(x), shape).shape == (2, 1)
    with pytest.raises(
        errors.InputError, match=r"'shape' is a host input .* it is a CuPy array; pass cupy.asnumpy\(shape\)"
    ):
        op(cupy.asarray(x), cupy.asarray(shape))
    with pytest.raises(
        errors.InputError, match=r"input 'rest' is a NumPy array, but others are CuPy arrays; pass cupy.asarray\(r"
    ):
        op(cupy.asarray(x), shape, x)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            np.zeros(1, np.float32),
            r"a NumPy array for 'output'; return a CuPy array, .* cupy.asarray\(result\)",
        ),
        ([0.0], r"list for 'output'; return a CuPy array, .* cupy.asarray\(result, np.float32\)"),
    ],
    ids=["NumPy", "a list"],
)
def test_a_call_holds_what_a_cuda_kernel_returns_against_the_device(cupy, result, message) -> None:
    op = cuda_alone("Wrong", lambda_of(result))
    with pytest.raises(errors.OutputError, match=f"the CUDA kernel returned {message}"):
        op(cupy.asarray(ONE))
    with pytest.warns(errors.DeviceCopyWarning), pytest.raises(errors.OutputError, match=message):
        op(ONE)


def lambda_of(result):
    def kernel(x: F32) -> F32:
        return result

    return kernel


def test_between_copies_host_inputs_stay(cupy) -> None:
    op = onnx_op("devices::Alone", device_types=("cuda",), host_inputs=("shape",))(resize)
    with pytest.warns(errors.DeviceCopyWarning):
        assert op(np.ones(2, np.float32), np.array([2, 1])).shape == (2, 1)
