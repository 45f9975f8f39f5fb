"""ONNX's node tests, and the page about them."""

import re
from pathlib import Path

import onnx
import onnxruntime
import pytest

from tests.node_tests.attempt import attempt, node_tests
from tests.node_tests.page import as_markdown

PAGE = Path(__file__).parents[2] / "docs/node_tests.md"


def listed() -> set[str]:
    """The tests that the page lists as not reproduced, as they are."""
    left = PAGE.read_text().partition("## Not reproduced")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (test_\w+) \|", left, re.MULTILINE))


@pytest.mark.exhaustive
def test_the_page_lists_every_node_test_that_is_not_reproduced() -> None:
    pytest.importorskip("PIL", reason="all node tests at once are left out: Pillow, which decodes images, is missing")
    versions = f"onnx {onnx.__version__} in `pyops.InferenceSession` on onnxruntime\n{onnxruntime.__version__}'s"
    if versions not in PAGE.read_text():
        pytest.skip("the page is of other versions of onnx and ONNX Runtime")
    results = [attempt(name, fill_missing=True) for name in node_tests()]
    assert {item.name for item in results if item and item.problem} <= listed()
    assert len(listed()) <= len(results) - 1850


def test_the_page_has_a_row_for_each_run() -> None:
    results = {(bfloat16, fill): [] for bfloat16 in (False, True) for fill in (False, True)}
    headings = [line for line in as_markdown(results).splitlines() if line.startswith("#")]
    assert headings == [line for line in PAGE.read_text().splitlines() if line.startswith("#")]
