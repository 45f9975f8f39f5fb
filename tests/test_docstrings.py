"""Whatever a user may call says what it takes, and shows it; pytest runs the examples."""

import pyops
from tests.docstrings import public, undescribed, without_example

MODULES = [pyops, pyops.shapes, pyops.errors]


def test_public_names_have_examples():
    found = {name: value for module in MODULES for name, value in public(module).items()}
    assert {"InferenceSession", "Spec", "onnx_op"} <= set(found)
    # Users do not make these.
    assert set(without_example(found)) == {"SymbolicDim", "RuntimeDim"}


def test_parameters_are_described():
    assert [line for module in MODULES for line in undescribed(public(module))] == []


def test_names_are_listed_before_they_are_imported():
    assert set(pyops.__all__) <= set(dir(pyops))
