"""What an op is, declared as a function of ONNX: it needs neither torch nor onnxscript."""

from typing import TypeVar

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import pyops
from pyops._onnx import bodies
from pyops.errors import DeclarationError, MissingDependencyError
from pyops.testing import check, isolated_declarations

Float = TypeVar("Float", np.float32, np.float64)


class Function:
    """What onnxscript makes of a function, as far as pyops knows it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def function(self) -> None:
        """Where it was written."""

    def to_function_proto(self) -> onnx.FunctionProto:
        return onnx.parser.parse_function(self.text)


CLIPPED = Function("""
<domain: "any", opset_import: ["": 20]> Clipped <scale: float = 2.0> (x, low) => (y) {
    number = Constant <value_float: float = @scale> ()
    factor = CastLike (number, x)
    product = Mul (x, factor)
    y = Clip (product, low)
}""")


@pytest.fixture
def clipped():
    @pyops.onnx_op("is::Clipped")
    def clipped(x: NDArray[Float], low: NDArray[Float] | None = None, *, scale: float = 2.0) -> NDArray[Float]:
        product = (x * np.float64(scale)).astype(x.dtype)
        return product if low is None else np.maximum(product, low)

    return clipped


X = np.linspace(-2, 3, 6, dtype=np.float32)


@pytest.mark.parametrize("inputs", [(X,), (X, None), (X, np.array(0.5, np.float32))], ids=["one", "none", "two"])
def test_kernel_and_body_are_compared_with_it(clipped, inputs):
    clipped.register_decomposition(CLIPPED)
    report = check(clipped, *inputs, scale=0.3, checks=["decomposition", "body"])
    assert [result.status for result in report] == ["passed", "passed"], report
    clipped.register_kernel("cpu")(lambda x, low=None, *, scale: x + x)
    report = check(clipped, *inputs, scale=0.3, checks="decomposition", raise_exception=False)
    assert "is::Clipped: the decomposition at " in report["decomposition"].reason


def test_a_body_may_use_no_operator_of_the_default_domain():
    @pyops.onnx_op("is::Positive")
    def positive(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return (x > 0).astype(x.dtype)

    text = '<domain: "any", opset_import: ["ai.onnx.ml": 1]> Positive (x) => (y) { y = ai.onnx.ml.Binarizer(x) }'
    positive.register_decomposition(Function(text))
    assert [result.status for result in check(positive, X, checks=["decomposition", "body"])] == ["passed", "passed"]


def test_generated_samples_are_compared_with_it(clipped):
    clipped.register_decomposition(CLIPPED)

    @clipped.register_kernel("cpu")
    def _(x, low=None, *, scale):
        product = (x * np.float64(scale)).astype(x.dtype)
        return product if low is None else np.fmax(product, low if x.ndim < 3 else product)

    report = check(clipped, X, checks="generated", generate=100, raise_exception=False)
    assert "the kernel gives other outputs than is::Clipped: the decomposition at" in report["generated"].reason


def test_one_says_what_the_op_is_and_others_describe_what_it_may_replace(clipped):
    assert clipped.decomposition is None

    @clipped.register_decomposition(pattern_only=True)
    def pattern(x, low=None, *, scale):
        return x

    assert clipped.decomposition is None
    clipped.register_decomposition(lambda x, low=None, *, scale: x)
    clipped.register_decomposition(CLIPPED)
    for _ in range(2):  # as when a cell runs again
        clipped.register_decomposition(pattern_only=True)(pattern)
    assert [item.function for item in clipped.decompositions] == [CLIPPED, pattern]
    assert clipped.decomposition.function is CLIPPED


def test_declarations_are_undone_and_redeclared_with_the_op(clipped):
    with isolated_declarations():
        clipped.register_decomposition(CLIPPED)
    assert clipped.decompositions == ()


def test_without_exporters_the_error_names_the_extra(clipped, monkeypatch):
    clipped.register_decomposition(lambda x, low=None, *, scale: x)
    monkeypatch.setattr(bodies, "_entry_points", list)
    with pytest.raises(MissingDependencyError, match=r"\.py:\d+ is written in torch.*onnx-pyops\[torch\]"):
        bodies.reference(clipped.decomposition, [X, None], {"scale": 2.0})
    report = check(clipped, X, checks="decomposition")
    assert report["decomposition"].status == "not run"


def test_an_operator_that_the_model_s_opset_has_otherwise_is_an_error(clipped):
    text = CLIPPED.text.replace("Mul (x, factor)", "ReduceMean <axes: ints = [0]> (x)")
    clipped.register_decomposition(Function(text.replace('"": 20', '"": 15')))
    with pytest.raises(DeclarationError, match="uses ReduceMean of opset 15, which differs"):
        bodies.body(clipped.decomposition, [None], {"scale": 2.0}, 20)
