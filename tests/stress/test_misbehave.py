"""Kernels that do everything wrong, and sessions and redeclarations, ten thousand of each in one process."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("what", ["kernels", "sessions"])
def test_the_process_lives_and_its_memory_does_not_grow(what: str):
    script = Path(__file__).with_name("misbehave.py")
    done = subprocess.run([sys.executable, str(script), what], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"10000 {what}" in done.stdout
    print(done.stdout)
