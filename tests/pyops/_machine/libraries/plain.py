"""Samples in ONNX Runtime's own sessions, in Pythons without pyops and numba."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pyops
from pyops.testing import Sample

# Arrays travel as their bytes, because the other Python may have a NumPy that cannot read the pickles of this one.
SCRIPT = """
import pickle, sys
for name in ("pyops", "numba", "llvmlite"):
    sys.modules[name] = None
import numpy, onnxruntime
library, calls = pickle.load(sys.stdin.buffer)
answers = []
for model, feed in calls:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    feed = {name: numpy.frombuffer(data, kind).reshape(shape) for name, (kind, shape, data) in feed.items()}
    try:
        options.register_custom_ops_library(library)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results = session.run(None, feed)
        answers.append([(array.dtype.str, array.shape, array.tobytes()) for array in map(numpy.asarray, results)])
    except Exception as error:
        answers.append(str(error))
with open(1, "wb") as file:  # sys.stdout may be unbuffered, and then writes a part
    pickle.dump(answers, file)
"""


def plain_results(
    library: Path,
    samples: Sequence[Sample],
    python: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] = os.environ,
) -> list[Any]:
    """The arrays of each sample, or the text of the error."""
    calls = []
    for sample in samples:
        model = sample.model()
        model.ir_version = 8  # which every ONNX Runtime here reads
        next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")).version = 17
        feed = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in sample.feed.items()}
        calls.append((model.SerializeToString(), feed))
    done = subprocess.run(
        [*python, "-c", SCRIPT], input=pickle.dumps((str(library), calls)), capture_output=True, env=environment
    )
    assert done.returncode == 0, done.stderr.decode()
    return [
        answer
        if isinstance(answer, str)
        else [np.frombuffer(data, kind).reshape(shape) for kind, shape, data in answer]
        for answer in pickle.loads(done.stdout)
    ]


def by_pyops(samples: Sequence[Sample]) -> list[Any]:
    sessions = ((pyops.InferenceSession(sample.model()), sample.feed) for sample in samples)
    return [list(map(np.asarray, session.run(None, feed))) for session, feed in sessions]


def assert_identical(samples: Sequence[Sample], results: Sequence[Any], expected: Sequence[Any]) -> None:
    for sample, given, wanted in zip(samples, results, expected, strict=True):
        assert not isinstance(given, str), f"{sample.id}: {given}"
        for a, b in zip(given, wanted, strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), sample.id


def assert_close(samples: Sequence[Sample], results: Sequence[Any], expected: Sequence[Any]) -> None:
    """Equal but for the last digits: computed by other instructions."""
    for sample, given, wanted in zip(samples, results, expected, strict=True):
        assert not isinstance(given, str), f"{sample.id}: {given}"
        for a, b in zip(given, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), sample.id
            np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=str(sample.id))
