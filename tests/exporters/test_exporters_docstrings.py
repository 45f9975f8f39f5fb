"""The docstring of everything public describes the parameters and has an example; pytest runs the examples."""

import importlib
import pkgutil
from collections.abc import Iterator

import exporters
import pyops
from pyops.errors import PyopsError
from tests.helpers.docstrings import public, undescribed, without_example


def test_public_names_have_examples():
    assert without_example({"exporters": exporters} | public(exporters)) == []


def test_parameters_are_described():
    assert undescribed(public(exporters)) == []


def test_a_package_lists_its_public_names_alone():
    assert dir(exporters) == sorted(exporters.__all__)


def subclasses(error: type[Exception]) -> Iterator[type[Exception]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def test_errors_have_public_names():
    for package in (exporters, pyops.testing):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own = [item for item in subclasses(PyopsError) if item.__module__.partition(".")[0] in ("pyops", "exporters")]
    names = [f"{item.__module__}.{item.__qualname__}" for item in own]
    assert {"exporters.errors.CaptureError", "pyops.testing.CheckError"} <= set(names)
    # Those that no user sees, because what raises them is tried again in another way.
    assert [name for name in names if "._" in name] == [
        "exporters._capture.failures.UnfaithfulError",
        "exporters._torch.private.onnx_exporter.RepeatedError",
    ]
    for item in own:
        if "._" not in item.__module__:
            assert getattr(importlib.import_module(item.__module__), item.__qualname__) is item
