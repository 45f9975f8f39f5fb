"""Random kernels of which one thing changes run what they are now, and those that do not change are not compiled."""

import pytest
from cached_kernels import changes, sample

pytestmark = pytest.mark.stress

COUNT = 10


@pytest.mark.parametrize("seed", range(8))
def test_code_on_disk_is_that_of_the_kernel_as_it_is_now(seed: int, tmp_path, monkeypatch):
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(tmp_path))
    outcomes = list(changes(seed, sample(seed, COUNT)))
    problems = [problem for problem, _, _ in outcomes if problem]
    assert not problems, "\n".join(problems)
    assert sum(matters for _, matters, _ in outcomes) > COUNT / 2
    assert sum(reloaded for _, _, reloaded in outcomes) > COUNT / 3
