"""Models in ORT format, which only ONNX Runtime reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
import pyops.kernels.transformers
from pyops import onnx_op
from pyops._display.inspection import inspect
from pyops.errors import ModelError
from tests.helpers.models import chain
from tests.helpers.scripts import run_script

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


def save(model: onnx.ModelProto, path: Path) -> Path:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    pyops.InferenceSession(model, options)
    return path


def test_a_model_of_built_in_operators_runs(tmp_path: Path) -> None:
    path = save(chain("Neg", "Relu", "Abs"), tmp_path / "model.ort")
    for source in (path, str(path), path.read_bytes()):
        np.testing.assert_array_equal(pyops.InferenceSession(source).run(None, {"x": -X})[0], X)


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_model_with_a_declared_op_runs(in_memory: bool, tmp_path: Path) -> None:
    @onnx_op("tests::Plus")
    def plus(x: F32, *, amount: float = 1.0) -> F32:
        return x + np.float32(amount)

    path = save(chain("tests::Plus", "tests::Plus"), tmp_path / "model.ort")
    session = pyops.InferenceSession(path.read_bytes() if in_memory else path)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 2)


@pytest.mark.parametrize(
    "use",
    [
        inspect,
        lambda model: pyops.compare_models(model, model),
        lambda model: pyops.replace(model, [pyops.kernels.transformers.swiglu]),
        lambda model: pyops.InferenceSession(model, fill_missing=True),
    ],
    ids=["inspect", "compare_models", "replace", "fill_missing"],
)
def test_a_damaged_model_is_told_from_one_in_ort_format(use: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"hello")
    with pytest.raises(ModelError, match=r"model\.onnx' is not an ONNX model, or damaged: export or copy it again"):
        use(tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="this is not an ONNX model"):
        use(b"hello")
    with pytest.raises(ModelError, match="model in ORT format"):
        use(save(chain("Neg"), tmp_path / "model.ort"))


def test_a_model_that_was_saved_where_the_domain_was_taken_runs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_extensions")
    script = f"""
        @onnx_op("tests::Plus")
        def plus(x: F32) -> F32:
            return x + 1

        pyops.get_library_path()
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = {str(tmp_path / "model.ort")!r}
        options.add_session_config_entry("session.save_model_format", "ORT")
        pyops.InferenceSession(chain("tests::Plus"), options)
        print(b"pyops.hosted.tests" in open(options.optimized_model_filepath, "rb").read())
        attempt(pyops.InferenceSession(options.optimized_model_filepath).run, None, {{"x": x}})
    """
    run_script(script, "True\n[[1.0, 2.0, 3.0]]")


def test_a_model_whose_op_is_not_declared_is_refused(tmp_path: Path) -> None:
    def declare() -> None:
        @onnx_op("tests::Gone")
        def gone(x: F32) -> F32:
            return x

    declare()
    path = save(chain("tests::Gone"), tmp_path / "model.ort")
    pyops._core.ops.op_registry._ops.pop(("tests", "Gone"))
    with pytest.raises(Exception, match="Gone"):
        pyops.InferenceSession(path)
