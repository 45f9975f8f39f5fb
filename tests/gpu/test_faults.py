"""Faults planted in the CUDA engine are seen by the tests of this folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.gpu.faults import FAULTS, FILES, Outcome
from tests.gpu.host_cuda import runtime
from tests.helpers import cupy_on_host

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_fault_replaces_and_the_tests_that_see_it_are_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy_on_host)
    FAULTS[name].plant(monkeypatch)
    tests = "".join((ROOT / file).read_text() for file in FILES)
    assert [test for test in FAULTS[name].seen_by if f"def {test}(" not in tests] == []


@pytest.fixture(scope="module")
def outcomes(pytestconfig: pytest.Config) -> dict[str, Outcome]:
    cache = pytestconfig.cache.mkdir("host_cuda")
    command = [sys.executable, "-m", "tests.gpu.faults", str(cache)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {name: Outcome(*rest) for name, *rest in map(json.loads, done.stdout.splitlines())}


@pytest.mark.exhaustive
@pytest.mark.skipif(not runtime.is_loaded(), reason=runtime.LEFT_OUT)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(name: str, outcomes: dict[str, Outcome]) -> None:
    if int(version("cupy-cuda13x").partition(".")[0]) >= FAULTS[name].harmless_from:
        pytest.skip("this CuPy makes it no fault")
    failed, ended_by, output = outcomes[name]
    # Where the host touches device memory, the process ends.
    assert ended_by == signal.SIGSEGV or set(failed) == set(FAULTS[name].seen_by), output
