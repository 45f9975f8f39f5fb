"""A torch operator of an Op with state has one state for each choice of attributes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import exporters
from pyops import onnx_op


def test_one_state_for_each_choice_of_attributes_also_in_the_exported_model():
    made: list[float] = []

    @onnx_op("torchstate::Offset")
    def offset(x: NDArray[np.float32], *, by: float, at: list[int], state: Any = None) -> NDArray[np.float32]:
        return x + state

    @offset.register_shape_inference
    def _(x, *, by, at):
        return x

    @offset.register_setup
    def _(*, by, at):
        made.append(by)
        return np.float32(by + sum(at))

    operator = exporters.custom_op(offset, "torchstate::offset")
    x = torch.zeros(2)
    for by in (1.0, 2.0, 1.0):
        assert operator(x, by=by, at=[3, 4]).tolist() == [by + 7] * 2
    assert made == [1.0, 2.0]

    class Model(torch.nn.Module):
        def forward(self, x):
            return operator(x, by=1.0, at=[3])

    model = Model().eval()
    program = exporters.export(model, (x,))
    assert exporters.verify(model, (x,), program).ok

    offset.register_setup(lambda *, by, at: np.float32(0))
    assert operator(x, by=1.0, at=[3, 4]).tolist() == [0, 0]
