"""The table of element types, against onnx's own."""

import fractions

import numpy as np
import onnx
import pytest

from pyops._schema import dtypes

KNOWN = [row for row in dtypes.ELEMENT_TYPES if row.onnx in onnx.TensorProto.DataType.values()]


def test_an_older_onnx_lacks_the_latest_element_types_alone():
    assert {row.name for row in dtypes.ELEMENT_TYPES} - {row.name for row in KNOWN} <= {"uint2", "int2"}


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.name)
def test_an_element_type_is_what_onnx_says_it_is(row):
    assert onnx.TensorProto.DataType.Name(row.onnx) == row.name.upper()
    assert onnx.helper.tensor_dtype_to_np_dtype(row.onnx) == row.dtype
    # Identity takes everything.
    assert row.type_str in onnx.defs.get_schema("Identity").type_constraints[0].allowed_type_strs


@pytest.mark.parametrize("row", dtypes.ELEMENT_TYPES, ids=lambda row: row.name)
def test_an_element_type_is_found_by_each_of_its_keys(row):
    assert dtypes.element_type(row.dtype) is row
    assert dtypes.from_onnx(row.onnx) is row
    assert row.ort is None or dtypes.from_ort(row.ort) is row


def test_no_code_stands_for_two_element_types():
    for key in ("name", "dtype", "onnx"):
        assert len({getattr(row, key) for row in dtypes.ELEMENT_TYPES}) == len(dtypes.ELEMENT_TYPES)


@pytest.mark.parametrize("code", [0, -1, 999])
def test_an_unknown_code_is_no_element_type(code):
    assert dtypes.from_onnx(code) is None
    assert dtypes.from_ort(code) is None


@pytest.mark.parametrize("dtype", ["U5", "U", object, np.dtypes.StringDType()], ids=str)
def test_all_of_numpys_strings_are_onnxs_string(dtype):
    row = dtypes.element_type(dtype)
    assert row is not None
    assert row.name == "string"


@pytest.mark.parametrize("dtype", ["S3", "M8[s]", "m8[s]", "V4", np.longdouble, [("a", "f4")]], ids=str)
def test_a_dtype_that_onnx_lacks_has_no_element_type(dtype):
    assert dtypes.element_type(dtype) is None


@pytest.mark.parametrize(
    ("scalar", "count"),
    [(np.float32, 1), (np.floating, 3), (np.integer, 8), (np.unsignedinteger, 4), (np.str_, 1), (np.longdouble, 0)],
)
def test_a_scalar_class_expands_to_the_types_it_contains(scalar, count):
    assert len(dtypes.expand(scalar)) == count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.ones((2, 3), np.float32), "float32[2, 3]"),
        (np.float64(1), "float64[]"),
        (np.array(["a"], object), "string[1]"),
        (None, "None"),
        (1.5, "float"),
        (fractions.Fraction(1), "fractions.Fraction"),
    ],
)
def test_messages_spell_values_by_type_and_shape(value, text):
    assert dtypes.describe(value) == text


@pytest.mark.parametrize("row", dtypes.ELEMENT_TYPES, ids=lambda row: row.name)
def test_the_spelling_of_a_scalar_type_can_be_typed(row):
    import ml_dtypes

    scalar = eval(dtypes.spell_scalar(row.dtype), {"np": np, "ml_dtypes": ml_dtypes})
    assert dtypes.expand(scalar) == (row.dtype,)
