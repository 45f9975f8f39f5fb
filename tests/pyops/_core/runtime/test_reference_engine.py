"""Ops in ONNX's ReferenceEvaluator, beyond the table of samples."""

from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, inliner
from onnx.reference import ReferenceEvaluator

import pyops
from pyops import errors, onnx_op
from tests.helpers.models import FLOAT, chain, make_model, opset_imports
from tests.helpers.scripts import run_plain_script
from tests.project.test_imports import BLOCK, HEAVY

F32, I64 = NDArray[np.float32], NDArray[np.int64]
X = np.arange(3, dtype=np.float32)


def evaluator(model: Any) -> ReferenceEvaluator:
    return ReferenceEvaluator(model, new_ops=pyops.reference_ops())


def run(model: Any, **feed: Any) -> list[Any]:
    return [array.tolist() for array in evaluator(model).run(None, feed or {"x": X})]


def test_every_result_on_the_way_can_be_looked_at() -> None:
    @onnx_op("reference::Twice")
    def twice(x: F32) -> F32:
        return x + x

    results = evaluator(chain("reference::Twice", "Neg", "reference::Twice")).run(None, {"x": X}, intermediate=True)
    assert {name: results[name].tolist() for name in ("t1", "t2", "y")} == {
        "t1": [0, 2, 4],
        "t2": [0, -2, -4],
        "y": [0, -4, -8],
    }


@pytest.mark.parametrize(("opset", "expected"), [(1, 1), (2, 1), (3, 3), (9, 3)])
def test_the_opset_import_decides_which_version_runs(opset: int, expected: int) -> None:
    for version in (1, 3):

        @onnx_op("reference::Which", version=version)
        def which(x: F32, *, version: int = version) -> F32:
            return x * 0 + np.float32(version)

    assert run(chain("reference::Which", domains={"reference": opset})) == [[expected] * 3]


def test_an_opset_import_below_every_version_is_an_error_that_names_both() -> None:
    @onnx_op("reference::Late", version=5)
    def late(x: F32) -> F32:
        return x

    with pytest.raises(errors.ModelError, match=r"declared from version 5 on; the model imports version 2"):
        evaluator(chain("reference::Late", domains={"reference": 2}))


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("error", [BrokenError("no"), TypeError("no"), AttributeError("no"), KeyboardInterrupt("no")])
def test_a_kernel_s_exception_comes_out_as_itself_and_names_the_node(error: BaseException) -> None:
    @onnx_op("reference::Fail")
    def fail(x: F32) -> F32:
        raise error

    session = evaluator(chain("Neg", "reference::Fail"))
    with pytest.raises(type(error)) as raised:
        session.run(None, {"x": X})
    assert raised.value is error
    assert error.__notes__ == ["in node 'node1' (reference::Fail), inputs x: float32[3]"]
    assert error.__cause__ is None


def test_a_wrong_result_and_a_wrong_input_are_errors_that_name_the_node() -> None:
    @onnx_op("reference::Half")
    def half(x: F32) -> F32:
        return x / np.float64([2])

    session = evaluator(chain("reference::Half"))
    for feed, expected in (
        (X, "declared float32 and the kernel returned float64"),
        (X > 1, "'x' is bool; declared as"),
    ):
        with pytest.raises(errors.PyopsError, match=expected) as raised:
            session.run(None, {"x": feed})
        assert raised.value.__notes__[0].startswith("in node 'node0' (reference::Half)")


def test_a_node_that_does_not_fit_the_declaration_is_an_error_before_anything_runs() -> None:
    @onnx_op("reference::Shift")
    def shift(x: F32, *, by: float) -> F32:
        return x + np.float32(by)

    model = chain("reference::Shift")
    with pytest.raises(errors.ModelError, match=r"node 'node0' \(reference::Shift\): attribute 'by' is missing"):
        evaluator(model)
    model.graph.node[0].attribute.append(helper.make_attribute("by", 3))
    with pytest.raises(errors.ModelError, match="attribute 'by' is INT in the model; it is declared float"):
        evaluator(model)


