"""A model file is no way in: which torch operators it may name, and what it may pass them."""

import json
import re

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import exporters
import pyops
from exporters import _torch_private
from exporters.fallback import calls, rule
from exporters.tensors import sharing_tensor
from pyops.errors import InputError, ModelError

GOOD = '{"A": {"tensor": 0}}'


@pytest.fixture(autouse=True)
def _asked_for():
    exporters.use_fallback()


def make_model(name: str, arguments: str = GOOD, overload: str = "default") -> onnx.ModelProto:
    node = onnx.helper.make_node(name, ["x"], ["y"], domain="aten", overload_name=overload, arguments=arguments)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("aten", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def overload(name: str) -> torch._ops.OpOverload:
    packet, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")


def test_a_good_model_runs():
    x = np.array([[1, 2], [3, 4]], np.float32)
    (y,) = pyops.InferenceSession(make_model("linalg_inv")).run(None, {"x": x})
    np.testing.assert_allclose(y @ x, np.eye(2), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["linalg_inv", "masked_select", "median.dim", "einsum", "gelu", "unique_consecutive", "cat", "_cdist_forward"],
)
def test_what_a_model_may_name(name):
    assert rule.refusal(overload(name), {"aten"}) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("from_file", "takes no tensor|of a kind"),
        ("relu_", "writes to its arguments"),
        ("add.out", "writes to its arguments"),
        ("set_.source_Storage", "writes to its arguments"),
        ("item", "not tensors alone"),
        ("equal", "not tensors alone"),
        ("_local_scalar_dense", "not tensors alone"),
        ("rand", "takes no tensor"),
        ("_unsafe_view", "private to torch"),
        ("_pin_memory", "private to torch"),
        ("unsafe_split.Tensor", "unsafe"),
        ("to_sparse", "sparse"),
        ("quantize_per_tensor", "quantized"),
    ],
)
def test_what_a_model_may_not_name(name, why):
    assert re.search(why, rule.refusal(overload(name), {"aten"}))


def test_only_namespaces_that_were_asked_for():
    assert "did not ask" in rule.refusal(torch.ops.prims.sin.default, {"aten"})


def test_every_operator_of_aten_that_may_be_named_takes_and_gives_plain_data():
    names = {
        "Tensor",
        "int",
        "float",
        "bool",
        "number",
        "ScalarType",
        "Layout",
        "Device",
        "MemoryFormat",
        "str",
        "Generator",
    }
    allowed = 0
    for name in sorted(_torch_private.operator_names()):
        namespace, _, rest = name.partition("::")
        packet = getattr(torch.ops.aten, rest, None) if namespace == "aten" else None
        for item in packet.overloads() if packet is not None else ():
            found = getattr(packet, item)
            if rule.refusal(found, {"aten"}):
                continue
            allowed += 1
            schema = _torch_private.spell(found)
            types = [argument.type for argument in _torch_private.schema_arguments(found)]
            for type_ in types:
                assert type_.replace("Optional[", "").replace("List[", "").rstrip("]") in names, schema
            assert any("Tensor" in type_ for type_ in types), schema
            assert all("Tensor" in type_ for type_ in _torch_private.schema_returns(found)), schema
            assert "file" not in schema, schema
            assert "Storage" not in schema, schema
    assert allowed > 1000


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("from_file", GOOD, "aten::from_file is not declared, and the fallback has none such"),
        ("nonsense", GOOD, "torch has no operator aten::nonsense"),
        ("linalg_inv", "[" * 100_000, "are JSON"),
        ("linalg_inv", "{", "are JSON"),
        ("linalg_inv", '{"A": NaN}', "are JSON"),
        ("linalg_inv", "9" * 10_000, "are JSON"),
        ("linalg_inv", "[]", "are a JSON object"),
        ("linalg_inv", '{"A": {"__reduce__": 0}}', "which no call has"),
        ("linalg_inv", '{"A": {"tensor": -1}}', "which no call has"),
        ("linalg_inv", '{"A": {"tensor": true}}', "which no call has"),
        ("linalg_inv", '{"A": {"tensor": 0, "size": 0}}', "which no call has"),
        ("linalg_inv", '{"A": {"dtype": "os"}}', "which no call has"),
        ("linalg_inv", '{"A": {"device": "cuda"}}', "which no call has"),
        ("linalg_inv", '{"A": 99999999999999999999}', "does not fit int64"),
        ("linalg_inv", '{"A": [[[[[[[0]]]]]]]}', "nested deeper"),
        ("linalg_inv", json.dumps({"A": "x" * (1 << 20)}), "at most 1048576 characters"),
    ],
)
def test_a_hostile_model_is_refused_when_it_is_loaded(name, arguments, message):
    with pytest.raises(ModelError, match=message):
        pyops.InferenceSession(make_model(name, arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ('{"A": {"tensor": 7}}', InputError, "the arguments name input 7, and the node has 1"),
        ('{"A": {"complex": 0}}', RuntimeError, "must be batches of square matrices|at least 2 dimensions"),
        ('{"A": {"size": 0}}', InputError, "a size is one integer"),
        ('{"A": "/etc/passwd"}', RuntimeError, "Expected a value of type 'Tensor'"),
        ("{}", RuntimeError, "missing value for argument 'A'"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_when_it_runs(arguments, error, message):
    session = pyops.InferenceSession(make_model("linalg_inv", arguments))
    with pytest.raises(error, match=message):
        session.run(None, {"x": np.eye(2, dtype=np.float32)})


def test_no_memory_beyond_the_tensor_is_read():
    arguments = '{"self": {"tensor": 0}, "size": [1000000], "stride": [1000]}'
    session = pyops.InferenceSession(make_model("as_strided", arguments))
    with pytest.raises(RuntimeError, match="out of bounds"):
        session.run(None, {"x": np.eye(2, dtype=np.float32)})


def test_inputs_are_shared_and_not_written_to():
    x = np.eye(2, dtype=np.float32)
    x.flags.writeable = False
    tensor = sharing_tensor(x)
    assert tensor.data_ptr() == x.ctypes.data
    session = pyops.InferenceSession(make_model("view_copy", '{"self": {"tensor": 0}, "size": [4]}'))
    session.run(None, {"x": x})
    np.testing.assert_array_equal(x, np.eye(2))


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.complex_numbers()
    | st.sampled_from([torch.float32, torch.strided, torch.channels_last])
)  # fmt: skip


@given(st.dictionaries(st.text(), SCALARS | st.lists(SCALARS, max_size=3)))
def test_a_call_comes_back_from_its_json(arguments):
    text = calls.encode(arguments, lambda value: None)
    back = calls.decode(calls.parse(text), int, int, int)
    assert repr(back) == repr(arguments)
