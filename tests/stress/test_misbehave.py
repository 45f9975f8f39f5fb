"""Kernels that do everything wrong, sessions and redeclarations, and pickles, ten thousand of each in one process.

And twenty thousand kernels whose results, and what they keep, are compared with NumPy's (``PYOPS_STRESS_SEED``).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress


@pytest.mark.parametrize(
    ("script", "what"), [("misbehave.py", "kernels"), ("misbehave.py", "sessions"), ("travel.py", "pickles")]
)
def test_the_process_lives_and_its_memory_does_not_grow(script: str, what: str):
    command = [sys.executable, str(Path(__file__).with_name(script)), what]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"10000 {what}" in done.stdout
    print(done.stdout)


def test_what_kernels_return_and_keep_is_what_numpy_computes():
    script, seed = Path(__file__).with_name("returned_arrays.py"), os.environ.get("PYOPS_STRESS_SEED", "0")
    done = subprocess.run([sys.executable, str(script), "20000", seed], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert re.match(r"20000 arrays, \d{5} outputs, of which \d{4,} were not copied; \d{4} calls raised", done.stdout)
    print(done.stdout)
