"""The declaration form of onnxruntime-extensions: everything its documentation allows, and its mistakes."""

import functools
import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pyops import PyCustomOpDef, errors, onnx_op
from pyops._core.schema.attribute import AttributeKind

ONE = np.ones(2, np.float32)
FLOAT, INT64, STRING = PyCustomOpDef.dt_float, PyCustomOpDef.dt_int64, PyCustomOpDef.dt_string


def test_the_documented_declaration_works_unchanged():
    @onnx_op(op_type="test.moved::CustomOpTwo", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])
    def custom_op_two(x):
        return np.round(x)

    assert str(custom_op_two.signature) == "test.moved::CustomOpTwo(x: float32) -> float32"
    assert custom_op_two(ONE * np.float32(1.4)).tolist() == [1, 1]


def test_a_name_without_a_domain_is_in_the_domain_of_onnxruntime_extensions():
    assert onnx_op(op_type="Plain")(lambda x: x).signature.qualified_name == "ai.onnx.contrib::Plain"


def test_without_a_name_the_op_is_called_like_the_function():
    @onnx_op()
    def reverse_matrix(x):
        return np.flip(x)

    assert str(reverse_matrix.signature) == "ai.onnx.contrib::reverse_matrix(x: float32) -> float32"


def test_inputs_and_outputs_are_one_float_each_unless_given():
    op = onnx_op(op_type="a::X")(lambda x: x)
    assert [[str(item.type) for item in items] for items in (op.signature.inputs, op.signature.outputs)] == [
        ["float32"],
        ["float32"],
    ]


def test_inputs_may_be_none_at_all():
    assert onnx_op(op_type="a::Source", inputs=[])(lambda: np.float32(3))().item() == 3


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (PyCustomOpDef.dt_double, np.float64),
        (PyCustomOpDef.dt_bool, np.bool_),
        (PyCustomOpDef.dt_string, np.object_),
        (PyCustomOpDef.dt_float16, np.float16),
        (PyCustomOpDef.dt_uint64, np.uint64),
    ],
)
def test_type_codes_are_element_types(code, dtype):
    op = onnx_op(op_type="a::Typed", inputs=[code], outputs=[code])(lambda x: x)
    value = np.array(["a"], dtype) if dtype is np.object_ else np.ones(1, dtype)
    assert op(value).dtype == dtype


def test_every_type_code_is_the_one_of_onnxruntime_extensions():
    if importlib.util.find_spec("onnxruntime_extensions") is None:
        pytest.skip("onnxruntime-extensions is not installed")
    # In a process of its own: sessions behave differently once it is imported.
    codes = {name: value for name, value in vars(PyCustomOpDef).items() if name.startswith("dt_")}
    code = "import sys; sys.modules['torch'] = None\n"  # it would import it, which takes long
    code += f"from onnxruntime_extensions import PyCustomOpDef as P; print({{n: getattr(P, n) for n in {list(codes)}}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(codes)


def test_several_outputs_come_back_as_a_tuple():
    @onnx_op(op_type="a::Both", inputs=[FLOAT, FLOAT], outputs=[FLOAT, INT64])
    def both(x, y):
        return x + y, np.array(x.shape)

    total, shape = both(ONE, ONE)
    assert (total.tolist(), shape.tolist()) == ([2, 2], [2])


@pytest.mark.parametrize("attrs", [["mode", "unit"], ("mode", "unit")])
def test_a_list_of_attributes_is_of_strings(attrs):
    @onnx_op(op_type="a::Strings", attrs=attrs)
    def strings(x, **kwargs):
        assert kwargs == {"mode": "m", "unit": "u"}
        return x

    assert {item.kind for item in strings.signature.attributes} == {AttributeKind.STRING}
    strings(ONE, mode="m", unit="u")


def test_a_dict_of_attributes_says_their_types():
    @onnx_op(op_type="a::Typed", attrs={"i": INT64, "f": FLOAT, "s": STRING})
    def typed(x, i, f, s):
        return x * np.float32(i * f + len(s))

    assert [item.kind.name for item in typed.signature.attributes] == ["INT", "FLOAT", "STRING"]
    assert typed(ONE, i=2, f=0.5, s="abc").tolist() == [4, 4]


def test_attributes_with_defaults_may_be_left_out():
    @onnx_op(op_type="a::Defaults", attrs={"n": INT64, "unit": STRING, "base": INT64})
    def defaults(x, n=2, unit=None, base=1):
        return x * np.float32(n + base + (0 if unit is None else len(unit)))

    assert defaults(ONE).tolist() == [3, 3]
    assert defaults(ONE, n=5, unit="abc").tolist() == [9, 9]


