"""Sessions pickled and loaded in one process: what is pickled, what is shared, and what raises an error."""

import copy
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.ops import op_pickling as op_pickling
from pyops._core.runtime import session_arguments as session_origin
from pyops._core.runtime import session_pickling as session_pickling
from pyops.errors import ChangedOpWarning, InputError, ModelError, PickleError
from pyops.testing import isolated_declarations
from tests.helpers.tiers import exhaustive

X = np.array([1.5, -2], np.float32)
MODEL = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 20, "travel" : 1]>
main (float[n] x) => (float[n] y) { a = travel.Twice(x)  y = Neg(a) }""")


@pytest.fixture(autouse=True)
def twice():
    pytest.importorskip("cloudpickle")
    with isolated_declarations():

        @onnx_op("travel::Twice")
        def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return x + x

        yield twice


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(MODEL, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def travelled(session: pyops.InferenceSession) -> pyops.InferenceSession:
    loaded = pickle.loads(pickle.dumps(session))
    assert isinstance(loaded, pyops.InferenceSession)
    return loaded


def run(session: pyops.InferenceSession) -> list[float]:
    return session.run(None, {"x": X})[0].tolist()


def make_options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_free_dimension_override_by_name("n", 2)
    return options


@pytest.mark.parametrize("engine", ["native", exhaustive("extensions")])
@pytest.mark.parametrize("kind", ["path", "proto", "bytes", "program"])
def test_a_session_runs_as_before_where_it_arrives(kind, engine, path):
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    sources = {"path": path, "proto": MODEL, "bytes": path.read_bytes(), "program": SimpleNamespace(model_proto=MODEL)}
    session = pyops.InferenceSession(sources[kind], engine=engine)
    loaded = travelled(session)
    assert run(loaded) == run(travelled(loaded)) == [-3, 4]
    assert f"{engine} engine" in repr(loaded)


def test_a_model_from_a_file_travels_by_its_path(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    data = pickle.dumps(pyops.InferenceSession(path.name))
    assert str(path).encode() in data
    assert path.read_bytes() not in data
    monkeypatch.chdir("/")
    assert run(pickle.loads(data)) == [-3, 4]


def test_external_data_is_read_from_beside_the_model(tmp_path, monkeypatch):
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20, "travel" : 1]>
    main (float[n] x) => (float[n] y) <float[2] w = {10, 20}> { a = travel.Twice(x)  y = Add(a, w) }""")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    data = pickle.dumps(pyops.InferenceSession(path))
    monkeypatch.chdir("/")
    assert run(pickle.loads(data)) == [13, 16]


def test_options_and_providers_travel():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.logid = "mine"
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = pyops.InferenceSession(MODEL, options, [("CPUExecutionProvider", {"arena_extend_strategy": "1"})])
    options.intra_op_num_threads = 2  # for later sessions
    loaded = travelled(session)
    found = loaded.get_session_options()
    assert (found.intra_op_num_threads, found.logid) == (3, "mine")
    assert found.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert found.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert found.get_session_config_entry("session.disable_prepacking") == "1"
    assert loaded.get_providers() == ["CPUExecutionProvider"]


def test_a_session_is_made_when_it_is_first_used(twice):
    calls = []
    twice.register_shape_inference(lambda x: calls.append(x) or x)
    loaded = travelled(pyops.InferenceSession(MODEL))
    calls.clear()
    assert "to be created" in repr(loaded)
    pickle.dumps(loaded)
    assert not calls
    assert [item.name for item in loaded.get_inputs()] == ["x"]
    assert calls
    assert "to be created" not in repr(loaded)


def test_equal_pickles_share_a_session_and_others_do_not(path):
    data = pickle.dumps(pyops.InferenceSession(path))
    one, other, different = pickle.loads(data), pickle.loads(data), travelled(pyops.InferenceSession(MODEL))
    assert [run(session) for session in (one, other, different)] == [[-3, 4]] * 3
    assert one.get_modelmeta() is other.get_modelmeta()
    assert one.get_modelmeta() is not different.get_modelmeta()
    other.set_providers(["CPUExecutionProvider"])
    assert [run(session) for session in (one, other)] == [[-3, 4]] * 2


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("made", [True, False])
def test_copies_run_on_the_same_session(copied, made):
    session = pyops.InferenceSession(MODEL)
    if not made:
        session = travelled(session)
    other = copied(session)
    del session
    assert run(other) == [-3, 4]
    assert type(other) is pyops.InferenceSession


