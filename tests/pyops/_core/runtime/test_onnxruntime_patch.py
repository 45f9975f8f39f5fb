"""Sessions that others create, after `pyops.patch_onnxruntime`."""

import gc

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops._core.ops import plugins
from pyops._core.runtime.native.session_options import LIBRARY_ENTRY
from tests.helpers.models import chain

F32 = NDArray[np.float32]
x = np.arange(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def original():
    """The constructor, which stays when nothing is installed any more."""
    before = onnxruntime.InferenceSession.__init__
    yield before
    assert onnxruntime.InferenceSession.__init__ is before


@pytest.fixture
def model():
    @pyops.onnx_op("installed::Root")
    def root(x: F32) -> F32:
        if x.min() < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    return chain("installed::Root").SerializeToString()


def test_within_the_block_a_session_of_onnxruntime_runs_the_ops_and_after_it_none(model):
    with pyops.patch_onnxruntime():
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()
    with pytest.raises(ValueError, match="negative"):
        session.run(None, {"x": x - 1})
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        onnxruntime.InferenceSession(model)


def test_a_class_imported_before_is_the_same_class(model):
    from onnxruntime import InferenceSession

    with pyops.patch_onnxruntime():
        assert InferenceSession(model).run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


def test_a_plain_call_lasts_until_it_is_ended(model):
    installation = pyops.patch_onnxruntime()
    del installation
    gc.collect()
    first = pyops.patch_onnxruntime()
    onnxruntime.InferenceSession(model)
    first.uninstall()
    first.uninstall()
    onnxruntime.InferenceSession(model)
    for forgotten in list(pyops._core.runtime.onnxruntime_patch._installations):
        forgotten.uninstall()


def test_nested_and_repeated_use_ends_with_the_last(model):
    outer = pyops.patch_onnxruntime()
    with pyops.patch_onnxruntime(), pyops.patch_onnxruntime():
        onnxruntime.InferenceSession(model)
    onnxruntime.InferenceSession(model)
    inner = pyops.patch_onnxruntime()
    outer.uninstall()
    onnxruntime.InferenceSession(model)
    inner.uninstall()


def test_an_exception_in_the_block_restores_too(model):
    with pytest.raises(KeyError), pyops.patch_onnxruntime():
        raise KeyError


def test_a_session_whose_model_has_none_of_the_ops_is_left_alone():
    with pyops.patch_onnxruntime():
        session = onnxruntime.InferenceSession(chain("Neg").SerializeToString())
        assert type(session) is onnxruntime.InferenceSession
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile):
            onnxruntime.InferenceSession("no-such-model.onnx")


def test_a_model_in_ort_format_may_have_some(model, tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    pyops.InferenceSession(model, options)
    with pyops.patch_onnxruntime():
        session = onnxruntime.InferenceSession(options.optimized_model_filepath)
    assert session.run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


def test_a_session_of_ours_is_created_as_ever(model):
    with pyops.patch_onnxruntime():
        assert pyops.InferenceSession(model).run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


def test_a_subclass_of_somebody_else_stays_one_and_runs_the_ops(model):
    class Theirs(onnxruntime.InferenceSession):
        def __init__(self, path, sess_options=None):
            super().__init__(path, sess_options, providers=["CPUExecutionProvider"])
            self.theirs = True

    with pyops.patch_onnxruntime():
        for options in (None, onnxruntime.SessionOptions()):
            session = Theirs(model, options)
            assert type(session) is Theirs
            assert session.theirs
            assert session.run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


def test_whoever_wraps_the_constructor_meanwhile_keeps_it(model, original):
    with pyops.patch_onnxruntime():
        ours = onnxruntime.InferenceSession.__init__
        onnxruntime.InferenceSession.__init__ = lambda self, *args, **kwargs: ours(self, *args, **kwargs)
        theirs = onnxruntime.InferenceSession.__init__
        onnxruntime.InferenceSession(model)
    assert onnxruntime.InferenceSession.__init__ is theirs
    assert type(onnxruntime.InferenceSession(chain("Neg").SerializeToString())) is onnxruntime.InferenceSession
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        onnxruntime.InferenceSession(model)
    onnxruntime.InferenceSession.__init__ = original


def test_options_providers_and_other_arguments_arrive(model, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with pyops.patch_onnxruntime():
        session = onnxruntime.InferenceSession(
            path_or_bytes=str(path), sess_options=options, providers=["CPUExecutionProvider"], disabled_optimizers=["x"]
        )
    assert session.get_session_options().intra_op_num_threads == 1
    assert session.run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


def test_keywords_that_onnxruntime_ignores_are_ignored(model):
    with pyops.patch_onnxruntime():
        session = onnxruntime.InferenceSession(model, device_id=0, fill_missing=True)
    assert session.run(None, {"x": x})[0].tolist() == np.sqrt(x).tolist()


@pytest.mark.parametrize("has_library", [False, True])
def test_a_library_s_ops_need_no_plugin(has_library, monkeypatch):
    asked = set()
    monkeypatch.setattr(plugins, "import_plugins_for", asked.update)
    options = onnxruntime.SessionOptions()
    if has_library:
        options.add_session_config_entry(f"{LIBRARY_ENTRY}plugged", "Op")
    with pyops.patch_onnxruntime(), pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        onnxruntime.InferenceSession(chain("plugged::Op").SerializeToString(), options)
    assert asked == (set() if has_library else {"plugged"})


def test_torch_runs_a_program_of_its_own_with_the_ops():
    torch = pytest.importorskip("torch")
    import exporters

    @pyops.onnx_op("installed::Cube")
    def cube(x: F32) -> F32:
        return x**3

    cube.register_shape_inference(lambda x: x)
    torch_cube = exporters.custom_op(cube, "installed::cube")

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch_cube(torch.neg(x))

    given = torch.arange(3, dtype=torch.float32)
    program = exporters.export(Model().eval(), (given,), verbose=False)
    with pyops.patch_onnxruntime():
        (result,) = program(given)
    assert result.tolist() == [0, -1, -8]
