"""The script that runs everything that needs a GPU, on a machine without one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.gpu.gpu_ops import CUDA, one_node
from tests.gpu.gpus import missing_gpu
from tests.gpu.host_cuda import runtime

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not missing_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(tmp_path) -> None:
    output = tmp_path / "gpu.md"
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "benchmarks" / "gpu.py", "--output", output],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [f"nothing was run, because there is no GPU: {missing_gpu()}"]
    assert not output.exists()


@pytest.mark.exhaustive
@pytest.mark.skipif(not runtime.is_loaded(), reason=runtime.LEFT_OUT)
def test_all_of_it_runs_on_host_memory(tmp_path) -> None:
    output = tmp_path / "gpu.md"
    chosen = "test_a_raw_kernel or test_kernels_run_on_the_stream or test_a_function_of_torch"
    script = [sys.executable, ROOT / "tests" / "benchmarks" / "gpu.py", "--rehearse"]
    done = subprocess.run(
        [*script, "--output", output, "--sizes", "1", "100", "-k", chosen], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    page = output.read_text()
    assert page.startswith("# A rehearsal on host memory, whose figures mean nothing\n")
    assert "5 passed, 0 failed" in page
    assert "| pyops | 1 | 0 | 0 |" in page
    assert "no waiting but ONNX Runtime's own: holds." in page
    assert "does NOT hold" not in page
    # Four contests of two sizes, alone and as graphs.
    assert len(re.findall(r"^\| .* \| (?:1|100) \| \d.* µs \| \d", page, re.MULTILINE)) == 16


@pytest.mark.parametrize("qualified", ["Add", "Softmax", "com.microsoft::QuickGelu"])
def test_the_operators_that_it_measures_against_are_onnx_runtime_s(qualified: str) -> None:
    shape = (3, 4) if qualified == "Softmax" else (12,)
    model = one_node(qualified, np.float32, shape)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=CUDA[1:])
    assert session.run(None, {"x": np.ones(shape, np.float32)})[0].shape == shape


def test_pytest_says_how_many_tests_it_leaves_out(pytester: pytest.Pytester) -> None:
    conftest = (ROOT / "conftest.py").read_text()
    pytester.makepyfile(
        conftest=conftest.replace("from tests.gpu.gpus import missing_gpu, missing_provider", "")
        + "\nmissing_gpu = missing_provider = lambda: 'it has none'\nHAS_TORCH = True\nNEED_TORCH = ()\n"
    )
    pytester.makeini("[pytest]\nmarkers = gpu")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        @pytest.mark.parametrize("i", range(3))
        def test_one(i): raise AssertionError

        @pytest.mark.gpu("session")
        def test_other(): raise AssertionError

        def test_on_the_cpu(): pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, skipped=4)
    result.stdout.fnmatch_lines(["4 tests need a GPU and are left out: it has none"])