def test_attributes_may_be_called_like_what_an_operator_of_onnx_has() -> None:
    @onnx_op("reference::Names")
    def names(x: F32, *, run: float, input: float, domain: float, op_type: float, output: float = 32.0) -> F32:
        return x * 0 + np.float32(run + input + domain + op_type + output)

    model = chain("reference::Names")
    for value, name in enumerate(("run", "input", "domain", "op_type")):
        model.graph.node[0].attribute.append(helper.make_attribute(name, 2.0**value))
    assert run(model) == [[47.0] * 3]


@pytest.mark.parametrize("name", ["Conv", "Pad_18", "Constant", "Identity"])
def test_an_op_may_be_called_like_an_operator_of_onnx(name: str) -> None:
    @onnx_op(f"reference::{name}")
    def op(x: F32, *, group: float = 2.0) -> F32:
        return x * np.float32(group)

    assert run(chain(f"reference::{name}", "Identity")) == [[0, 2, 4]]


def test_an_override_takes_the_place_of_an_operator_of_onnx() -> None:
    @onnx_op("ai.onnx::Neg", override=True)
    def neg(x: F32) -> F32:
        return x + np.float32(100)

    assert run(chain("Neg", "Abs")) == [[100, 101, 102]]


class Parts(NamedTuple):
    low: F32
    middle: F32
    high: F32


def test_outputs_without_a_name_do_not_become_somebody_s_absent_input() -> None:
    @onnx_op("reference::Parts")
    def parts(x: F32) -> Parts:
        return Parts(x, x + 1, x + 2)

    @onnx_op("reference::Bound")
    def bound(x: F32, low: F32 | None = None, high: F32 | None = None) -> F32:
        assert low is None
        return x if high is None else np.minimum(x, high)

    nodes = [
        helper.make_node("Parts", ["x"], ["a", "", "c"], domain="reference"),
        helper.make_node("Bound", ["c", "", "a"], ["y"], domain="reference"),
        helper.make_node("Clip", ["c", "", "x"], ["z"]),
    ]
    model = make_model(
        nodes, [("x", np.float32, [3])], [("y", np.float32, None), ("z", np.float32, None)], {"reference": 1}
    )
    assert run(model) == [[0, 1, 2], [0, 1, 2]]


def test_a_variadic_op_must_give_as_many_outputs_as_its_node_has() -> None:
    @onnx_op("reference::Split")
    def split(x: F32) -> tuple[F32, ...]:
        return tuple(np.split(x, 3))

    node = helper.make_node("Split", ["x"], ["a", "b"], domain="reference")
    model = make_model([node], [("x", np.float32, [3])], [("a", np.float32, None)], {"reference": 1})
    with pytest.raises(errors.OutputError, match="returned 3 arrays; the model's node has 2 outputs"):
        run(model)


def test_ops_run_in_the_branches_of_a_node() -> None:
    @onnx_op("reference::Plus")
    def plus(x: F32, *, amount: float = 1.0) -> F32:
        return x + np.float32(amount)

    def branch(amount: float) -> onnx.GraphProto:
        node = helper.make_node("Plus", ["x"], ["b"], domain="reference", amount=amount)
        return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("b", FLOAT, None)])

    node = helper.make_node("If", ["choice"], ["y"], then_branch=branch(10.0), else_branch=branch(20.0))
    inputs = [("x", np.float32, [3]), ("choice", np.bool_, [])]
    model = make_model([node], inputs, [("y", np.float32, None)], {"reference": 1})
    assert run(model, x=X, choice=np.array(True)) == [[10, 11, 12]]
    assert run(model, x=X, choice=np.array(False)) == [[20, 21, 22]]


