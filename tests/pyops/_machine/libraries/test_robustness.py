"""Libraries under an address sanitizer, in many threads and sessions, and on a CPU that they were not built for."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyops
from pyops._machine.libraries import build as building
from pyops.testing import Sample
from tests.pyops._machine.compiled.compiled_db import SAMPLES
from tests.pyops._machine.libraries.buildable_ops import LOOPS, PAIRS, RAISING, add_scaled, pair_sums, rows
from tests.pyops._machine.libraries.conftest import Library
from tests.pyops._machine.libraries.plain import plain_results
from tests.pyops._machine.libraries.raising_ops import OPS

pytestmark = pytest.mark.exhaustive


def run_plain(script: str, *given: Any) -> str:
    """What a script without pyops prints."""
    start = "import sys, pickle\nfor name in ('pyops', 'numba'):\n    sys.modules[name] = None\n"
    read = "import numpy as np, onnxruntime\ngiven = pickle.load(sys.stdin.buffer)\n"
    done = subprocess.run([sys.executable, "-c", start + read + script], input=pickle.dumps(given), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_an_address_sanitizer_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where C++ throws, the sanitizer needs the library of C++ to be there before it.
    names = ("libasan.so", "libstdc++.so.6")
    asked = [subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True) for name in names]
    runtime = [done.stdout.strip() for done in asked]
    if not all(Path(path).exists() for path in runtime):
        pytest.skip("the tests with an address sanitizer are left out: cc has no libasan")
    command = ["cc", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g"]
    monkeypatch.setattr(building, "find_linker", lambda linker, target: command)
    library = tmp_path / "libasan.so"
    examples = [PAIRS, *(sample for sample in SAMPLES if sample.op.name in ("Attributes", "Clip", "Unique"))]
    with_values = [Sample(op, np.array([1.5, 2.0])) for op in OPS]
    pyops.build(library, [add_scaled, rows, pair_sums], examples=[*examples, *with_values], cpu="native")
    environment = os.environ | {
        "LD_PRELOAD": " ".join(runtime),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
    }
    raising = [*(sample for sample, _ in RAISING), *with_values]
    results = plain_results(library, [*LOOPS, *examples, *raising] * 2, environment=environment)
    told = [isinstance(result, str) for result in results]
    assert told == ([False] * (len(LOOPS) + len(examples)) + [True] * len(raising)) * 2


THREADS = """
from concurrent.futures import ThreadPoolExecutor
library, calls = given
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(library)
options.log_severity_level = 4
sessions = [(onnxruntime.InferenceSession(model, options), feed, expected) for model, feed, expected in calls]

def work(_):
    for _ in range(100):
        for session, feed, expected in sessions:
            try:
                results = [array.tobytes() for array in session.run(None, feed)]
            except Exception as error:
                results = str(error)
            assert results == expected or (isinstance(results, str) and expected in results), (results, expected)
    return 1

with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(work, range(8))))
"""


def test_eight_threads_get_what_one_gets(built: Library) -> None:
    samples = [*LOOPS[:3], PAIRS]
    expected: list[Any] = [[array.tobytes() for array in result] for result in plain_results(built[0], samples)]
    pairs = [*zip(samples, expected, strict=True), *RAISING[:2]]
    calls = [(sample.model().SerializeToString(), sample.feed, result) for sample, result in pairs]
    assert run_plain(THREADS, str(built[0]), calls) == "8\n"


ALLOCATED = """
import ctypes, gc

class Mallinfo(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Mallinfo

def allocated():
    gc.collect()
    return mallinfo().field7  # uordblks: the bytes that nobody has freed

def session(library, model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(library)
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options)
"""
GROWTH = f"""{ALLOCATED}
library, calls = given

def make(count):
    for _ in range(count):
        for model, feed in calls:
            session(library, model).run(None, feed)

make(100)
before = allocated()
make(1000)
print(allocated() - before)
"""
RAISES = f"""{ALLOCATED}
library, model, feed = given
made, options = session(library, model), onnxruntime.RunOptions()
options.log_severity_level = 4

def fail(count):
    for _ in range(count):
        try:
            made.run(None, feed, options)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            pass

fail(100)
before = allocated()
fail(20_000)
print(allocated() - before)
"""


def test_a_thousand_sessions_leave_no_memory(built: Library) -> None:
    calls = [(sample.model().SerializeToString(), sample.feed) for sample in (PAIRS, LOOPS[0])]
    # ONNX Runtime itself leaves 50 to 100 bytes with each session; a node of ours has more than a thousand.
    assert int(run_plain(GROWTH, str(built[0]), calls)) < 500 * 2 * 1000


def test_errors_leave_no_memory(built: Library, tmp_path: Path) -> None:
    with_values = Sample(OPS[2], np.array([1.5, 2.0]))
    pyops.build(tmp_path / "lib.so", examples=[with_values])
    for library, sample in ((built[0], RAISING[2][0]), (tmp_path / "lib.so", with_values)):
        grown = int(run_plain(RAISES, str(library), sample.model().SerializeToString(), sample.feed))
        assert grown < 64 * 20_000


def test_a_cpu_that_lacks_an_instruction_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if flags is None:
        pytest.skip("tests of CPUs that lack instructions are left out: this one is none of x86-64")
    if "avx512vl" in flags[1]:  # so that there is no level that it lacks; of this bit of CPUID nothing is known
        there = building.features
        monkeypatch.setattr(building, "features", lambda *given: [*there(*given), ("future", (7, 1, "d", 31))])
    pyops.build(tmp_path / "lib.so", examples=[PAIRS], cpu="x86-64-v4")
    (text,) = plain_results(tmp_path / "lib.so", [PAIRS])
    assert re.search(
        r"these operators were built for CPUs like x86-64-v4, and this one has no \w+; build them with another --cpu",
        text,
    )


def test_an_older_cpu_under_qemu_gets_the_error_and_no_illegal_instruction(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    given = os.environ.get("PYOPS_AARCH64")
    if qemu is None and given:
        qemu = str(Path(given, "qemu/usr/bin/qemu-x86_64-static"))
    if qemu is None:
        pytest.skip("tests on an older CPU are left out: there is no qemu-x86_64")
    pyops.build(tmp_path / "v3.so", examples=[PAIRS])
    pyops.build(tmp_path / "v1.so", examples=[PAIRS], cpu="x86-64")
    old = [qemu, "-cpu", "Nehalem", sys.executable]
    (text,) = plain_results(tmp_path / "v3.so", [PAIRS], old)
    assert "these operators were built for CPUs like x86-64-v3, and this one has no " in text
    (result,) = plain_results(tmp_path / "v1.so", [PAIRS], old)
    assert result[0].tolist() == PAIRS.op(*PAIRS.inputs, **PAIRS.attributes).tolist()
