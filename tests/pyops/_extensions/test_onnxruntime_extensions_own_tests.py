"""What onnxruntime-extensions' own tests ask of its Python operators, asked of ours: one import line differs.

The last test runs this file as it was before that line was changed.
"""

import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime_extensions")

from pyops import PyCustomOpDef, get_library_path, onnx_op  # isort: skip
from tests.helpers.systems import needs_posix

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

FLOAT, DOUBLE, INT32, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64
UINT32, STRING, BOOL = TensorProto.UINT32, TensorProto.STRING, TensorProto.BOOL
DOMAIN = "ai.onnx.contrib"


@pytest.fixture(autouse=True, scope="module")
def operators():
    P = PyCustomOpDef

    @onnx_op(op_type="AddTwo", inputs=[P.dt_float, P.dt_float])
    def add_two(x, y):
        return np.add(x, y)

    @onnx_op(op_type="RoundToInt", outputs=[P.dt_int32])
    def round_to_int(x):
        return np.round(x).astype(np.int32)

    @onnx_op(op_type="PyReverseMatrix")
    def reverse_matrix(x):
        return np.flip(x, axis=0).astype(np.float32)

    @onnx_op(op_type="PyAddEpsilon", inputs=[P.dt_double], outputs=[P.dt_double])
    def add_epsilon(x):
        return x + 1e-3

    @onnx_op(op_type="PyNegPos", inputs=[P.dt_float], outputs=[P.dt_float, P.dt_float])
    def neg_pos(x):
        return np.minimum(x, 0), np.maximum(x, 0)

    @onnx_op(op_type="PyOpJoin", inputs=[P.dt_string], outputs=[P.dt_string], attrs=["sep"])
    def join_rows(rows, **attributes):
        return np.array([attributes.get("sep", "").join(row) for row in rows], dtype=object)

    @onnx_op(op_type="PyPad", inputs=[P.dt_int64], outputs=[P.dt_int64], attrs={"length": P.dt_int64})
    def pad(x, length):
        return np.pad(x, (0, length - len(x)))

    @onnx_op(op_type="PyStringUpper", inputs=[P.dt_string], outputs=[P.dt_string])
    def upper(x):
        return np.array([item.upper() for item in x.ravel()]).reshape(x.shape)

    @onnx_op(op_type="PyStringEqual", inputs=[P.dt_string, P.dt_string], outputs=[P.dt_bool])
    def equal(x, y):
        return x == y

    @onnx_op(op_type="PyStringToCRC32", inputs=[P.dt_string, P.dt_uint32], outputs=[P.dt_uint32])
    def to_crc32(x, buckets):
        return np.array([crc32(item.encode()) % buckets[0] for item in x.ravel()], np.uint32).reshape(x.shape)

    @onnx_op(
        op_type="PyStringSplit",
        inputs=[P.dt_string, P.dt_string, P.dt_bool],
        outputs=[P.dt_int64, P.dt_string, P.dt_int64],
    )
    def split(texts, delimiter, skip_empty):
        rows = [[part for part in text.split(delimiter[0]) if part or not skip_empty[0]] for text in texts]
        indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
        shape = np.array([len(rows), max(map(len, rows))], dtype=np.int64)
        return np.array(indices, dtype=np.int64), np.array([part for row in rows for part in row]), shape

    @onnx_op(op_type="PySegmentSum", inputs=[P.dt_float, P.dt_int64])
    def segment_sum(data, segments):
        result = np.zeros((segments[-1] + 1, *data.shape[1:]), dtype=data.dtype)
        for segment, row in zip(segments, data, strict=True):
            result[segment] += row
        return result

    @onnx_op(op_type="Inverse")
    def inverse(x):
        return np.linalg.inv(x)

    @onnx_op(op_type="All", inputs=[P.dt_bool], outputs=[P.dt_bool])
    def all_true(x):
        return np.all(x)

    @onnx_op(op_type="moved.over::Add10")
    def add_ten(x):
        return x + 10


