"""``check`` and ``bench``."""

from pathlib import Path

import numpy as np
import pytest

import pyops
from tests.helpers.models import chain
from tests.pyops._cli import commands
from tests.pyops._cli.commands import command, parsed, quick_medians, save

OPTIONAL = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

F32 = NDArray[np.float32]

@onnx_op("optional::Weighted")
def weighted(x: F32, y: F32 | None = None, *, weights: np.ndarray) -> F32:
    assert y is None
    return x * weights
"""

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("plus", "expected module:op"),
        ("typed_ops:minus", "declares no op 'minus'"),
        ("typed_ops:not_an_op", "not_an_op is a int there"),
        ("typed::Plsu", "did you mean typed::Plus?"),
    ],
)
def test_an_op_that_is_none_is_said(spec: str, message: str) -> None:
    result = command("bench", spec, "-i", "typed_ops", "-x", "x=float32[2]", code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("typed::Plus", "-x", "y=float32[2]"), "has no input 'y'"),
        (("typed::Plus", "-x", "x=float32[2]", "-x", "x=float32[2]"), "input 'x' is given twice"),
        (("typed::Plus", "-x", "x=int64[2]"), "input 'x' is int64[2]; expected float32: save the file in that type"),
        (("typed::Plus", "-x", "x=float32[2]", "-a", "by=one"), "attribute 'by' is 'one'; expected float"),
        (("model.onnx", "-x", "x=float32[2]", "-a", "by=1"), "a model contains its attributes"),
    ],
)
def test_arguments_that_do_not_fit_are_said(arguments: tuple[str, ...], message: str) -> None:
    result = command("bench", *arguments, "-i", "typed_ops", code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_bench_of_a_model_that_nothing_runs() -> None:
    said = command("bench", save(chain("typed::Plsu")), "-i", "typed_ops", "-x", "x=float32[2]", code=1).stderr
    assert "native: " in said
    assert "did you mean typed::Plus?" in said


def test_bench_leaves_out_the_reference_where_it_lacks_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.commands, "medians", quick_medians)
    result = parsed("bench", save(chain("com.microsoft::Gelu")), "-x", "x=float32[2]")
    assert "Gelu" in result["left out"]["reference"]


def test_optional_inputs_and_tensors_as_attributes(folder: Path) -> None:
    np.save("weights.npy", np.ones(2, np.float32))
    (folder / "optional_op.py").write_text(OPTIONAL)
    result = parsed(
        "check", "optional_op:weighted", "-x", "x=float32[2]", "-a", "weights=weights.npy", "--only", "outputs"
    )
    assert result["ok"] is True


@pytest.mark.parametrize("spec", ["typed_ops:plus", "typed_ops.py:plus", "typed::Plus"])
def test_check_runs_the_checks_of_an_op(spec: str) -> None:
    result = parsed("check", spec, "-i", "typed_ops", "--only", "engine_native", "--attribute", "by=0.5")
    assert result["ok"] is True
    assert {"name": "engine_native", "status": "passed"}.items() <= result["checks"][0].items()
    text = command("check", spec, "-i", "typed_ops", "--only", "engine_*", "-x", "x=float32[2, 3]").stdout
    assert "float32[2, 3]" in text


def test_check_fails_where_a_check_does() -> None:
    result = parsed("check", "typed_ops:wrong", "--only", "outputs", code=1)
    assert (result["ok"], result["checks"][0]["status"]) == (False, "failed")
    assert "FAILED" in command("check", "typed_ops:wrong", "--only", "outputs", code=1).stdout
    assert "no check 'inputs'" in command("check", "typed_ops:wrong", "--only", "inputs", code=2).stderr


def test_check_takes_the_strategy_that_is_registered(folder: Path) -> None:
    (folder / "boards.py").write_text(
        commands.OPS.partition("@")[0]
        + """
@onnx_op("boards::Turned")
def turned(x: F32) -> F32:
    assert x.shape == (3, 5)
    return x.T

@turned.register_samples
def _():
    from pyops.testing import strategies
    return strategies.samples(turned, shapes=(3, 5))
"""
    )
    result = parsed("check", "boards.py:turned", "--only", "generated")
    assert result["checks"][0]["reason"] == "100 samples, of which the kernel refuses 0"
    assert parsed("bench", "boards.py:turned")["results"]


def test_attributes_may_be_called_like_options_of_check() -> None:
    arguments = ("typed_ops:options", "--only", "outputs", "-a", "checks=all", "-a", "generate=3")
    text = command("check", *arguments).stdout
    assert "Options(float32[2, 3], checks='all', generate=3), generated inputs: 1 passed" in text


def test_bench_gives_ratios_to_the_plain_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.commands, "medians", quick_medians)
    arrays = ("-x", "first=float32[2]", "-x", "rest=float32[3]", "-x", "rest=float32[1]")
    result = parsed("bench", "typed_ops:concatenate", *arrays)
    assert result["base"] == "plain call"
    assert [item["name"] for item in result["results"]] == ["plain call", "native", "reference"]
    assert result["results"][0]["ratio"] == 1
    assert "variadic input 'rest'" in result["left out"]["extensions"]
    result = parsed("bench", save(chain("typed::Plus")), "-i", "typed_ops", "-x", "x=float32[2]")
    assert result["base"] == "native"
    text = command("bench", "typed_ops:plus", "-x", "x=float32[2]", "-a", "by=2").stdout
    assert "to plain call" in text


def test_bench_makes_inputs_up_as_check_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.commands, "medians", quick_medians)
    result = parsed("bench", "typed_ops:plus")
    assert [item["name"] for item in result["results"]][:2] == ["plain call", "native"]


def test_bench_says_which_inputs_and_attributes_there_are() -> None:
    result = command("bench", "typed_ops:concatenate", "-x", "rest=float32[2]", code=2)
    assert "--input 'first=float32[2,3]'" in result.stderr
    result = command("bench", "typed_ops:plus", "-x", "x=float32[2]", "-a", "to=1", code=2)
    assert "(by)" in result.stderr


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400"])
def test_attributes_may_be_infinite_or_nan(value):
    command("check", "typed_ops:plus", "--only", "engine_native", "-x", "x=float32[2]", "-a", f"by={value}")


def test_inputs_that_have_to_be_given_are_named_as_options(folder: Path) -> None:
    (folder / "choosy.py").write_text(
        OPTIONAL.replace("optional::", "choosy::").replace("y is None", "x.shape == (7,)")
    )
    result = command("check", "choosy.py:weighted", code=2)
    assert "--input x=FILE.npy" in " ".join(result.stderr.replace("│", " ").split())
    assert "check(" not in result.stderr


def test_how_to_request_generated_inputs_is_said_as_an_option() -> None:
    assert "--generate 100" in command("check", "typed_ops:plus", "--only", "generated").stdout
