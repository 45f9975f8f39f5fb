"""``compare``."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.pyops._cli.commands import command, parsed

pytestmark = pytest.mark.usefixtures("folder")

MODEL = '<ir_version: 10, opset_import: ["": 20]> main (float[n] x) => (float[n] y) { a = Abs(x)  y = %s(a) }'


def save(name: str, operator: str) -> str:
    onnx.save(onnx.parser.parse_model(MODEL % operator), name)
    return name


def test_the_first_wrong_node_is_named(folder: Path) -> None:
    a, b = save("a.onnx", "Exp"), save("b.onnx", "Log")
    np.save("x.npy", np.array([1, -2], np.float32))
    done = command("compare", a, b, "--input", "x=x.npy", code=1)
    assert done.stdout.startswith("the first wrong node is Log")
    assert "the inputs were generated" not in done.stdout
    found = parsed("compare", a, b, code=1)
    assert (found["ok"], found["first"]["op"], found["first"]["value"]) == (False, "Log", "y")


def test_models_that_agree(folder: Path) -> None:
    done = command("compare", save("a.onnx", "Exp"), "a.onnx")
    assert done.stdout.splitlines()[:2] == ["the models agree", "the inputs were generated"]
