"""Random modules with control flow in Python give torch's numbers, or are refused, when they are exported."""

import pytest
from control_flow import failures

pytestmark = pytest.mark.stress

COUNT = 10


@pytest.mark.parametrize("first", range(1000, 1080, COUNT))
def test_exported_modules_compute_as_torch_or_refuse(first: int):
    found, counts = failures(range(first, first + COUNT))
    assert not [problem for problem in found if ": wrong:" in problem]
    assert sum(counts.values()) > COUNT