def session(nodes, inputs, outputs):
    """A session of ONNX Runtime's, with the library in its options."""
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(get_library_path())
    graph = helper.make_graph(
        nodes,
        "moved_over",
        [helper.make_tensor_value_info(*value, None) for value in inputs],
        [helper.make_tensor_value_info(*value, None) for value in outputs],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("moved.over", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(name, types, results, *arrays, domain=DOMAIN, **attributes):
    """What one node gives; it comes after an Identity, and an int or a float type stands for each value."""
    inputs = [(f"x{i}", code) for i, code in enumerate(types)]
    outputs = [(f"y{i}", code) for i, code in enumerate(results)]
    nodes = [helper.make_node("Identity", [f"x{i}"], [f"i{i}"]) for i in range(len(inputs))]
    names = [f"i{i}" for i in range(len(inputs))]
    nodes.append(helper.make_node(name, names, [output for output, _ in outputs], domain=domain, **attributes))
    feed = {input: array for (input, _), array in zip(inputs, arrays, strict=True)}
    return session(nodes, inputs, outputs).run(None, feed)


def test_a_chain_of_two_operators():
    nodes = [
        helper.make_node("AddTwo", ["a", "b"], ["t"], domain=DOMAIN),
        helper.make_node("RoundToInt", ["t"], ["y"], domain=DOMAIN),
    ]
    a, b = np.float32([[0.25, 1.5]]), np.float32([[0.5, 2.25]])
    (y,) = session(nodes, [("a", FLOAT), ("b", FLOAT)], [("y", INT32)]).run(None, {"a": a, "b": b})
    assert (y.dtype, y.tolist()) == (np.int32, [[1, 4]])


def test_reverse_matrix():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    (y,) = run("PyReverseMatrix", [FLOAT], [FLOAT], x)
    assert y.tolist() == [[4, 5], [2, 3], [0, 1]]


def test_doubles():
    x = np.array([[0.0, 1.0, 1.5], [7.0, 8.0, -5.5]])
    (y,) = run("PyAddEpsilon", [DOUBLE], [DOUBLE], x)
    assert y.tolist() == (x + 1e-3).tolist()


@pytest.mark.parametrize("name", ["PyNegPos", "NegPos"], ids=["python", "built-in"])
def test_two_outputs(name):
    x = np.float32([[0.0, 1.0, 1.5], [7.0, 8.0, -5.5]])
    negative, positive = run(name, [FLOAT], [FLOAT, FLOAT], x)
    assert (negative + positive).tolist() == x.tolist()
    assert negative.max() <= 0 <= positive.min()


def test_a_string_attribute():
    (y,) = run("PyOpJoin", [STRING], [STRING], np.array([["a", "b"], ["c", "dä"]], dtype=object), sep=";")
    assert y.tolist() == ["a;b", "c;dä"]


def test_an_integer_attribute():
    (y,) = run("PyPad", [INT64], [INT64], np.array([5, 6]), length=4)
    assert y.tolist() == [5, 6, 0, 0]


@pytest.mark.parametrize("name", ["PyStringUpper", "StringUpper"], ids=["python", "built-in"])
def test_upper_case(name):
    (y,) = run(name, [STRING], [STRING], np.array([["Abc", "x"], ["é", ""]], dtype=object))
    assert y.tolist() == [["ABC", "X"], ["É", ""]] if name.startswith("Py") else y[:1].tolist() == [["ABC", "X"]]


def test_strings_to_booleans():
    x = np.array(["a", "b", ""], dtype=object)
    (y,) = run("PyStringEqual", [STRING, STRING], [BOOL], x, np.array(["a", "c", ""], dtype=object))
    assert y.tolist() == [True, False, True]


def test_strings_to_unsigned_integers():
    x = np.array([["abc", "abcé"]], dtype=object)
    (y,) = run("PyStringToCRC32", [STRING, UINT32], [UINT32], x, np.array([44], np.uint32))
    assert (y.dtype, y.tolist()) == (np.uint32, [[crc32(item.encode()) % 44 for item in x[0]]])


def test_three_outputs_of_two_types():
    texts, delimiter = np.array(["a:bb", "c::d"], dtype=object), np.array([":"], dtype=object)
    types, results = [STRING, STRING, BOOL], [INT64, STRING, INT64]
    indices, parts, shape = run("PyStringSplit", types, results, texts, delimiter, np.array([True]))
    assert indices.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert (parts.tolist(), shape.tolist()) == (["a", "bb", "c", "d"], [2, 2])


@pytest.mark.parametrize("name", ["PySegmentSum", "SegmentSum"], ids=["python", "built-in"])
def test_segment_sum(name):
    data = np.float32([[1, 2, 3, 4], [4, 3, 2, 1], [5, 6, 7, 8]])
    (y,) = run(name, [FLOAT, INT64], [FLOAT], data, np.array([0, 0, 1]))
    assert y.tolist() == [[5, 5, 5, 5], [5, 6, 7, 8]]


def test_python_takes_the_place_of_a_built_in_operator():
    x = np.float32([[2, 0], [0, 4]])
    (y,) = run("Inverse", [FLOAT], [FLOAT], x)
    assert y.tolist() == [[0.5, 0], [0, 0.25]]


@pytest.mark.parametrize(("given", "result"), [([True, True], True), ([True, False], False)])
def test_a_numpy_scalar(given, result):
    (y,) = run("All", [BOOL], [BOOL], np.array(given))
    assert y.shape == ()
    assert y == result


def test_a_domain_of_ones_own():
    (y,) = run("Add10", [FLOAT], [FLOAT], np.float32([1, 2]), domain="moved.over")
    assert y.tolist() == [11, 12]


@needs_posix
def test_all_of_this_passes_with_the_import_line_that_was_there_before(tmp_path):
    text = Path(__file__).read_text()
    before = re.sub(r"^from pyops import (.*?)  #", r"from onnxruntime_extensions import \1  #", text, flags=re.M)
    assert before != text
    path = tmp_path / "test_as_it_was.py"
    path.write_text(before)
    # onnxruntime-extensions imports torch, which takes long, if it is there.
    start = "import sys, pytest; sys.modules['torch'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        start,
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "not before",
        "-c",
        "/dev/null",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "18 passed" in done.stdout, done.stdout[-300:]