def function(*attributes: str) -> onnx.FunctionProto:
    node = helper.make_node("Plus", ["a"], ["b"], domain="reference")
    node.attribute.append(onnx.AttributeProto(name="amount", ref_attr_name="n", type=onnx.AttributeProto.FLOAT))
    return helper.make_function("local", "Wrapped", ["a"], ["b"], [node], opset_imports({"reference": 1}), attributes)


def test_an_attribute_may_be_that_of_the_function_around_the_node() -> None:
    @onnx_op("reference::Plus")
    def plus(x: F32, *, amount: float) -> F32:
        return x + np.float32(amount)

    session = evaluator(function("n"))
    assert session.run(None, {"a": X}, attributes={"n": np.float32(5)})[0].tolist() == [5, 6, 7]
    assert session.run(None, {"a": X}, attributes={"n": np.float32(7)})[0].tolist() == [7, 8, 9]
    with pytest.raises(errors.InputError, match="attribute 'amount' is missing"):
        session.run(None, {"a": X}, attributes={"other": np.float32(7)})


def test_a_model_s_own_functions_are_inlined_first() -> None:
    @onnx_op("reference::Plus")
    def plus(x: F32, *, amount: float) -> F32:
        return x + np.float32(amount)

    node = helper.make_node("Wrapped", ["x"], ["y"], domain="local", n=5.0)
    domains = {"local": 1, "reference": 1}
    model = make_model([node], [("x", np.float32, [3])], [("y", np.float32, None)], domains, functions=[function("n")])
    assert run(inliner.inline_local_functions(model)) == [[5, 6, 7]]
    assert pyops.InferenceSession(model).run(None, {"x": X})[0].tolist() == [5, 6, 7]


def test_an_evaluator_follows_a_changed_body() -> None:
    def declare(factor: float) -> None:
        @onnx_op("reference::Changed")
        def changed(x: F32) -> F32:
            return x * np.float32(factor)

    declare(2)
    session = evaluator(chain("reference::Changed"))
    declare(3)
    assert session.run(None, {"x": X})[0].tolist() == [0, 3, 6]


def test_what_a_shape_function_gives_is_held_against_the_result() -> None:
    @onnx_op("reference::Shaped")
    def shaped(x: F32) -> F32:
        return x[:1]

    shaped.register_shape_inference(lambda x: x)
    with pytest.raises(errors.OutputError, match="returned shapes \\[1\\] and the shape function gives \\[3\\]"):
        run(chain("reference::Shaped"))


def test_complex_numbers_run_though_onnx_runtime_has_none() -> None:
    @onnx_op("reference::Conjugate")
    def conjugate(x: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return x.conj()

    x = np.array([1 + 2j], np.complex64)
    assert run(chain("reference::Conjugate", dtype=np.complex64), x=x) == [[1 - 2j]]


def test_functions_declared_with_onnxruntime_extensions_run() -> None:
    onnxruntime_extensions = pytest.importorskip("onnxruntime_extensions")
    code = onnxruntime_extensions.PyCustomOpDef.dt_float

    @onnxruntime_extensions.onnx_op(op_type="reference.adopted::Third", inputs=[code], outputs=[code])
    def third(x):
        return x / np.float32(3)

    assert run(chain("reference.adopted::Third"), x=X * 3) == [[0, 1, 2]]


def test_a_model_runs_where_onnxruntime_is_not_installed() -> None:
    script = f"""
BLOCKED = {HEAVY}
{BLOCK}
import numpy as np, pyops
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from tests.helpers.models import chain

@pyops.onnx_op("reference::Op")
def op(x: NDArray[np.float32], *, n: int = 2) -> NDArray[np.float32]:
    return x * np.float32(n)

model = chain("reference::Op", "Neg")
session = ReferenceEvaluator(model, new_ops=pyops.reference_ops(model))
print(session.run(None, {{"x": np.ones(2, np.float32)}})[0].tolist())
print(pyops.list_ops()[0].name, "reference" in repr(pyops.list_ops()))
"""
    run_plain_script(script, "[-2.0, -2.0]\nOp True")
