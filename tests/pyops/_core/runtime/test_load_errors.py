"""Models that ONNX Runtime rejects when a session is made: the error explains the reason and the fix."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.models.model import load_model
from pyops._core.models.op_resolution import Resolution
from pyops._core.runtime.load_errors import explained, explanations
from pyops._filling.filling import fill
from pyops.errors import ModelError
from tests.helpers.models import chain
from tests.helpers.scripts import WITHOUT_TORCH, run_script


def refusal(model):
    with pytest.raises(ModelError) as caught:
        pyops.InferenceSession(model)
    error = caught.value
    assert str(error.__cause__).split("(")[0] in str(error)
    return str(error)


def test_an_operator_that_onnx_runtime_does_not_know():
    assert "elsewhere::Thing is not declared; import the module that declares it" in refusal(chain("elsewhere::Thing"))


def test_an_operator_of_a_later_opset():
    model = chain("Gelu")
    model.opset_import[0].version = 18
    text = refusal(model)
    assert "Gelu was added to ONNX after opset 18, which the model imports; export it with opset_version=20 or" in text


def test_an_operator_that_is_in_another_domain():
    text = refusal(chain("BiasGelu"))
    assert "BiasGelu" in text


def test_an_input_that_is_left_out():
    model = chain("Relu")
    model.graph.node[0].input[:] = [""]
    assert "Node (node0) leaves out its input 0, which its operator requires" in refusal(model)


def test_types_without_a_kernel():
    text = refusal(chain("Sinh", dtype=np.float64))
    assert "has no kernel of Sinh for the types in this model (see node 'node0')" in text
    assert '@onnx_op("ai.onnx::Sinh", override=True)' in text


def test_a_value_whose_type_only_a_function_of_the_model_tells():
    @onnx_op("refused::Twice")
    def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x * 2

    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 20, "local": 1]>
        graph (float[n] x) => (float[n] y) { between = local.Twice (x)  y = local.Twice (between) }
        <domain: "local", opset_import: ["refused": 1]> Twice (x) => (y) { y = refused.Twice (x) }""")
    text = refusal(model)
    assert "cannot infer the type of 'between', an output of Twice" in text
    exec(text.rpartition("add it to the model: ")[2].rpartition(", for")[0], {"model": model, "onnx": onnx})
    result = pyops.InferenceSession(model).run(None, {"x": np.ones(2, np.float32)})
    assert result[0].tolist() == [4, 4]


def test_an_op_of_a_library_is_not_blamed_for_another_node_of_unknown_type():
    error = RuntimeError("Could not find an implementation for Sinh(9) node with name 'node1'")
    source = load_model(chain("refused::Thing", "Sinh"))
    text = str(explained(error, source, Resolution(), "native", fill(source, {}), {("refused", "Thing")}))
    assert "this ONNX Runtime has no kernel of Sinh" in text
    assert "unknown types: 'node1'; add these types to the model's value_info" in text
    assert "refused::Thing" not in text


def test_an_op_declared_twice_with_onnxruntime_extensions():
    pytest.importorskip("onnxruntime_extensions")
    script = """
        import onnxruntime_extensions as extensions
        for _ in range(2):
            @extensions.onnx_op(op_type="twice::Same", inputs=[1], outputs=[1])
            def same(x):
                return x
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(extensions.get_library_path())
        try:
            pyops.InferenceSession(chain("twice::Same"), options)
        except pyops.errors.ModelError as error:
            print(str(error).splitlines()[-1].strip(' -'))
            print("Conflicting with a registered kernel with op versions" in str(error.__cause__))
    """
    meaning = (
        "twice::Same was declared twice with onnxruntime_extensions.onnx_op, which cannot replace an operator; "
        "restart Python, and declare it with @pyops.onnx_op, which can"
    )
    run_script((WITHOUT_TORCH, script), f"{meaning}\nTrue")


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("Unable to find attribute axis", "a node lacks the attribute axis"),
        (
            "Type float16 not supported by python customops api",
            "has no float16; declare the operator with @pyops.onnx_op",
        ),
    ],
)
def test_messages_that_models_of_others_bring(message, meaning):
    (line,) = explanations(message)
    assert meaning in line


def test_what_is_not_known_passes_as_it_is():
    @onnx_op("known::Fine")
    def fine(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    model = chain("known::Fine", "Cast")
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph, match="Required attribute 'to'"):
        pyops.InferenceSession(model)


@pytest.mark.parametrize("inside", [b"Op", b"known"])
def test_an_operator_whose_name_is_no_text_is_said(inside):
    model = chain("known::Op")
    model.graph.node.add(op_type="If", name="dom").attribute.add(name="branch").g.node.add(op_type="Op")
    data = model.SerializeToString()
    for place in range(data.count(inside)):
        pieces = data.split(inside)
        damaged = inside.join(pieces[: place + 1]) + b"\xff" + inside[1:] + inside.join(pieces[place + 1 :])
        with pytest.raises(
            ModelError, match=r"has the text b'\\xff.*not UTF-8.*; the file is damaged: export it again"
        ):
            pyops.InferenceSession(damaged)


@pytest.mark.parametrize("name", ["an_input", "of_nobody"])
def test_a_value_whose_name_is_no_text_is_said(name):
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[n] an_input) => (float[n] y) { y = Tanh(%s) }'
    data = onnx.parser.parse_model(text % name).SerializeToString().replace(name.encode(), b"\xff" + name[1:].encode())
    with pytest.raises(ModelError, match=r"has the text b'\\xff.*not UTF-8.*; the file is damaged: export it again"):
        pyops.InferenceSession(data)


def test_names_neither_fill_nor_command_the_terminal():
    @onnx_op("known::Fine")
    def fine(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    for name in ("\x1b[31m" + "long" * 10000, "\N{RIGHT-TO-LEFT OVERRIDE}" + "é" * 10000):
        for domain in ("known", "elsewhere"):
            with pytest.raises(ModelError) as caught:
                pyops.InferenceSession(chain(f"{domain}::{name}"))
            text = str(caught.value)
            assert all(char.isprintable() or char == "\n" for char in text)
            assert len(text) < 20000
            assert "is not declared" in text


@pytest.mark.parametrize(
    ("opset", "kind", "fault"),
    [
        (
            999,
            "float",
            r"the model imports opset 999 of ai.onnx, .* opsets up to \d+; export the model with opset_version",
        ),
        (20, "double", r"'x', an input of Faulted, is tensor\(double\) .*\n  - refused::Faulted\(x: float32\)"),
    ],
)
def test_the_opset_or_the_type_at_fault_is_named(opset, kind, fault):
    @pyops.onnx_op("refused::Faulted")
    def faulted(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    header = f'<ir_version: 10, opset_import: ["": {opset}, "refused": 1]>'
    text = f"g ({kind}[n] x) => (float[n] y) {{ y = refused.Faulted(x) }}"
    with pytest.raises(pyops.errors.ModelError, match=fault) as caught:
        pyops.InferenceSession(onnx.parser.parse_model(header + text))
    assert ("is declared" in str(caught.value)) == (kind == "double")
