"""What an InferenceSession takes as a model, and the arguments and results of `run`."""

import inspect
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops import onnx_op
from pyops._core.runtime.engine_choice import Engine
from pyops._support.tested_releases import is_older
from tests.helpers.models import assert_same, chain, make_model

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)
FOREIGN = [getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")]


@pytest.fixture(autouse=True)
def plus() -> None:
    @onnx_op("tests::Plus")
    def plus(x: F32, y: F32 | None = None) -> F32:
        return x + 1 if y is None else x + y


def save(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save_model(chain("tests::Plus"), path)
    return path


SOURCES = {
    "path": lambda tmp_path: str(save(tmp_path)),
    "pathlib": save,
    "bytes": lambda tmp_path: chain("tests::Plus").SerializeToString(),
    "bytearray": lambda tmp_path: bytearray(chain("tests::Plus").SerializeToString()),
    "model-proto": lambda tmp_path: chain("tests::Plus"),
    "object-with-model-proto": lambda tmp_path: SimpleNamespace(model_proto=chain("tests::Plus")),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_session_takes_a_model_in_every_form(source: Any, tmp_path: Path) -> None:
    session = pyops.InferenceSession(source(tmp_path))
    assert isinstance(session, onnxruntime.InferenceSession)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_a_session_does_not_change_the_model_proto_it_is_given() -> None:
    model = chain("tests::Plus")
    before = model.SerializeToString()
    pyops.InferenceSession(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("folder_is_current", [True, False])
def test_a_session_finds_external_data_beside_the_model(
    folder_is_current: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = np.arange(2000, dtype=np.float32)
    model = make_model(
        [helper.make_node("Plus", ["x", "w"], ["y"], domain="tests")],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"w": weights},
    )
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").stat().st_size == weights.nbytes
    if folder_is_current:
        monkeypatch.chdir(tmp_path)
    session = pyops.InferenceSession("m.onnx" if folder_is_current else tmp_path / "m.onnx")
    np.testing.assert_array_equal(session.run(None, {"x": weights})[0], weights * 2)


@onnx_op("tests::Weighted")
def total(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + y


def weighted(folder: Path, scale: int, node: str) -> Path:
    """A model whose weights lie in a file of the same name in every folder."""
    folder.mkdir()
    model = make_model(
        [helper.make_node(node, ["x", "w"], ["y"], domain="" if node == "Add" else "tests")],
        [("x", np.float32, None)],
        [("y", np.float32, None)],
        {"tests": 1},
        {"w": np.full(2, scale, np.float32)},
    )
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_options_do_not_keep_the_folder_of_an_earlier_models_external_data(tmp_path: Path, engine: Any) -> None:
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    paths = [
        weighted(tmp_path / str(scale), scale, node) for scale, node in ((1, "Weighted"), (2, "Add"), (3, "Weighted"))
    ]
    options = onnxruntime.SessionOptions()
    x = np.zeros(2, np.float32)
    with ThreadPoolExecutor(3) as pool:
        sessions = list(pool.map(lambda path: pyops.InferenceSession(path, options, engine=engine), paths * 10))
    assert [session.run(None, {"x": x})[0][0] for session in sessions] == [1, 2, 3] * 10
    assert onnxruntime.InferenceSession(paths[1], options).run(None, {"x": x})[0][0] == 2


def test_a_session_beside_external_data_logs_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime_extensions")
    for scale in (1, 2):
        path = weighted(tmp_path / str(scale), scale, "Weighted")
        session = pyops.InferenceSession(path, engine="extensions")
        for _ in range(2):
            assert session.run(None, {"x": np.zeros(2, np.float32)})[0][0] == scale
            session.set_providers(["CPUExecutionProvider"])
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(is_older(onnxruntime.__version__, "1.28"), reason="ONNX Runtime 1.27 reads it for bytes alone")
def test_a_folder_of_external_data_that_options_name_is_used(tmp_path: Path) -> None:
    first, second = weighted(tmp_path / "a", 1, "Weighted"), weighted(tmp_path / "b", 2, "Weighted")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(second.parent))
    for _ in range(2):
        assert pyops.InferenceSession(first, options).run(None, {"x": np.zeros(2, np.float32)})[0][0] == 2


def test_a_path_that_does_not_exist_is_a_file_not_found_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no model file .*absent\.onnx"):
        pyops.InferenceSession(tmp_path / "absent.onnx")


@pytest.mark.parametrize("source", [None, 3, {"x": 1}], ids=repr)
def test_anything_else_is_an_error_that_says_what_is_taken(source: Any) -> None:
    with pytest.raises(pyops.errors.ModelError, match=r"path.*bytes.*onnx\.ModelProto.*ONNXProgram; got"):
        pyops.InferenceSession(source)


@pytest.mark.parametrize("source", [b"", b"no model at all"])
def test_bytes_that_are_no_model_are_refused_by_onnxruntime(source: bytes) -> None:
    with pytest.raises(Exception, match=r"ONNXRuntimeError|No graph|Model"):
        pyops.InferenceSession(source)


def test_options_and_providers_are_passed_on() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = pyops.InferenceSession(chain("tests::Plus"), options, providers=["CPUExecutionProvider"])
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_the_ops_run_after_the_providers_are_set_anew(engine: Engine, tmp_path: Path) -> None:
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")

    @onnx_op("tests::Root")
    def root(x: F32) -> F32:
        if x[0] < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    options = onnxruntime.SessionOptions()
    session = pyops.InferenceSession(chain("tests::Root"), options, engine=engine)
    pyops.InferenceSession(chain("Relu"), options, engine=engine)
    for _ in range(2):
        session.set_providers(["CPUExecutionProvider"])
        assert session.run(None, {"x": X * X})[0].tolist() == X.tolist()
    with pytest.raises(ValueError, match="negative"):
        session.run(None, {"x": X - 1})
    with pyops.profile(session) as profile:
        session.run(None, {"x": X})
    assert [node.calls for node in profile.nodes] == [1]
    session = pyops.InferenceSession(weighted(tmp_path / "model", 3, "Weighted"), options, engine=engine)
    session.set_providers(["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [3, 3]


def test_the_cuda_provider_is_a_missing_dependency_where_onnxruntime_has_none() -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has CUDA")
    with pytest.raises(pyops.errors.MissingDependencyError, match=r'pip install "onnx-pyops\[cuda\]"'):
        pyops.InferenceSession(chain("tests::Plus"), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    session = pyops.InferenceSession(chain("tests::Plus"))
    with pytest.raises(pyops.errors.MissingDependencyError, match=r'pip install "onnx-pyops\[cuda\]"'):
        session.set_providers(["CUDAExecutionProvider"])
    assert session.run(None, {"x": X})[0].tolist() == (X + 1).tolist()


def test_options_that_are_none_are_an_error_that_says_what_is_expected() -> None:
    with pytest.raises(pyops.errors.EngineError, match=r"expected an onnxruntime\.SessionOptions, got dict"):
        pyops.register_custom_ops({})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"fill_mising": True},
            r"unknown keyword 'fill_mising' \(did you mean 'fill_missing'\?\); it takes sess_options, ",
        ),
        ({"guard": 1}, "unknown keyword 'guard'; it takes"),
        ({"fill_missing": "yes"}, "fill_missing is 'yes'; it must be True or False"),
        (
            {"sess_options": {"a": 1}},
            r"sess_options is {'a': 1}; it must be an onnxruntime\.SessionOptions, or a function",
        ),
    ],
)
def test_arguments_that_a_session_does_not_take_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(pyops.errors.InputError, match=message):
        pyops.InferenceSession(chain("tests::Plus"), **arguments)


def test_the_keywords_of_onnxruntime_are_taken() -> None:
    read = re.findall(r"kwargs(?:\.get\(|\[)\"(\w+)", inspect.getsource(onnxruntime.InferenceSession.__init__))
    keywords = {"disabled_optimizers": ["x"], "enable_fallback": 0, "read_config_from_model": 0}
    assert keywords.keys() == set(read)
    pyops.InferenceSession(chain("tests::Plus"), **keywords)


def foreign_model(dtype: Any) -> onnx.ModelProto:
    @onnx_op("tests::Swap")
    def swap(x: NDArray[dtype], y: F32) -> tuple[F32, NDArray[dtype]]:
        return y + 1, x[::-1]

    node = helper.make_node("Swap", ["x", "y"], ["a", "b"], domain="tests")
    return make_model(
        [node],
        [("x", dtype, None), ("y", np.float32, None)],
        [("a", np.float32, None), ("b", dtype, None)],
        {"tests": 1},
    )


@pytest.mark.parametrize("dtype", FOREIGN, ids=lambda dtype: dtype.__name__)
def test_run_takes_and_gives_arrays_of_ml_dtypes(dtype: Any) -> None:
    session = pyops.InferenceSession(foreign_model(dtype))
    x = np.array([[1, 2], [3, 4]], dtype)
    assert_same(session.run(None, {"x": x, "y": X}), [X + 1, x[::-1]])
    assert_same(session.run(["b"], {"x": x, "y": X}), [x[::-1]])
    transposed, every_second = x.T, np.arange(6, dtype=np.float32)[::2]
    assert_same(session.run(None, {"x": transposed, "y": every_second}), [every_second + 1, x.T[::-1]])
    scalar_free = np.empty((0, 3), dtype)
    assert_same(session.run(None, {"x": scalar_free, "y": X}), [X + 1, scalar_free])


def test_results_of_ml_dtypes_are_the_caller_s_own() -> None:
    session = pyops.InferenceSession(foreign_model(ml_dtypes.bfloat16))
    first = session.run(["b"], {"x": np.arange(3).astype(ml_dtypes.bfloat16), "y": X})[0]
    session.run(["b"], {"x": np.zeros(3, ml_dtypes.bfloat16), "y": X})
    first += 1
    np.testing.assert_array_equal(first.astype(np.float32), [3, 2, 1])


def test_an_absent_feed_is_an_error_that_names_it_with_ml_dtypes_too() -> None:
    session = pyops.InferenceSession(foreign_model(ml_dtypes.bfloat16))
    with pytest.raises(Exception, match="y"):
        session.run(None, {"x": np.zeros(3, ml_dtypes.bfloat16)})


def test_beside_ml_dtypes_what_is_no_tensor_is_refused_with_what_to_do() -> None:
    given, made = "bfloat16[2] x, float[2] z", "bfloat16[2] y, seq(float[2]) s"
    body = "y = Identity(x) s = SequenceConstruct(z)"
    model = f'<ir_version: 10, opset_import: ["": 20]> g ({given}) => ({made}) {{ {body} }}'
    session = pyops.InferenceSession(onnx.parser.parse_model(model))
    feed = {"x": np.ones(2, ml_dtypes.bfloat16), "z": np.ones(2, np.float32)}
    with pytest.raises(
        pyops.errors.InputError, match=r"'s' is seq\(tensor\(float\)\); .* request other outputs by name"
    ):
        session.run(None, feed)
    assert session.run(["y"], feed)[0].tolist() == [1, 1]


def test_beside_ml_dtypes_strings_may_be_outputs_and_not_inputs() -> None:
    @onnx_op("tests::Name")
    def name(x: NDArray[ml_dtypes.bfloat16], names: NDArray[np.str_] | None = None) -> NDArray[np.str_]:
        return np.array([f"{float(v)}" for v in x], object)

    def run(**feed: Any) -> Any:
        node = helper.make_node("Name", list(feed), ["y"], domain="tests")
        inputs = [(name, value.dtype, None) for name, value in feed.items()]
        model = make_model([node], inputs, [("y", np.object_, None)], {"tests": 1})
        return pyops.InferenceSession(model).run(None, feed)[0].tolist()

    x = np.array([1, 2], ml_dtypes.bfloat16)
    assert run(x=x) == ["1.0", "2.0"]
    with pytest.raises(pyops.errors.InputError, match=r"'names' is tensor\(string\); .* no strings as inputs"):
        run(x=x, names=np.array(["a", "b"], object))


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (np.ones(3), "float64[3]"),
        (type("Tensor", (), {"__module__": "torch", "dtype": "torch.float32"})(), "torch.Tensor"),
    ],
    ids=["float64", "torch"],
)
def test_a_feed_of_another_type_is_refused_with_a_note_that_names_the_input(value: Any, given: str) -> None:
    session = pyops.InferenceSession(chain("tests::Plus"))
    with pytest.raises((onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, RuntimeError)) as caught:
        session.run(None, {"x": value})
    assert caught.value.__notes__ == [f"input 'x' is {given}; the model needs float32: np.asarray(x, np.float32)"]


def test_a_refused_none_or_tensor_with_a_gradient_has_a_note_with_what_to_give() -> None:
    session = pyops.InferenceSession(chain("Neg"))
    tensor = type("Tensor", (), {"__module__": "torch", "dtype": "torch.float32", "requires_grad": True})()
    for value, note in (
        (None, "input 'x' is None; the model needs an array of float32"),
        (tensor, "input 'x' is torch.Tensor; the model needs float32: np.asarray(x.detach(), np.float32)"),
    ):
        with pytest.raises((RuntimeError, onnxruntime.capi.onnxruntime_pybind11_state.Fail)) as caught:
            session.run(None, {"x": value})
        assert caught.value.__notes__ == [note]


SWAPPED = X.astype(X.dtype.newbyteorder())


@pytest.mark.parametrize(
    "feed",
    [{"x": SWAPPED}, MappingProxyType({"x": SWAPPED}), {"x": SWAPPED.view(np.recarray)}, {"x": [SWAPPED]}],
    ids=["array", "another mapping", "a subclass", "a list"],
)
def test_an_array_in_another_byte_order_is_refused_with_the_conversion(feed: Any) -> None:
    session = pyops.InferenceSession(chain("tests::Plus"))
    with pytest.raises(pyops.errors.InputError, match=r"'x' is an array of [<>]f4, in another byte order") as caught:
        session.run(None, feed)
    x = eval(str(caught.value).split("; ")[1].removesuffix(" changes it"), {"x": SWAPPED})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], X + 1)
    foreign = pyops.InferenceSession(foreign_model(ml_dtypes.bfloat16))
    with pytest.raises(pyops.errors.InputError, match="'y' is an array of"):
        foreign.run(None, {"x": np.zeros(1, ml_dtypes.bfloat16), "y": SWAPPED})


