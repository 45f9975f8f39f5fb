"""``replace``."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.pyops._cli.commands import command, parsed

pytestmark = pytest.mark.usefixtures("folder")

OPS = """
import numpy as np
import torch
from numpy.typing import NDArray
from pyops import onnx_op

@onnx_op("my_ops::Swish")
def swish(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x / (1 + np.exp(-x))

@swish.register_decomposition
def _(x):
    return x * torch.sigmoid(x)
"""
MODEL = '<ir_version: 9, opset_import: ["": 18]> main (float[n] x) => (float[n] y) { s = Sigmoid(x)  y = %s(s, x) }'


def save(operator: str) -> None:
    Path("swishes.py").write_text(OPS)
    onnx.save(onnx.parser.parse_model(MODEL % operator), "a.onnx")


def test_a_model_with_places_is_written_with_the_ops(folder: Path) -> None:
    save("Mul")
    np.save("x.npy", np.array([1, -2], np.float32))
    done = command("replace", "a.onnx", "--ops", "swishes.py", "-o", "b.onnx", "--input", "x=x.npy")
    assert done.stdout.startswith("my_ops::Swish: 1 place\n")
    assert [node.op_type for node in onnx.load("b.onnx").graph.node] == ["Swish"]
    assert parsed("replace", "a.onnx", "--ops", "swishes.py", "-o", "b.onnx")["counts"] == {"my_ops::Swish": 1}


def test_the_exit_code_is_1_where_an_op_has_no_place(folder: Path) -> None:
    save("Add")
    done = command("replace", "a.onnx", "--ops", "swishes.py", "-o", "b.onnx", "--no-verify", code=1)
    assert done.stdout.startswith("my_ops::Swish: 0 places\n")
    assert len(onnx.load("b.onnx").graph.node) == 2


def test_a_module_without_decompositions_is_refused(folder: Path) -> None:
    save("Mul")
    Path("none.py").write_text("x = 1")
    done = command("replace", "a.onnx", "--ops", "none.py", "-o", "b.onnx", code=2)
    assert "'none.py' declares no op with a decomposition" in done.stderr


def test_ops_of_other_modules_do_not_count(folder: Path) -> None:
    save("Mul")
    Path("uses.py").write_text("from pyops.kernels.transformers import rms_norm, swiglu\n" + OPS)
    assert parsed("replace", "a.onnx", "--ops", "uses.py", "-o", "b.onnx")["counts"] == {"my_ops::Swish": 1}


def test_one_op_of_a_module_is_chosen_by_name(folder: Path) -> None:
    save("Mul")
    Path("two.py").write_text(OPS + OPS.replace("Swish", "Other").replace("swish", "other"))
    arguments = ("replace", "a.onnx", "--ops", "two.py", "-o", "b.onnx", "--no-verify", "--op")
    assert parsed(*arguments, "my_ops::Other")["counts"] == {"my_ops::Other": 1}
    done = command(*arguments, "my_ops::Swich", code=2)
    assert "my_ops::Swish" in done.stderr


def test_without_bodies_the_model_needs_the_ops(folder: Path) -> None:
    save("Mul")
    command("replace", "a.onnx", "--ops", "swishes.py", "-o", "b.onnx", "--no-bodies", "--no-verify")
    assert not onnx.load("b.onnx").functions
