"""Several versions of one op: the highest not above the model's opset import runs."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.runtime.engine_choice import Engine
from tests.helpers.models import chain

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


def declare(version: int, result: int) -> None:
    @onnx_op("versions::Which", version=version)
    def which(x: F32, *, result: int = result) -> F32:
        return x * 0 + result


@pytest.fixture(autouse=True)
def versions() -> None:
    for version in (2, 7, 5):
        declare(version, version)


@pytest.mark.parametrize(("opset", "expected"), [(2, 2), (3, 2), (4, 2), (5, 5), (6, 5), (7, 7), (100, 7)])
def test_the_highest_version_not_above_the_opset_import_runs(opset: int, expected: int) -> None:
    model = chain("versions::Which", domains={"versions": opset})
    assert pyops.InferenceSession(model).run(None, {"x": X})[0][0] == expected


def test_the_highest_version_that_can_be_declared_runs() -> None:
    @onnx_op("versions::Highest", version=1000)
    def highest(x: F32) -> F32:
        return x + 1

    model = chain("versions::Highest", domains={"versions": 1000})
    assert pyops.InferenceSession(model).run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_an_opset_import_below_every_version_is_an_error_that_names_both() -> None:
    with pytest.raises(pyops.errors.ModelError, match=r"declared from version 2 on; the model imports version 1"):
        pyops.InferenceSession(chain("versions::Which", domains={"versions": 1}))


@pytest.mark.parametrize(("graph", "function"), [(2, 5), (9, 2)])
@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_imports_that_mean_different_versions_are_an_error_that_names_both(
    engine: Engine, graph: int, function: int
) -> None:
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20, "versions": {graph}, "local": 1]>
        graph (float[n] x) => (float[n] y) <float[n] t> {{ t = versions.Which (x)  y = local.Inner (t) }}
        <domain: "local", opset_import: ["versions": {function}]> Inner (x) => (y) {{
            t = versions.Which (x)  y = versions.Which (t)
        }}""")
    with pytest.raises(pyops.errors.ModelError) as caught:
        pyops.InferenceSession(model, engine=engine)
    assert str(caught.value).splitlines()[1:] == [
        f"  - versions::Which is version {min(graph, 7)} where the model imports version {graph} of 'versions', and "
        f"version {function} where it imports version {function}; let the graph and the model's functions import the "
        "same version (opset_import)"
    ]
    model.functions[0].opset_import[0].version = graph
    result = pyops.InferenceSession(model, engine=engine).run(None, {"x": X})
    assert result[0].tolist() == [min(graph, 7)] * 3


def test_registered_options_see_the_highest_version() -> None:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    model = chain("versions::Which", domains={"versions": 9}).SerializeToString()
    assert onnxruntime.InferenceSession(model, options).run(None, {"x": X})[0][0] == 7


def test_a_version_declared_again_replaces_that_version_alone() -> None:
    declare(5, 55)
    results = []
    for opset in (2, 5, 7):
        session = pyops.InferenceSession(chain("versions::Which", domains={"versions": opset}))
        results.append(session.run(None, {"x": X})[0][0])
    assert results == [2, 55, 7]


def test_one_options_object_serves_models_of_several_versions() -> None:
    options = onnxruntime.SessionOptions()
    sessions = {
        opset: pyops.InferenceSession(chain("versions::Which", domains={"versions": opset}), options)
        for opset in (7, 2, 5)
    }
    assert {opset: session.run(None, {"x": X})[0][0] for opset, session in sessions.items()} == {7: 7, 2: 2, 5: 5}
