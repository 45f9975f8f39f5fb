"""What the exporter tests share: torch modules made of one function."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import exporters
from exporters.translating import translations


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
def registrations_end_with_the_test(monkeypatch):
    monkeypatch.setattr(translations, "_translations", dict(translations._translations))


@pytest.fixture
def own_registrations(monkeypatch):
    """No translation of another test, and none left behind."""
    monkeypatch.setattr(translations, "_translations", {})


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
