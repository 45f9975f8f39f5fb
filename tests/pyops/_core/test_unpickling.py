"""What pickles name of pyops: public functions only, so that modules may be moved."""

import io
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import PickleError
from pyops.testing import Sample, isolated_declarations


class Recording(pickle.Unpickler):
    """Loads a pickle, and records what it names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str, /) -> Any:
        self.names.add(f"{module}.{name}")
        return super().find_class(module, name)


def load(data: bytes) -> Any:
    """Load a pickle that names the public function only."""
    pickled = Recording(data)
    loaded = pickled.load()
    assert {name for name in pickled.names if name.startswith("pyops")} == {"pyops.unpickle"}
    return loaded


@pytest.fixture
def things() -> Any:
    cloudpickle = pytest.importorskip("cloudpickle")
    with isolated_declarations():

        @onnx_op("named::Scale")
        def scale(x: NDArray[np.float32], *, by: list[int], times: float = 1.5) -> NDArray[np.float32]:
            return x * np.float32(by[0] * times)

        session = pyops.InferenceSession(Sample(scale, np.ones(2, np.float32), by=[1]).model())
        yield cloudpickle, {"op": scale, "session": session, "signature": scale.signature}


@pytest.mark.parametrize("name", ["op", "session", "signature"])
def test_pickles_name_public_functions_only(things, name):
    cloudpickle, values = things
    loaded = load(cloudpickle.dumps(values[name]))
    assert type(loaded) is type(values[name])
    if name == "signature":
        assert loaded == values[name]
        assert loaded.inputs[0].type.dtypes[0] is values[name].inputs[0].type.dtypes[0]


def test_compiled_kernels_are_pickled_by_a_public_function():
    pytest.importorskip("numba")
    cloudpickle = pytest.importorskip("cloudpickle")
    with isolated_declarations():

        @onnx_op("named::Twice", compile=True)
        def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
            return x + x

        assert load(cloudpickle.dumps(twice))(np.ones(1, np.float32)).tolist() == [2]


def test_a_name_that_this_release_does_not_know_is_refused():
    with pytest.raises(PickleError, match="cannot unpickle 'graph'; install the release that made it"):
        pyops.unpickle("graph")