def test_an_exception_of_a_kernel_arrives_as_itself(twice):
    loaded = travelled(pyops.InferenceSession(MODEL))

    @twice.register_kernel("cpu")
    def fail(x):
        raise LookupError("no such row")

    with pytest.warns(ChangedOpWarning, match="travel::Twice has different code here"):
        loaded.get_inputs()
    with pytest.raises(LookupError, match="no such row"):
        run(loaded)


def test_a_function_that_makes_the_options_is_called_again():
    session = pyops.InferenceSession(MODEL, make_options)
    loaded = travelled(session)
    assert loaded.get_inputs()[0].shape == session.get_inputs()[0].shape == [2]
    assert loaded.get_session_options().intra_op_num_threads == 1
    local = travelled(pyops.InferenceSession(MODEL, lambda: make_options()))
    assert local.get_inputs()[0].shape == [2]


def test_overridden_dimensions_are_not_lost_in_silence():
    session = pyops.InferenceSession(MODEL, make_options())
    with pytest.raises(PickleError, match=r"overridden dimensions of input x.*as a function"):
        pickle.dumps(session)


def test_an_added_provider_is_not_lost_in_silence():
    options = onnxruntime.SessionOptions()
    options.add_provider("CPUExecutionProvider", {})
    with pytest.raises(PickleError, match="provider that was added by add_provider"):
        pickle.dumps(pyops.InferenceSession(MODEL, options))


@pytest.mark.exhaustive  # onnxruntime_extensions imports torch
def test_a_custom_op_library_is_not_lost_in_silence():
    extensions = pytest.importorskip("onnxruntime_extensions")
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 20, "ai.onnx.contrib" : 1]>
    main (string[n] x) => (string[n] y) { y = ai.onnx.contrib.StringUpper(x) }""")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    session = pyops.InferenceSession(model, options)
    with pytest.raises(PickleError, match=r"library with ai.onnx.contrib::StringUpper"):
        pickle.dumps(session)


@pytest.mark.filterwarnings("ignore::pyops.errors.RedeclarationWarning")
def test_a_session_with_state_makes_states_of_its_own():
    @onnx_op("travel::Twice")
    def twice(x: NDArray[np.float32], *, state=None) -> NDArray[np.float32]:
        return x * state

    twice.register_setup(lambda: np.float32(2))
    assert run(travelled(pyops.InferenceSession(MODEL))) == [-3, 4]


def missing(path, monkeypatch):
    path.unlink()


def changed(path, monkeypatch):
    onnx.save(onnx.helper.make_model(MODEL.graph, producer_name="other"), path)


def other_pyops(path, monkeypatch):
    monkeypatch.setattr(pyops, "__version__", "0.0.1")


def other_onnxruntime(path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.2.3")


def other_signature(path, monkeypatch):
    @onnx_op("travel::Twice")
    def twice(x: NDArray[np.float32], *, by: int = 2) -> NDArray[np.float32]:
        return x


@pytest.mark.filterwarnings("ignore::pyops.errors.RedeclarationWarning")
@pytest.mark.parametrize(
    ("breaking", "error", "message"),
    [
        (missing, FileNotFoundError, "model.onnx', which does not exist"),
        (changed, ModelError, "differs from the one that the session was made from"),
        (other_pyops, PickleError, "this process has pyops 0.0.1"),
        (other_onnxruntime, PickleError, "this process has pyops .*, onnxruntime 1.2.3; install the same"),
        (other_signature, PickleError, r"was pickled as travel::Twice\(x: float32\) -> float32, but is declared here"),
    ],
)
def test_what_does_not_fit_is_an_error_when_the_session_is_used(breaking, error, message, path, monkeypatch):
    data = pickle.dumps(pyops.InferenceSession(path))
    with monkeypatch.context() as patch:
        breaking(path, patch)
        loaded = pickle.loads(data)
        for _ in range(2):
            with pytest.raises(error, match=message):
                run(loaded)


def declare_with_table(table):
    @onnx_op("travel::Twice")
    def twice(x: NDArray[np.float32], *, table: np.ndarray = table) -> NDArray[np.float32]:
        return x * np.float32(table[1000])


@pytest.mark.filterwarnings("ignore::pyops.errors.RedeclarationWarning")
@pytest.mark.parametrize("value", [3, 2 + 1e-9], ids=["in-the-middle", "in-the-last-digit"])
def test_another_default_tensor_is_another_signature(value):
    table = np.full(2000, 2.0)
    declare_with_table(table)
    data = pickle.dumps(pyops.InferenceSession(MODEL))
    declare_with_table(table)
    with np.printoptions(precision=3, threshold=5):
        assert run(pickle.loads(data)) == [-3, 4]
    table[1000] = value
    declare_with_table(table)
    with pytest.raises(PickleError, match=r"is declared here as .* with another default, out, state"):
        run(pickle.loads(data))


ANOTHER = [3, 99]
MESSAGE = (
    r"the code of .*{} was pickled with Python 3\.99, and this is Python 3\.1\d; use the same, or move it to a mod"
)


def test_a_function_for_options_that_another_python_pickled_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(session_pickling, "_PYTHON", ANOTHER)
        data = pickle.dumps(pyops.InferenceSession(MODEL, lambda: make_options()))
    with pytest.raises(PickleError, match=MESSAGE.format("function .*<lambda> given as sess_options")):
        run(pickle.loads(data))


def test_a_session_with_an_op_that_another_python_pickled_is_refused(monkeypatch):
    monkeypatch.setattr(op_pickling, "PYTHON", ANOTHER)
    with isolated_declarations():

        @onnx_op("travel::Away")
        def away(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return x

        model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["travel" : 1]> main (float[n] x) => (float[n] y) { y = travel.Away(x) }""")
        data = pickle.dumps(pyops.InferenceSession(model))
    monkeypatch.undo()
    with pytest.raises(PickleError, match=MESSAGE.format("travel::Away")):
        run(pickle.loads(data))


