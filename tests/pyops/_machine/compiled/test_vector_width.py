"""Compiled kernels ask LLVM for vectors of 256 bits, through internals of numba and llvmlite that may change."""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pytest

from pyops._machine.compiled.compilation import make_dispatcher


def doubled(x: Any) -> Any:
    """A loop that waits for memory."""
    return x + x


def exponential(x: Any) -> Any:
    """A loop that computes."""
    return np.exp(x)


@pytest.mark.parametrize(("function", "narrow"), [(doubled, True), (exponential, False)])
def test_only_loops_without_exp_are_narrow(function: Any, narrow: bool) -> None:
    made = make_dispatcher(function, {}, {})
    made(np.ones(8, np.float32))
    (code,) = made.inspect_llvm().values()
    assert bool(re.search('"prefer-vector-width"="256"', code)) is narrow


def test_the_result_is_that_of_numba() -> None:
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    assert np.array_equal(make_dispatcher(doubled, {}, {})(x), numba.njit(doubled)(x))