def test_attributes_of_a_kernel_with_keywords_may_be_left_out_and_are_absent_then():
    @onnx_op(op_type="a::Keywords", attrs={"n": INT64})
    def keywords(x, **kwargs):
        return x * np.float32(kwargs.get("n", 7))

    assert keywords(ONE).tolist() == [7, 7]
    assert keywords(ONE, n=2).tolist() == [2, 2]


def test_an_attribute_without_a_default_is_required():
    op = onnx_op(op_type="a::Required", attrs={"n": INT64})(lambda x, n: x)
    with pytest.raises(errors.InputError, match="attribute 'n' is missing"):
        op(ONE)


def test_kernels_may_take_any_number_of_arguments():
    op = onnx_op(op_type="a::Starred", inputs=[FLOAT, FLOAT])(lambda *arrays, **attributes: sum(arrays))
    assert [item.name for item in op.signature.inputs] == ["input_0", "input_1"]
    assert op(ONE, ONE).tolist() == [2, 2]


def test_kernels_get_copies_that_they_may_write_to():
    @onnx_op(op_type="a::Writes")
    def writes(x):
        x += 1
        return x

    array = np.zeros(2, np.float32)
    assert writes(array).tolist() == [1, 1]
    assert array.tolist() == [0, 0]


class Scaler:
    def __call__(self, x):
        return x * np.float32(2)


@pytest.mark.parametrize(
    "function",
    [np.negative, functools.partial(np.multiply, np.float32(-1)), Scaler(), np.round, max],
    ids=["a ufunc", "a partial", "an object", "a function", "one that Python cannot read"],
)
def test_any_callable_may_be_decorated(function):
    op = onnx_op(op_type="a::Callable")(function)
    np.testing.assert_array_equal(op(ONE), function(ONE))


def test_a_version_may_be_given():
    assert onnx_op(op_type="a::X", version=3)(lambda x: x).version == 3


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no domain": ({"op_type": "::X"}, "onnx_op got '::X' as the operator's name"),
    "not a name": ({"op_type": 3}, "onnx_op got 3 as the operator's name"),
    "no list": ({"inputs": FLOAT}, "a::X: inputs is 1; write a list, such as [PyCustomOpDef.dt_float]"),
    "undefined": ({"inputs": [0]}, "a::X: inputs[0] is 0; expected a type code such as PyCustomOpDef.dt_float"),
    "no code": ({"outputs": ["float"]}, "a::X: outputs[0] is 'float'; expected a type code such as"),
    "no outputs": ({"outputs": []}, "a::X: outputs is empty; an operator has at least one output"),
    "attrs as text": ({"attrs": "axis"}, "a::X: attrs is 'axis'; write a dict, such as {'axis': PyCustomOpDef."),
    "attrs of another type": (
        {"attrs": {"n": PyCustomOpDef.dt_double}},
        "attribute 'n' has type code 11; ONNX attributes are dt_int64, dt_float or dt_string here; for other kinds",
    ),
    "attrs without a code": ({"attrs": {"n": "int"}}, "attribute 'n' has type code 'int'"),
    "too many inputs": ({"inputs": [FLOAT] * 3}, "cannot be called with the 3 declared inputs"),
    "too few inputs": ({"inputs": []}, "cannot be called with the 0 declared inputs"),
    "an unknown attribute": ({"attrs": ["mode"]}, "make inputs=[...] and attrs=[...] match its parameters"),
    "a default of another type": ({"attrs": {"n": STRING}}, "the default does not fit: attribute 'n' is 1 (int)"),
    "a version": ({"version": 0}, "version is 0; an opset version is an int from 1 to"),
}


@pytest.mark.parametrize(("arguments", "fragment"), WRONG.values(), ids=WRONG)
def test_a_wrong_declaration_says_what_to_write(arguments, fragment):
    def function(x, n=1):
        raise NotImplementedError

    with pytest.raises(errors.DeclarationError) as raised:
        onnx_op(**{"op_type": "a::X", **arguments})(function)
    assert fragment in str(raised.value)


@pytest.mark.parametrize("thing", [3, Scaler], ids=["int", "class"])
def test_what_is_no_function_is_refused(thing):
    with pytest.raises(errors.DeclarationError, match="is not a function; put @onnx_op on a function"):
        onnx_op(op_type="a::X")(thing)
