"""The docstring of everything public describes the parameters and has an example; pytest runs the examples."""

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from tests.helpers.docstrings import public, undescribed, without_example

MODULES = [pyops, pyops.shapes, pyops.testing]


def test_public_names_have_examples():
    found = {"pyops": pyops} | {name: value for module in MODULES for name, value in public(module).items()}
    assert {"InferenceSession", "TensorSpec", "onnx_op", "shapes", "CheckReport"} <= set(found)
    # Users make it with new_dim().
    assert without_example(found) == ["Dim", "RuntimeDim"]


@pytest.mark.parametrize("error", public(pyops.errors).values(), ids=lambda error: error.__name__)
def test_errors_say_when_they_are_raised(error):
    assert error.__doc__


def test_parameters_are_described():
    assert [line for module in MODULES for line in undescribed(public(module))] == []


def test_a_package_lists_its_public_names_alone_before_they_are_imported_too():
    assert dir(pyops) == sorted(pyops.__all__)


def test_an_op_shows_its_users_what_they_need_alone():
    @pyops.onnx_op("shown::Same")
    def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    data = {"signature", "domain", "name", "version", "kernels", "device_types", "host_inputs", "location"}
    verbs = {
        "register_kernel",
        "register_shape_inference",
        "shape_function",
        "infer_shapes",
        "compile",
        "register_setup",
        "setup",
        "register_samples",
        "samples",
        "register_decomposition",
        "decomposition",
        "decompositions",
    }
    assert {name for name in dir(same) if not name.startswith("_")} == data | verbs
