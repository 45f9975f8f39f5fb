"""Random kernels return and raise the same in sessions, in a built library and in Python."""

from pathlib import Path

import pytest
from raising_kernels import failures

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("seed", range(4))
def test_libraries_and_sessions_raise_what_python_raises(seed: int, tmp_path: Path):
    found, returned, raised = failures(seed, 12, tmp_path)
    assert not found, "\n\n".join(found)
    assert returned > 10
    assert raised > 20
