"""Kernels that do everything wrong, sessions and redeclarations, and pickles, ten thousand of each in one process."""

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
