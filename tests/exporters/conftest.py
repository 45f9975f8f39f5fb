"""What the exporter tests share: modules that call one function, an op, and registrations that end with the test."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
from exporters._lowering import translations
from pyops import Op
from tests.exporters.declared import declare

T = TypeVar("T", np.float32, np.float64)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


@pytest.fixture
def model() -> Callable[[Callable[..., Any]], torch.nn.Module]:
    """A function as a module in evaluation mode."""
    return lambda function: Model(function).eval()


@pytest.fixture(params=[True, False], ids=["dynamo", "torchscript"])
def export(request) -> Callable[..., exporters.Program]:
    """`exporters.export` by either exporter."""
    return lambda module, args, f=None, **arguments: exporters.export(
        module, args, f, **{"verbose": False, "dynamo": request.param, **arguments}
    )


@pytest.fixture
def inverse() -> Op[..., Any]:
    """An op for ``aten::linalg_inv``."""

    def inverse(x: NDArray[T]) -> NDArray[T]:
        return np.linalg.inv(x)

    return declare(inverse, "translate::Inverse")


@pytest.fixture
def registrations_end_with_the_test(monkeypatch):
    monkeypatch.setattr(translations, "_translations", dict(translations._translations))


@pytest.fixture
def own_registrations(monkeypatch):
    """No translation of another test, and none left behind."""
    monkeypatch.setattr(translations, "_translations", {})


@pytest.fixture(autouse=True, scope="session")
def annotations_of_torch_are_made_once():
    """Cache the type hints that torch computes for each of the thousands of functions that it defines in an export."""

    class Remembered:
        def __getitem__(self, parts):
            return remembered(*parts)

        def __instancecheck__(self, value):
            return callable(value)

    @functools.cache
    def remembered(parameters, result):
        return Callable[parameters, result]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._ops, "Callable", Remembered())
        yield


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
