"""Random calls of every operator that a model may name: none ends the process or hangs, and torch's answers come."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.stress

SCRIPT = Path(__file__).with_name("fallback_calls.py")
COUNT = 20_000


def outcomes(seed: int, file: Path, *options: str) -> list[list[Any]]:
    command = [sys.executable, "-m", "tests.stress.fallback_calls", str(seed), str(COUNT), str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    print(done.stdout)
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("seed", [3])
def test_no_call_ends_the_process_or_hangs(seed: int, tmp_path: Path):
    found = outcomes(seed, tmp_path / "kernel")
    assert [row for row in found if row[2] == "died"] == []
    assert sum(row[2] == "answer" for row in found) > COUNT / 3
    # torch itself may die of a call.
    both = list(zip(found, outcomes(seed, tmp_path / "torch", "--torch"), strict=True))
    assert [pair for pair in both if pair[0][2] == "answer" and pair[0] != pair[1]] == []
    assert [pair for pair in both if pair[0][2] == "error" and pair[1][2] == "answer"] == []
