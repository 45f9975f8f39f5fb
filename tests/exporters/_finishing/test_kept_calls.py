"""Every call of a declared op stays in the exported model: a kernel may count, log or draw numbers."""

from typing import TypeVar

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import FLOAT, script
from onnxscript import opset18 as op18

import exporters
from exporters._lowering import translations
from pyops import onnx_op

T = TypeVar("T", np.float32, np.float64, ml_dtypes.bfloat16)

counted: list[float] = []


@onnx_op("kept::Count")
def count(x: NDArray[T], *, step: int = 1) -> NDArray[T]:
    counted.append(step)
    return x + len(counted)


@count.register_shape_inference
def _(x, *, step=1):
    return x


torch_count = exporters.custom_op(count, "kept::count")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(translations, "_translations", dict(translations._translations))
    counted.clear()


def steps(program, *args):
    """What the kernel counted, in whichever order ONNX Runtime ran the nodes, and the results."""
    counted.clear()
    results = program(*args)
    return list(counted), [result.tolist() for result in results]


@pytest.mark.parametrize("opset_version", [17, None, 23])
@pytest.mark.parametrize("optimize", [True, False])
def test_equal_calls_are_not_merged(model, optimize, opset_version):
    net = model(lambda x: (torch_count(x) - torch_count(x)).abs())
    program = exporters.export(net, (torch.zeros(2),), optimize=optimize, opset_version=opset_version, verbose=False)
    assert steps(program, torch.zeros(2)) == ([1, 1], [[1, 1]])
    assert [len(node.attributes) for node in program.model.graph if node.domain == "kept"] == [1, 1]


@pytest.mark.parametrize("opset_version", [18, None, 23])
@pytest.mark.parametrize("optimize", [True, False])
def test_a_call_whose_result_nobody_uses_is_not_dropped(model, optimize, opset_version):
    def forward(x):
        torch_count(x, step=7)
        return x + 1

    program = exporters.export(
        model(forward), (torch.zeros(2),), optimize=optimize, opset_version=opset_version, verbose=False
    )
    assert steps(program, torch.zeros(2)) == ([7], [[1, 1]])


@pytest.mark.xfail(reason="torch converts models to opsets below 18 with onnx's converter, which drops it", strict=True)
def test_a_call_whose_result_nobody_uses_in_an_old_opset(model):
    def forward(x):
        torch_count(x, step=7)
        return x + 1

    program = exporters.export(model(forward), (torch.zeros(2),), opset_version=17, verbose=False)
    assert steps(program, torch.zeros(2)) == ([7], [[1, 1]])


def test_calls_in_both_branches_of_a_condition(model):
    def forward(x):
        return torch.cond(
            x.sum() > 0, lambda x: (torch_count(x) - torch_count(x)).abs(), lambda x: torch_count(x, step=5) * 0, (x,)
        )

    program = exporters.export(model(forward), (torch.ones(2),), verbose=False)
    assert steps(program, torch.ones(2)) == ([1, 1], [[1, 1]])
    assert steps(program, -torch.ones(2)) == ([5], [[0, 0]])


def test_calls_in_an_onnxscript_function(model):
    kept = exporters.opset("kept")

    @script(default_opset=op18)
    def relu(x: FLOAT[...]) -> FLOAT[...]:
        return op18.Abs(op18.Sub(kept.Count(x, step=2), kept.Count(x, step=2)))

    exporters.register_translation("aten::relu", relu)
    program = exporters.export(model(lambda x: torch.relu(x)), (torch.ones(2),), verbose=False)
    assert steps(program, torch.ones(2)) == ([2, 2], [[1, 1]])


def test_the_rest_is_optimized(model):
    net = model(lambda x: torch_count(x.mT.mT) + torch_count(x).mT.mT)
    program = exporters.export(net, (torch.zeros(2, 2),), verbose=False)
    assert sorted(node.op_type for node in program.model.graph) == ["Add", "Count", "Count"]


def test_torchscript_keeps_them_too(model):
    def forward(x):
        torch_count(x, step=7)
        same = torch_count(x, step=3)
        return {"used": torch_count(x) - torch_count(x), "same": same, "detached": [same.detach(), same]}

    net = model(forward)
    for optimize in (False, True):
        program = exporters.export(net, (torch.zeros(2),), dynamo=False, optimize=optimize, output_names=["used"])
        outputs = [value.name for value in program.model.graph.outputs]
        assert (len(outputs), outputs[0]) == (4, "used")
        called, (_, *same) = steps(program, torch.zeros(2))
        assert sorted(called) == [1, 1, 3, 7]
        assert same[0] == same[1] == same[2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_keeps_them_too(backend):
    def function(x):
        torch_count(x, step=3)
        return torch_count(x) - torch_count(x)

    torch.compile(function, backend=backend)(torch.zeros(2))
    assert counted == [3, 1, 1]
