"""What compiled kernels give for edge values is what NumPy gives, function by function and for random expressions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.compiled_numbers import DTYPES, TABLES, cases, failures, library_failures, program

pytestmark = pytest.mark.stress

SEEDS = range(20)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", TABLES)
def test_each_function_gives_numpys_numbers(form: str, dtype: str) -> None:
    found = [line for case in cases([form], [dtype]) for line in failures(case)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_give_numpys_numbers(seed: int) -> None:
    found = list(failures(program(seed)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", range(2))
def test_a_library_gives_numpys_numbers(seed: int, tmp_path: Path) -> None:
    found = list(library_failures(seed, 16, tmp_path))
    assert not found, "\n".join(found)
