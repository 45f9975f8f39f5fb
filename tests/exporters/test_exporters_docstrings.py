"""The docstring of everything public describes the parameters and has an example; pytest runs the examples."""

import exporters
from tests.helpers.docstrings import public, undescribed, without_example


def test_public_names_have_examples():
    assert without_example({"exporters": exporters} | public(exporters)) == []


def test_parameters_are_described():
    assert undescribed(public(exporters)) == []


def test_a_package_lists_its_public_names_alone():
    assert dir(exporters) == sorted(exporters.__all__)
