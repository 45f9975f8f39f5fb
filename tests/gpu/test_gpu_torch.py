"""CUDA kernels as torch operators, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import onnx_op
from tests.gpu import gpu_ops
from tests.gpu.gpu_ops import F32
from tests.gpu.gpus import missing_gpu

if missing_gpu():
    pytestmark = pytest.mark.gpu
else:
    torch = pytest.importorskip("torch")
    exporters = pytest.importorskip("exporters", exc_type=ImportError)
    pytestmark = [
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch has no CUDA"),
    ]

X = np.linspace(-2, 2, 1000, dtype=np.float32)


def test_the_kernel_runs_on_the_tensor_s_memory_on_torch_s_stream() -> None:
    import cupy

    seen = []

    @onnx_op("gputorch::Op", device_types=("cuda",))
    def op(x: F32) -> F32:
        y = x + np.float32(1)
        seen.append((x.data.ptr, y.data.ptr, cupy.cuda.get_current_stream().ptr))
        return y

    op.register_shape_inference(gpu_ops.same)
    torch_op = exporters.custom_op(op, "gputorch::op")
    x = torch.from_numpy(X).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = torch_op(x)
    stream.synchronize()
    assert seen == [(x.data_ptr(), y.data_ptr(), stream.cuda_stream)]
    assert y.cpu().numpy().tolist() == (X + 1).tolist()


def test_an_out_is_torch_s_memory() -> None:
    torch_op = exporters.custom_op(gpu_ops.add_one, "gputorch::add_one")
    for dtype in (torch.float32, torch.float16):
        x = torch.from_numpy(X).cuda().to(dtype)
        assert torch.equal(torch_op(x), x + 1)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float8_e5m2", "int64"])
def test_dtypes_that_pass_as_integers(dtype) -> None:
    from exporters._torch.tensors import numpy_dtype

    scalar = numpy_dtype(getattr(torch, dtype)).type

    @onnx_op("gputorch::Same", device_types=("cuda",))
    def op(x: NDArray[scalar]) -> NDArray[scalar]:
        return x

    op.register_shape_inference(gpu_ops.same)
    x = torch.tensor([0.0, 1.0, 2.0]).cuda().to(getattr(torch, dtype))
    y = exporters.custom_op(op, "gputorch::same")(x)
    assert y.dtype == x.dtype
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(y.float(), x.float())


@pytest.mark.gpu("session")
def test_a_model_is_verified_on_the_gpu() -> None:
    torch_op = exporters.custom_op(gpu_ops.quick_gelu, "gputorch::quick_gelu")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(10, 10)

        def forward(self, x):
            return torch_op(self.linear(x))

    report = exporters.verify(Model().cuda().eval(), (torch.ones(3, 10).cuda(),))
    assert report.ok, report
