"""Rows of tables that the quick tests leave to the exhaustive ones."""

from collections.abc import Sequence
from typing import Any

import pytest


def exhaustive(*values: Any, id: str | None = None) -> Any:
    """A row of pytest's parameters only for the exhaustive tests, because a quick row shows the same in another way."""
    return pytest.param(*values, id=id, marks=pytest.mark.exhaustive)


def first_quick(rows: Sequence[Any]) -> list[Any]:
    """Rows of one value each, of which only the first is quick."""
    return [rows[0], *map(exhaustive, rows[1:])]