def test_another_refusal_of_a_feed_has_no_note() -> None:
    session = pyops.InferenceSession(chain("tests::Plus"))
    for feed in ({}, {"y": X}, None):
        with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
            session.run(None, feed)
        assert not hasattr(caught.value, "__notes__")


def test_run_takes_an_ort_value_as_onnxruntime_does() -> None:
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X)
    for model, feed in (
        (chain("tests::Plus"), {"x": value}),
        (foreign_model(ml_dtypes.bfloat16), {"x": np.zeros(1, ml_dtypes.bfloat16), "y": value}),
    ):
        np.testing.assert_array_equal(pyops.InferenceSession(model).run(None, feed)[0], X + 1)


FEEDS = {
    "array": {"x": X},
    "no input": {},
    "another name": {"y": X},
    "an unknown name besides": {"x": X, "z": X},
    "another type": {"x": X.astype(np.float64)},
    "another rank": {"x": X.reshape(3, 1)},
    "a list": {"x": [1.0, 2.0]},
    "None": {"x": None},
    "a subclass": {"x": X.view(np.recarray)},
    "an OrtValue": {"x": onnxruntime.OrtValue.ortvalue_from_numpy(X)},
    "another mapping": MappingProxyType({"x": X}),
}


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        *((name, None) for name in FEEDS),
        *itertools.product(("array", "no input", "a list"), ([], ["y"], ["z"])),
    ],
    ids=str,
)
def test_run_takes_and_refuses_what_onnxruntime_does(name: str, outputs: Any) -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    model = make_model([node], [("x", np.float32, ["n"])], [("y", np.float32, ["n"])], {})
    answers = []
    for session in (onnxruntime.InferenceSession(model.SerializeToString()), pyops.InferenceSession(model)):
        try:
            answers.append(str(session.run(outputs, FEEDS[name])))
        except Exception as error:  # ONNX Runtime raises several unrelated types
            answers.append(f"{type(error).__name__}: {error}")
    assert answers[0] == answers[1]


