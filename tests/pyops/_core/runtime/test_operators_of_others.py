"""Operators of others beside ours in one model: onnxruntime-extensions' built-in ones, and a library made here."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops.errors import ModelError
from tests.helpers.models import chain, make_model

extensions = pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")

F32, Str = NDArray[np.float32], NDArray[np.str_]

# An operator others::Triple as anybody would write it in C, with the few functions of ONNX Runtime's API that it uses.
SOURCE = """
#include <stddef.h>
#include <stdint.h>

enum {CREATE_DOMAIN = 26, ADD_OP = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, DIMS = 62, COUNT = 64, INFO = 65,
      INPUT = 90, OUTPUT = 91, RELEASE_INFO = 99};
static void **api;
#define CALL(slot, ...) ((void *(*)())api[slot])(__VA_ARGS__)

static void *create(void *op, void *given, void *info) { return op; }
static const char *name(void *op) { return "Triple"; }
static const char *provider(void *op) { return NULL; }
static int type(void *op, size_t index) { return 1; }
static size_t count(void *op) { return 1; }
static int required(void *op, size_t index) { return 0; }
static void destroy(void *kernel) {}

static void compute(void *kernel, void *context) {
    void *input, *output, *info;
    float *from, *to;
    size_t rank, elements;
    int64_t dims[16];
    CALL(INPUT, context, (size_t)0, &input);
    CALL(INFO, input, &info);
    CALL(RANK, info, &rank);
    CALL(DIMS, info, dims, rank);
    CALL(COUNT, info, &elements);
    ((void (*)(void *))api[RELEASE_INFO])(info);
    CALL(OUTPUT, context, (size_t)0, dims, rank, &output);
    CALL(DATA, input, &from);
    CALL(DATA, output, &to);
    for (size_t i = 0; i < elements; i++) to[i] = 3 * from[i];
}

static struct {uint32_t version; void *functions[12];} op = {11, {
    create, name, provider, type, count, type, count, compute, destroy, required, required}};

void *RegisterCustomOps(void *options, void *base) {
    void *domain, *status;
    api = (*(void **(**)(uint32_t))base)(17);
    if ((status = CALL(CREATE_DOMAIN, "others", &domain))) return status;
    if ((status = CALL(ADD_OP, domain, &op))) return status;
    return CALL(ADD_DOMAIN, options, domain);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build somebody else's library with")
    folder = tmp_path_factory.mktemp("others")
    (folder / "others.c").write_text(SOURCE)
    path = folder / "libothers.so"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", path, folder / "others.c"], check=True)
    return path


def declare() -> None:
    @pyops.onnx_op("beside::AddOne")
    def add_one(x: F32) -> F32:
        return x + np.float32(1)

    @pyops.onnx_op("ai.onnx.contrib::Exclaim")
    def exclaim(x: Str) -> Str:
        return np.array([f"{item}!" for item in x], object)


def model():
    """Numbers through ours and others', and text through ours and onnxruntime-extensions'."""
    nodes = [
        helper.make_node("AddOne", ["x"], ["a"], domain="beside"),
        helper.make_node("Triple", ["a"], ["b"], domain="others"),
        helper.make_node("AddOne", ["b"], ["y"], domain="beside"),
        helper.make_node("Exclaim", ["s"], ["t"], domain="ai.onnx.contrib"),
        helper.make_node("StringUpper", ["t"], ["u"], domain="ai.onnx.contrib"),
        helper.make_node("Exclaim", ["u"], ["z"], domain="ai.onnx.contrib"),
    ]
    inputs = [("x", np.float32, None), ("s", np.object_, None)]
    outputs = [("y", np.float32, None), ("z", np.object_, None)]
    return make_model(nodes, inputs, outputs, {"beside": 1, "others": 1, "ai.onnx.contrib": 1})


FEED = {"x": np.float32([[0, 1]]), "s": np.array(["ab", "c"], object)}


def check(session: onnxruntime.InferenceSession) -> None:
    for _ in range(2):
        y, z = session.run(None, FEED)
        assert y.tolist() == [[4, 7]]
        assert z.tolist() == ["AB!!", "C!!"]


@pytest.mark.parametrize("theirs_first", [False, True])
# The extensions engine registers onnxruntime-extensions' library where the user has not.
@pytest.mark.parametrize(("engine", "registered"), [("native", True), ("extensions", True), ("extensions", False)])
def test_one_model_has_operators_of_all_of_them(library, engine, registered, theirs_first):
    declare()
    options = onnxruntime.SessionOptions()
    paths = [str(library)] + [pyops.get_library_path()] * registered
    for path in reversed(paths) if theirs_first else paths:
        options.register_custom_ops_library(path)
    check(pyops.InferenceSession(model(), options, engine=engine))
    check(pyops.InferenceSession(model(), options, engine=engine))


def test_a_session_of_onnxruntime_has_them_too(library):
    declare()
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    options.register_custom_ops_library(pyops.get_library_path())
    check(onnxruntime.InferenceSession(model().SerializeToString(), options))


def test_the_path_is_that_of_onnxruntime_extensions():
    assert pyops.get_library_path() == extensions.get_library_path()


def test_a_tokenizer_of_theirs_feeds_an_op_of_ours():
    @pyops.onnx_op("beside::Count")
    def count(ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([ids.shape[0], *lengths])

    nodes = [
        helper.make_node("StringSplit", ["s", "sep", "skip"], ["i", "words", "shape"], domain="ai.onnx.contrib"),
        helper.make_node("StringLength", ["words"], ["lengths"], domain="ai.onnx.contrib"),
        helper.make_node("Count", ["i", "lengths"], ["y"], domain="beside"),
    ]
    inputs = [("s", np.object_, None)]
    constants = {"sep": np.array([" "], object), "skip": np.array([True])}
    split = make_model(nodes, inputs, [("y", np.int64, None)], {"ai.onnx.contrib": 1, "beside": 1}, constants)
    feed = {"s": np.array(["the quick", "fox"], object)}
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    for session in (
        pyops.InferenceSession(split, options, engine="native"),
        pyops.InferenceSession(split, engine="extensions"),
    ):
        assert session.run(None, feed)[0].tolist() == [3, 3, 5, 3]


def holding(*libraries: Path) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    for library in libraries:
        options.register_custom_ops_library(str(library))
    return options


def test_what_the_libraries_of_others_take_is_said(library):
    with pytest.raises(ModelError, match=r"registered twice in the session options.*create new options") as caught:
        pyops.InferenceSession(chain("others::Triple"), holding(library, library), engine="native")
    assert "is not declared" not in str(caught.value)

    @pyops.onnx_op("others::Ours")
    def ours(x: F32) -> F32:
        return x

    with pytest.raises(ModelError, match=r'operators of one domain come from two libraries.*engine="extensions"'):
        pyops.InferenceSession(chain("others::Ours"), holding(library), engine="native")
    session = pyops.InferenceSession(chain("others::Ours"), holding(library), engine="extensions")
    assert session.run(None, {"x": np.ones(1, np.float32)})[0] == 1
