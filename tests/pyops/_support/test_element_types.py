"""The table of element types, against onnx's own."""

import fractions

import numpy as np
import onnx
import pytest

from pyops._support import element_types
from tests.helpers.scripts import run_new_script, run_script
from tests.helpers.systems import needs_long_double

KNOWN = [row for row in element_types.ELEMENT_TYPES if row.onnx in onnx.TensorProto.DataType.values()]


def test_an_older_onnx_lacks_the_latest_element_types_alone():
    assert {row.name for row in element_types.ELEMENT_TYPES} - {row.name for row in KNOWN} <= {"uint2", "int2"}


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.name)
def test_an_element_type_is_what_onnx_says_it_is(row):
    assert onnx.TensorProto.DataType.Name(row.onnx) == row.name.upper()
    assert onnx.helper.tensor_dtype_to_np_dtype(row.onnx) == row.dtype
    # Identity takes everything.
    assert row.type_str in onnx.defs.get_schema("Identity").type_constraints[0].allowed_type_strs


@pytest.mark.parametrize("row", element_types.ELEMENT_TYPES, ids=lambda row: row.name)
def test_an_element_type_is_found_by_each_of_its_keys(row):
    assert element_types.element_type(row.dtype) is row
    assert element_types.from_onnx(row.onnx) is row
    assert row.ort is None or element_types.from_ort(row.ort) is row


def test_no_code_stands_for_two_element_types():
    for key in ("name", "dtype", "onnx"):
        assert len({getattr(row, key) for row in element_types.ELEMENT_TYPES}) == len(element_types.ELEMENT_TYPES)


@pytest.mark.parametrize("code", [0, -1, 999])
def test_an_unknown_code_is_no_element_type(code):
    assert element_types.from_onnx(code) is None
    assert element_types.from_ort(code) is None


@pytest.mark.parametrize("dtype", ["U5", "U", object, np.dtypes.StringDType()], ids=str)
def test_all_of_numpys_strings_are_onnxs_string(dtype):
    row = element_types.element_type(dtype)
    assert row is not None
    assert row.name == "string"


@pytest.mark.parametrize(
    "dtype",
    ["S3", "M8[s]", "m8[s]", "V4", [("a", "f4")], pytest.param(np.longdouble, marks=needs_long_double)],
    ids=str,
)
def test_a_dtype_that_onnx_lacks_has_no_element_type(dtype):
    assert element_types.element_type(dtype) is None


@pytest.mark.parametrize(
    ("scalar", "count"),
    [
        (np.float32, 1),
        (np.floating, 3),
        (np.integer, 8),
        (np.unsignedinteger, 4),
        (np.str_, 1),
        pytest.param(np.longdouble, 0, marks=needs_long_double),
    ],
)
def test_a_scalar_class_expands_to_the_types_it_contains(scalar, count):
    assert len(element_types.expand(scalar)) == count


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
    assert element_types.describe(value) == text


@pytest.mark.parametrize("row", element_types.ELEMENT_TYPES, ids=lambda row: row.name)
def test_the_spelling_of_a_scalar_type_can_be_typed(row):
    import ml_dtypes

    scalar = eval(element_types.format_scalar(row.dtype), {"np": np, "ml_dtypes": ml_dtypes})
    assert element_types.expand(scalar) == (row.dtype,)


# As another release of ml_dtypes writes it, with other flags; reading it gives the dtypes of this process other hashes.
READ_PICKLE = """
import pickle
from pyops._support.element_types import ELEMENT_TYPES, element_type

class Other:
    def __init__(self, scalar):
        self.scalar = scalar

    def __reduce__(self):
        *state, flags = np.dtype(self.scalar).__reduce__()[2]
        return np.dtype, (self.scalar, False, True), (*state, flags ^ 16)

def read_pickle():
    for row in ELEMENT_TYPES:
        if row.dtype.type.__module__ == "ml_dtypes":
            before = hash(row.dtype)
            pickle.loads(pickle.dumps(Other(row.dtype.type)))
            assert hash(row.dtype) != before
"""


def test_a_pickle_of_another_release_of_ml_dtypes_may_be_read():
    run_script(
        (
            READ_PICKLE,
            """
            import ml_dtypes

            b = np.ones(2, ml_dtypes.bfloat16)

            def declare():
                @onnx_op("tests::Same")
                def same(x: NDArray[ml_dtypes.bfloat16], *, t: np.ndarray = b) -> NDArray[ml_dtypes.bfloat16]:
                    return x + t
                return same

            op = declare()
            model = pyops.testing.Sample(op, b).model()
            session = pyops.InferenceSession(model)
            read_pickle()
            print(all(element_type(row.dtype) is row for row in ELEMENT_TYPES))
            print(declare() is op, op(b))
            for each in (session, pyops.InferenceSession(model)):
                print(each.run(None, {"x": b})[0])
            pyops.testing.check(op, b)
            pyops.testing.assert_close(b, b + np.asarray(0.015, b.dtype))
            cast = '<ir_version: 10, opset_import: ["": 23]> g (bfloat16[2] x) => (bfloat16[2] y) { y = Erf(x) }'
            filled = pyops.InferenceSession(onnx.parser.parse_model(cast), fill_missing=True)
            print(filled.run(None, {"x": b})[0].dtype)
            """,
        ),
        """
        True
        True [2 2]
        [2 2]
        [2 2]
        bfloat16
        """,
    )


def test_torch_operators_run_after_a_pickle_of_another_release_of_ml_dtypes():
    pytest.importorskip("torch")
    run_new_script(
        (
            READ_PICKLE,
            """
            import exporters, ml_dtypes, torch

            @onnx_op("tests::Same")
            def same(x: NDArray[ml_dtypes.bfloat16]) -> NDArray[ml_dtypes.bfloat16]:
                return x

            same.register_shape_inference(lambda x: x)
            first = exporters.custom_op(same, "tests::same")
            read_pickle()
            second = exporters.custom_op(same, "tests::same_again")
            for each in (first, second):
                print(each(torch.ones(2, dtype=torch.bfloat16)))
            """,
        ),
        """
        tensor([1., 1.], dtype=torch.bfloat16)
        tensor([1., 1.], dtype=torch.bfloat16)
        """,
    )
