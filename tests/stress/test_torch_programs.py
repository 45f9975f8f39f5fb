"""Random programs of torch's operators give torch's numbers, or are refused, when they are exported."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.stress

COUNT = 5


@pytest.mark.parametrize("first", range(5000, 5040, COUNT))
def test_exported_programs_compute_as_torch_or_are_refused(first: int):
    command = [sys.executable, "-m", "tests.stress.torch_programs", str(first), str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"{COUNT} programs" in done.stdout
    assert "wrong, seed" not in done.stdout, done.stdout
