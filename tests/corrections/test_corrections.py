"""A row that corrects torch ends: for releases that are right, and when no tested release is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import exporters
from exporters._library import translation_order
from exporters._library.row_table import complex_rows, lower, rows
from pyops._support.tested_releases import TESTED, release
from tests.corrections.__main__ import PAGE, replacing
from tests.corrections.trials import verdicts

CALL = {"clipped": (lambda x: (torch.relu(x), torch.sign(x)), (torch.tensor([1.0, -2.0, torch.nan]),), None)}


@pytest.fixture
def own_rows():
    before = dict(rows)
    yield
    rows.clear()
    rows.update(before)
    translation_order._targets.cache_clear()


def relu(self: Any) -> Any:
    """A stand-in for a row: torch's own translation of relu is right."""
    return exporters.opset("", 18).Relu(self)


@pytest.mark.usefixtures("own_rows")
def test_a_row_that_the_installed_torch_does_not_need_is_told_from_one_that_it_does():
    lower("aten::relu", replaces=True)(relu)
    found = verdicts(CALL)
    assert found["aten::relu"] == ("clipped", None)
    assert found["aten::sign"][1] == "result 1 is np.float32(nan) at [2]; torch gives np.float32(0.0)"


@pytest.mark.usefixtures("own_rows")
@pytest.mark.parametrize(("last_wrong", "replaces"), [("2.12", False), ("99.0", True)])
def test_a_row_replaces_only_up_to_the_last_release_that_is_wrong(last_wrong: str, replaces: bool):
    lower("aten::relu", replaces=last_wrong)(relu)
    assert rows["aten::relu"].replaces == replaces
    assert ("aten::relu" in verdicts(CALL)) == replaces


def test_every_row_corrects_some_tested_release():
    named = {name: row.last_wrong for table in (rows, complex_rows) for name, row in table.items() if row.last_wrong}
    oldest = release(TESTED["torch"][0])
    assert [name for name, last in named.items() if release(last) < oldest] == []


def test_the_page_names_every_row():
    text = PAGE.read_text()
    assert [name for name in replacing() if f"`{name}`" not in text] == [], "run python -m tests.corrections"
