"""What users of exporters write, as in tests/project/test_typical_uses.py."""

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, assert_type

import numpy as np
import onnx
import onnxscript
import pytest
import torch
from numpy.typing import NDArray
from onnxscript import FLOAT, opset18
from onnxscript.values import Opset

import exporters
import pyops
from exporters._export import TorchArguments
from pyops.shapes import TensorSpec

pytestmark = pytest.mark.usefixtures("registrations_end_with_the_test")

T = TypeVar("T", np.float32, np.float64)


@pyops.onnx_op("exports::AddRound")
def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.add(x, x, dtype=x.dtype).round(decimals)


@add_round.register_shape_inference
def _(x: TensorSpec, *, decimals: int = 0) -> TensorSpec:
    return x


@pyops.onnx_op("exports::Inverse")
def inverse(x: NDArray[T]) -> NDArray[T]:
    return np.linalg.inv(x).astype(x.dtype)


torch_add_round = exporters.custom_op(add_round, "exports::add_round")


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


x = torch.linspace(-2, 2, 4).reshape(2, 2)


def twice(x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = torch_add_round(x, decimals=1)
    return result


def signed(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


def test_an_op_as_a_torch_operator() -> None:
    torch_add_round.register_autograd(lambda ctx, gradient: 2 * gradient)
    assert twice(x).shape == (2, 2)
    with pytest.raises(exporters.ExportError):
        exporters.custom_op(abs, "exports::abs")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(exporters.ExportError):
        exporters.custom_op(inverse, "exports::inverse")


@exporters.register_translation("aten::gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    if approximate != "none":
        return NotImplemented
    return exporters.opset("com.microsoft", 1).Gelu(x)


@onnxscript.script(Opset("exports", 1))
def exported_relu(x: FLOAT) -> Any:
    return opset18.Relu(x)


def test_translations_stay_what_they_are() -> None:
    assert_type(exporters.register_translation("aten::linalg_inv", inverse)(np.eye(2)), NDArray[np.float64])
    exporters.register_translation("aten::relu", exported_relu)
    assert_type(gelu(0, approximate="tanh"), Any)
    assert_type(exporters.registered_by("aten::gelu"), Literal["exporters", "torch", "kernels"] | None)
    exporters.register_contrib_ops()
    with pytest.raises(exporters.ExportError):
        exporters.register_translation("aten::gelu", 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_an_export_takes_what_torchs_does(tmp_path: Path) -> None:
    model = Model(twice).eval()
    program = exporters.export(
        model,
        (x,),
        tmp_path / "model.onnx",
        dynamic_shapes=({0: "rows"},),
        input_names=["x"],
        output_names=["y"],
        opset_version=20,
        custom_translation_table=None,
        custom_opsets={"exports": 1},
        optimize=True,
        verbose=False,
        verify=True,
    )
    assert_type(program, exporters.Program)
    assert_type(program(x), tuple[torch.Tensor, ...])
    assert_type(program.model_proto, onnx.ModelProto)
    assert_type(program.fallbacks, tuple[exporters.Fallback, ...])
    assert_type(program.fallbacks[:1], tuple[exporters.Fallback, ...])
    program.save(tmp_path / "model.onnx")
    exporters.export(torch.export.export(model, (x,)), kernels=False, fallback=True, verbose=False)
    exporters.export(model, (x,), dynamo=False, dynamic_axes={"x": {0: "rows"}}, input_names=["x"])
    session = pyops.InferenceSession(program)
    assert_type(session.run(None, exporters.to_onnx_inputs(program, x)), list[Any])
    with pytest.raises(TypeError):
        exporters.export(model, (x,), dynamic_shape=None)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(exporters.ExportError):
        exporters.export(model, (x,), fallback="check")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_the_arguments_that_an_export_hands_on_are_all_of_torchs() -> None:
    own = {"model", "args", "f", "dynamo"}
    assert set(TorchArguments.__annotations__) == set(inspect.signature(torch.onnx.export).parameters) - own


def test_comparing_with_torch() -> None:
    model = Model(twice).eval()
    report = exporters.verify(model, (x,), tolerances={np.float32: (1e-3, 1e-3), torch.float64: (0.0, 0.0)})
    assert_type(report, exporters.VerificationReport)
    assert_type(report.ok, bool)
    assert_type(report.outputs[0], exporters.OutputComparison)
    assert_type(report.outputs[0].shape, tuple[int, ...])
    program = exporters.export(model, (x,), verbose=False)
    exporters.verify(model, program=program, samples=[(x,), (x + 1,)])
    exporters.verify(model, (x,), program.model_proto)
    assert_type(exporters.to_onnx_inputs(program, x), dict[str, np.ndarray[Any, Any]])
    assert_type(exporters.to_onnx_outputs(model(x)), list[np.ndarray[Any, Any]])
    assert exporters.verify(model, x).ok
    with pytest.raises(exporters.ExportError, match="as a tuple, not list"):
        exporters.verify(model, [x])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_what_a_capture_fixes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exporters.CaptureWarning)
        program = exporters.export(Model(signed).eval(), (x,), capture="auto", guards=True, verbose=False)
    assert_type(program.decisions, tuple[exporters.CaptureDecision, ...])
    assert_type(program.decisions[0].kind, Literal["branch", "number", "size", "values"])
    with pytest.raises(exporters.ExportError, match="capture is 'all'"):
        exporters.export(Model(signed).eval(), (x,), capture="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_before_an_export() -> None:
    explanation = exporters.explain(Model(torch.relu).eval(), (x,))
    assert_type(explanation, exporters.SupportReport)
    assert_type(explanation[0], exporters.OperatorSupport)
    assert_type(explanation[0].by, Literal["torch", "registration", "kernel", "fallback", "unsupported"])
    assert_type([row.operator for row in explanation], list[str])
    explanation.by("torch")
    explanation.by("onnx")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning")
def test_exports_of_others() -> None:
    table = exporters.translation_table(kernels=False)
    torch.onnx.export(Model(twice).eval(), (x,), dynamo=True, custom_translation_table=table, verbose=False)
    exporters.register_fallback()
