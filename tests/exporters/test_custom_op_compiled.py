"""The compiled kernel of an Op as the CPU implementation of its torch operator, and what it exports to."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import exporters
from pyops import onnx_op

T = TypeVar("T", np.float32, np.float64)


def test_the_torch_operator_runs_the_compiled_function_and_exports() -> None:
    @onnx_op("compiled::Halve", compile=True, parallel="()->()")
    def halve(x: NDArray[T], *, offset: float = 0.5) -> NDArray[T]:
        if x.size == 3:
            raise ValueError("three")
        return x * x.dtype.type(0.5) + x.dtype.type(offset)

    halve.register_shape_inference(lambda x, offset=0.5: x)
    calls: list[int] = []
    compiled = halve.kernels["cpu"]
    compiled.plain = lambda *args, **kwargs: calls.append(1)
    torch_halve = exporters.custom_op(halve, "compiled::halve")

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch_halve(x.T, offset=1.0)

    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert torch.equal(Model()(x), x.T * 0.5 + 1)
    assert torch_halve(x.double()).dtype == torch.float64
    program = exporters.export(Model().eval(), (x,), verbose=False)
    report = exporters.verify(Model().eval(), (x,), program)
    assert report.ok, report
    assert calls == []
