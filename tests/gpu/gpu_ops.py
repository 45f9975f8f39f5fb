"""Ops with CUDA kernels of every kind, and models of them: for the tests and benchmarks that need a GPU.

CuPy is imported, and kernels are compiled, when one is first called.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, TypeVar

import numpy as np
import onnx
from array_api_compat import array_namespace
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from pyops._support.element_types import element_type

T = TypeVar("T", np.float16, np.float32)
F32, I64 = NDArray[np.float32], NDArray[np.int64]
CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]
MOST_COLUMNS = 1024


@functools.cache
def elementwise(name: str, body: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel("T x", "T y", body, name)


def into(kernel: Any, x: Any, out: Any) -> Any:
    return kernel(x) if out is None else kernel(x, out)


@onnx_op("gpu::AddOne", device_types=("cuda",))
def add_one(x: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    return into(elementwise("add_one", "y = x + T(1)"), x, out)


@onnx_op("gpu::AddOneNumPy")
def add_one_numpy(x: NDArray[T], *, out: NDArray[T] | None = None) -> NDArray[T]:
    return np.add(x, x.dtype.type(1), out=out)


@onnx_op("gpu::QuickGelu", device_types=("cuda",))
def quick_gelu(x: F32, *, out: F32 | None = None) -> F32:
    """The sigmoid approximation of GELU, x * sigmoid(1.702 x), in one kernel."""
    return into(elementwise("quick_gelu", "y = x / (T(1) + exp(T(-1.702) * x))"), x, out)


# A warp per row, whose elements lie in registers.
SOFTMAX = r"""
extern "C" __global__ void softmax_rows(const float* x, float* y, const long long rows, const int columns) {
    const int lane = threadIdx.x % 32;
    const long long row = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    const float lowest = __int_as_float(0xff800000);
    float values[32], top = lowest, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = lane + 32 * i;
        values[i] = column < columns ? x[column] : lowest;
        top = fmaxf(top, values[i]);
    }
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    #pragma unroll
    for (int i = 0; i < 32; ++i) {
        values[i] = expf(values[i] - top);
        sum += values[i];
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    #pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int column = lane + 32 * i;
        if (column < columns) y[column] = values[i] / sum;
    }
}
"""


@functools.cache
def softmax_rows() -> Any:
    import cupy

    return cupy.RawKernel(SOFTMAX, "softmax_rows")


@onnx_op("gpu::Softmax", device_types=("cuda",))
def softmax(x: F32, *, out: F32 | None = None) -> F32:
    """Of each row of at most 1,024 elements, by a RawKernel."""
    import cupy

    rows, columns = x.shape
    y = cupy.empty_like(x) if out is None else out
    softmax_rows()((-(-rows // 4),), (128,), (x, y, np.int64(rows), np.int32(columns)))
    return y


@functools.cache
def jit_kernel() -> Any:
    from cupyx import jit

    def scale(x, y, size):
        i = jit.grid(1)
        if i < size:
            y[i] = x[i] * 3.0

    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # it says that it is experimental
        return jit.rawkernel()(scale)


@onnx_op("gpu::Jit", device_types=("cuda",))
def by_jit(x: F32) -> F32:
    """By a kernel of cupyx.jit."""
    import cupy

    y = cupy.empty_like(x)
    jit_kernel()((-(-x.size // 128),), (128,), (x, y, np.int64(x.size)))
    return y


@onnx_op("gpu::Torch", device_types=("cuda",))
def by_torch(x: F32) -> F32:
    """By a function of torch, on the session's own stream."""
    import cupy
    import torch

    stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr, device=x.device.id)
    with torch.cuda.stream(stream):
        return cupy.from_dlpack(torch.nn.functional.gelu(torch.from_dlpack(x)))


@onnx_op("gpu::Softplus", device_types=("cpu", "cuda"))
def softplus(x: F32) -> F32:
    """One function for both devices."""
    xp = array_namespace(x)
    return xp.log1p(xp.exp(x))


@onnx_op("gpu::Reshape", device_types=("cuda",), host_inputs=("shape",))
def reshape(x: F32, shape: I64) -> F32:
    """With a shape on the host."""
    return x.reshape(*shape.tolist())


def same(x: Any, **_: Any) -> Any:
    return x


MEASURED = add_one, add_one_numpy, quick_gelu, softmax
for op in MEASURED:
    op.register_shape_inference(same)


def one_node(qualified: str, dtype: Any = np.float32, shape: tuple[Any, ...] = ("n",), count: int = 1) -> Any:
    """A model of a node, or several in a row, with one input and output; ONNX's own where there is no domain."""
    domain, _, name = qualified.rpartition("::")
    row = element_type(dtype)
    assert row is not None
    constants = [helper.make_tensor("one", row.onnx, [], [1.0])] if qualified == "Add" else []
    names = ["x", *(f"t{i}" for i in range(1, count)), "y"]
    nodes = [
        helper.make_node(name, [names[i], *(["one"] if constants else [])], [names[i + 1]], domain=domain)
        for i in range(count)
    ]
    values = [helper.make_tensor_value_info(value, row.onnx, shape) for value in ("x", "y")]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model) if not domain else None
    return model


def cuda_options(**given: Any) -> list[dict[str, str]]:
    """Options of the two providers."""
    return [{name: str(value) for name, value in given.items()}, {}]


def bound(session: Any, x: np.ndarray[Any, Any], count: int = 1) -> tuple[Any, Any]:
    """An I/O binding whose input and output lie on the GPU, and the output."""
    import onnxruntime

    given = onnxruntime.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    result = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(x), "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", result)
    return binding, result


def session(model: Any, options: Any = None, **cuda: Any) -> pyops.InferenceSession:
    return pyops.InferenceSession(model, options, providers=CUDA, provider_options=cuda_options(**cuda))
