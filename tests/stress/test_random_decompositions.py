"""Random ops pass the checks of their decompositions, and random mistakes in their kernels do not."""

import pytest
from random_decompositions import status

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("seed", range(20))
def test_a_right_kernel_and_its_body_pass(seed: int):
    assert status(seed, "body", False) == "passed"


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_a_mistake_is_found(start: int):
    found = [status(seed, "decomposition", True) for seed in range(start, start + 20)]
    assert found.count("failed") > 10
    assert "passed" not in found, [start + index for index, one in enumerate(found) if one == "passed"]
