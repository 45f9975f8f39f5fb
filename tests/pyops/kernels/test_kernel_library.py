"""The kernel library's domain: its ops are there when a model asks for them, and not before."""

import inspect

import onnx.parser
import pytest

import pyops
from pyops.errors import ModelError
from pyops.kernels import OPS
from tests.helpers.scripts import run_plain_script, run_script

TEXT = """<ir_version: 10, opset_import: ["": 20, "pyops": 1]>
main (double[n, n] a) => (double[n, n] factor, int32 info) { factor, info = pyops.CholeskyEx(a) }"""
MODEL = f"import onnx.parser; model = onnx.parser.parse_model({TEXT!r})"


def test_a_session_finds_them_and_declares_what_it_needs():
    script = """
        import sys
        import numpy as np, onnx.parser, pyops
        assert "pyops.kernels" not in sys.modules
        MODEL
        print(pyops.InferenceSession(model).run(None, {"a": np.array([[4.0, 2.0], [2.0, 5.0]])})[0].tolist())
        print([op.signature.qualified_name for op in pyops.list_ops()])
        print("torch" in sys.modules, "scipy" in sys.modules)
    """
    expected = """
        [[2.0, 0.0], [1.0, 2.0]]
        ['pyops::CholeskyEx']
        False False
    """
    run_plain_script(inspect.cleandoc(script).replace("MODEL", MODEL), expected)


def test_sessions_of_others_get_all_of_them():
    script = """
        import pyops.kernels
        pyops.kernels.declare_all()
        print(len(pyops.list_ops()) == len(pyops.kernels.OPS))
        options = pyops.register_custom_ops(onnxruntime.SessionOptions())
        print(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"a": np.eye(1)}))
    """
    run_script((MODEL, script), "True\n[array([[1.]]), array(0, dtype=int32)]")


def test_a_declaration_of_ones_own_goes_first():
    script = """
        @onnx_op("pyops::CholeskyEx")
        def own(a: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
            return a + 7, np.array(1, np.int32)

        print(pyops.InferenceSession(model).run(None, {"a": np.eye(1)})[0].tolist())
        pyops.kernels.declare_all()
        print(pyops.InferenceSession(model).run(None, {"a": np.eye(1)})[0].tolist())
    """
    run_script((MODEL, "import pyops.kernels", script), "[[8.0]]\n[[8.0]]")


def test_an_op_that_it_lacks():
    model = onnx.parser.parse_model(TEXT.replace("CholeskyEx", "CholeskiEx"))
    with pytest.raises(ModelError, match=r"pyops\.kernels has no op CholeskiEx \(did you mean 'CholeskyEx'\?\)"):
        pyops.InferenceSession(model)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_its_declarations_say_what_an_implementation_must_know(op):
    documented = inspect.getdoc(op.kernels["cpu"])
    names = [item.name for item in (*op.signature.inputs, *op.signature.attributes)]
    assert (op.domain, op.version) == ("pyops", 1)
    assert op.shape_function is not None
    assert [name for name in names if name not in documented] == []
    assert "Returns\n-------" in documented