def test_a_provider_that_fails_is_replaced_by_the_next_as_in_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = pyops.InferenceSession(chain("tests::Plus"))
    bindings, failed = session._sess, []

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(bindings, name)

        def run(self, *args: Any) -> Any:
            failed.append(args)
            raise onnxruntime.capi.onnxruntime_pybind11_state.EPFail("lost the device")

    monkeypatch.setattr(session, "_sess", Failing())
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)
    assert "lost the device" in capsys.readouterr().out
    assert failed
    assert session._sess is not bindings
    monkeypatch.setattr(session, "_sess", Failing())
    with pytest.raises(Exception, match="lost the device"):  # it falls back once
        session.run(None, {"x": X})


def test_a_run_of_onnxruntime_s_that_a_tool_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = onnxruntime.InferenceSession.run, []

    def replaced(self: Any, *args: Any) -> Any:
        seen.append(args)
        return run(self, *args)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", replaced)
    np.testing.assert_array_equal(pyops.InferenceSession(chain("tests::Plus")).run(None, {"x": X})[0], X + 1)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("providers", "message"),
    [
        (
            ["CUDAExecutionProvier"],
            "'CUDAExecutionProvier' (did you mean 'CUDAExecutionProvider'?); this ",
        ),
        ([("Typo", {})], "there is no execution provider 'Typo'; this onnxruntime has "),
        ([["CPUExecutionProvider"]], "there is no execution provider ['CPUExecutionProvider']"),
        ("CPUExecutionProvider", "pass a list: providers=['CPUExecutionProvider']"),
    ],
)
def test_providers_that_do_not_exist_are_refused(
    providers: Any, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pyops.errors.InputError, match=re.escape(message)):
        pyops.InferenceSession(chain("tests::Plus"), providers=providers)
    session = pyops.InferenceSession(chain("tests::Plus"))
    with pytest.raises(pyops.errors.InputError, match=re.escape(message)):
        session.set_providers(providers)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_a_masked_array_is_refused_as_in_a_plain_call(engine: Engine) -> None:
    @onnx_op("tests::Copy")
    def copy(x: F32) -> F32:
        return x.copy()

    session = pyops.InferenceSession(chain("tests::Copy"), engine=engine)
    with pytest.raises(
        pyops.errors.InputError, match=r"input 'x' is a masked array, but ONNX has no masks; pass x\.fi"
    ):
        session.run(None, {"x": np.ma.masked_array(X, X > 1)})
