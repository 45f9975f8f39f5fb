"""What corrects torch ends: for releases that are right, and when no tested release is wrong."""

from __future__ import annotations

import pytest
import torch

import exporters
from exporters._library import translation_order
from exporters._library.row_table import decompose, decompositions, lower, rows
from pyops._support.tested_releases import TESTED, release
from tests.corrections.__main__ import PAGE, replacing
from tests.corrections.trials import TABLES, verdicts


def clipped(x):
    return torch.relu(x), torch.nn.functional.hardtanh(x), torch.sign(x), torch.xlogy(0, x)


CALL = {"clipped": (clipped, (torch.tensor([1.0, -2.0, torch.nan]),), None)}


@pytest.fixture
def own_corrections():
    before = [dict(table) for table in TABLES]
    yield
    for table, items in zip(TABLES, before, strict=True):
        table.clear()
        table.update(items)
    translation_order._targets.cache_clear()


def correct(wrong: bool | str) -> None:
    """Correct what is right: torch's own translations of relu and hardtanh."""
    lower("aten::relu", replaces=wrong)(lambda self: exporters.opset("", 18).Relu(self))
    decompose("aten::hardtanh", replaces=wrong)


@pytest.mark.usefixtures("own_corrections")
def test_a_correction_that_the_installed_torch_does_not_need_is_told_from_one_that_it_does():
    correct(wrong=True)
    found = verdicts(CALL)
    assert found["aten::relu"] == found["aten::hardtanh"] == ("clipped", None)
    assert found["aten::sign"][1] == "result 2 is np.float32(nan) at [2]; torch gives np.float32(0.0)"
    assert found["aten::xlogy"][1] == "result 3 is np.float32(0.0) at [2]; torch gives np.float32(nan)"


@pytest.mark.usefixtures("own_corrections")
@pytest.mark.parametrize(("last_wrong", "replaces"), [("2.12", False), ("99.0", True)])
def test_a_correction_is_for_releases_up_to_the_last_one_that_is_wrong(last_wrong: str, replaces: bool):
    correct(last_wrong)
    assert rows["aten::relu"].replaces == decompositions["aten::hardtanh"].replaces == replaces
    found = verdicts(CALL)
    assert [name in found for name in ("aten::relu", "aten::hardtanh")] == [replaces, replaces]


def test_every_correction_is_of_some_tested_release():
    named = {name: item.last_wrong for table in TABLES for name, item in table.items() if item.last_wrong}
    oldest = release(TESTED["torch"][0])
    assert [name for name, last in named.items() if release(last) < oldest] == []


def test_the_page_names_every_correction():
    text = PAGE.read_text()
    assert [name for name in replacing() if f"`{name}`" not in text] == [], "run python -m tests.corrections"