def test_an_op_that_another_python_pickled_is_refused(twice, monkeypatch):
    import cloudpickle

    with monkeypatch.context() as patch:
        patch.setattr(op_pickling, "PYTHON", ANOTHER)
        data = cloudpickle.dumps([twice])
    with pytest.raises(PickleError, match=MESSAGE.format("travel::Twice")):
        pickle.loads(data)
    assert pickle.loads(cloudpickle.dumps([twice])) == [twice]


def test_a_file_that_changed_since_the_session_was_made_is_an_error_when_pickling(path):
    session = pyops.InferenceSession(path)
    changed(path, None)
    with pytest.raises(ModelError, match="differs from the one that the session was made from"):
        pickle.dumps(session)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        pickle.dumps(session)


@pytest.mark.parametrize("size", [None, 0], ids=["small", "large"])
def test_a_file_with_the_same_contents_has_not_changed(size, path, monkeypatch):
    session = pyops.InferenceSession(path)
    data = pickle.dumps(session)
    if size is not None:  # a digest of a large file is not computed before it is needed
        monkeypatch.setattr(session_origin, "_SMALL", size)
    other = pyops.InferenceSession(path)
    os.utime(path, (1, 1))
    assert run(pickle.loads(data)) == run(travelled(session)) == [-3, 4]
    loaded = pickle.loads(data)
    assert run(loaded) == [-3, 4]
    os.utime(path, (2, 2))
    assert run(travelled(loaded)) == [-3, 4]
    if size is None:
        assert run(travelled(other)) == [-3, 4]
    else:
        with pytest.raises(ModelError, match="differs from the one that the session was made from"):
            pickle.dumps(other)


@pytest.mark.parametrize("size", [None, 0], ids=["small", "large"])
def test_other_contents_of_the_same_size_are_a_change(size, path, monkeypatch):
    if size is not None:
        monkeypatch.setattr(session_origin, "_SMALL", size)
    session = pyops.InferenceSession(path)
    path.write_bytes(path.read_bytes().replace(b"Neg", b"Abs"))
    os.utime(path, (1, 1))
    with pytest.raises(ModelError, match="differs from the one that the session was made from"):
        pickle.dumps(session)


def test_a_pickle_that_lacks_something_says_so():
    _, (_, recipe, _) = pyops.InferenceSession(MODEL, onnxruntime.SessionOptions()).__reduce__()
    parts = [recipe, *recipe["ops"], recipe["options"]]
    for part in parts:
        for key in list(part):
            value = part.pop(key)
            session = pickle.loads(pickle.dumps(pyops.unpickle("session", recipe, None)))
            if key not in ("process", "key"):
                with pytest.raises(PickleError, match=f"a session has no '{key}', so it is damaged"):
                    session.get_inputs()
            part[key] = value


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_a_wrong_number_of_threads_is_refused(threads):
    with pytest.raises(InputError, match="worker_threads is"):
        pyops.InferenceSession(MODEL, worker_threads=threads)


def test_a_function_that_returns_no_options_is_refused():
    with pytest.raises(InputError, match="sess_options is a function that returned None"):
        pyops.InferenceSession(MODEL, lambda: None)


@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_number_of_pickles(path):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def use(count: int) -> None:
        for number in range(count):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.logid = 1, str(number)  # a session of its own
            assert run(travelled(pyops.InferenceSession(path, options))) == [-3, 4]

    if not Path("/proc/self/statm").exists():
        pytest.skip("resident memory is read from /proc, which this system does not have")
    use(40)
    before = resident()
    use(160)
    assert resident() < 1.05 * before
