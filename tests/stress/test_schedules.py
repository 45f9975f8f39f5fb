"""Random schedules, each in a process of its own: nobody dies, hangs, or loses an exception."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stress
SCRIPT = Path(__file__).with_name("schedules.py")


@pytest.mark.parametrize("direct", ["1", "0"], ids=["direct", "from Python"])
@pytest.mark.parametrize("seed", range(60))
def test_a_schedule_of_the_native_engine(seed: int, direct: str) -> None:
    run(seed, "native", PYOPS_DIRECT_CALLS=direct)


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_of_the_extensions_engine(seed: int) -> None:
    run(seed, "extensions")


def run(seed: int, engine: str, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, str(seed), engine],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
