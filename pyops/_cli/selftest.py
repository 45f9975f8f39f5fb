"""What ``pyops doctor --selftest`` tries, each function in a process of its own; a test that fails raises."""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import pyops
from pyops.errors import BorrowedArrayWarning, MissingDependencyError

F32 = NDArray[np.float32]
X = np.arange(6, dtype=np.float32)
_ROUNDS = 1000


@pyops.onnx_op("pyops.selftest::Copy")
def copy(x: F32) -> F32:
    """Return the numbers that it gets; a process that is started anew can import it."""
    return x.copy()


def _model(op: Any) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "pyops.selftest": 1]> '
        f"main (float[n] x) => (float[n] y) {{ a = Neg(x)  b = pyops.selftest.{op.signature.name}(a)  y = Neg(b) }}"
    )


def _session(op: Any) -> pyops.InferenceSession:
    return pyops.InferenceSession(_model(op), engine="native", providers=["CPUExecutionProvider"])


def _result(session: Any, x: F32 = X) -> F32:
    y: F32 = session.run(None, {"x": x})[0]
    return y


def calls() -> None:
    """Have kernels return, and raise."""

    @pyops.onnx_op("pyops.selftest::Root")
    def root(x: F32) -> F32:
        if not x.size:
            raise LookupError("nothing to do")
        return np.sqrt(-x)

    session = _session(root)
    for _ in range(_ROUNDS):
        assert np.array_equal(_result(session), -np.sqrt(X))
    caught = []
    for _ in range(_ROUNDS):
        try:
            _result(session, X[:0])
        except LookupError as error:
            caught.append(str(error))
    assert caught == ["nothing to do"] * _ROUNDS, caught


def in_place() -> None:
    """Have a kernel write into the memory of its input."""
    shared = []

    @pyops.onnx_op("pyops.selftest::Grow", may_inplace={"output": "x"})
    def grow(x: F32, *, out: F32 | None = None) -> F32:
        shared.append(out is not None and np.shares_memory(x, out))
        return np.add(x, 1, out=out)

    grow.register_shape_inference(lambda x: x)
    assert np.array_equal(_result(_session(grow)), X - 1)
    assert shared == [True], shared


def interrupts() -> None:
    """Interrupt runs and creations of sessions at any instant: none is lost, and none harms."""
    state = {"is_armed": False, "raised": 0}

    def interrupt(*_: Any) -> None:
        if state["is_armed"]:
            state.update(is_armed=False, raised=state["raised"] + 1)
            raise KeyboardInterrupt

    def send() -> None:
        while not is_over.wait(0.0003):
            signal.raise_signal(signal.SIGINT)

    session, caught, is_over = _session(copy), 0, threading.Event()
    signal.signal(signal.SIGINT, interrupt)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    deadline = time.monotonic() + 30
    while caught < _ROUNDS and time.monotonic() < deadline:
        try:
            state["is_armed"] = True
            y = _result(_session(copy) if caught % 20 == 0 else session)
            state["is_armed"] = False
        except KeyboardInterrupt:
            caught += 1
        else:
            assert np.array_equal(y, X)
    is_over.set()
    sender.join()
    assert caught == state["raised"] > _ROUNDS // 10, f"{caught} of {state['raised']} interrupts came out"


def kept_arrays() -> None:
    """Keep an array that a kernel got; it outlives the session."""
    kept: list[F32] = []

    @pyops.onnx_op("pyops.selftest::Keep")
    def keep(x: F32) -> F32:
        kept.append(x[1:])
        return x + 0

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _result(_session(keep), np.ones(10**6, np.float32))
    gc.collect()
    assert any(issubclass(item.category, BorrowedArrayWarning) for item in caught), caught
    assert kept[0].sum() == 1 - 10**6


def compiled_kernels() -> None:
    """Compile a kernel, call it in parts, and find its code on disk."""

    @pyops.onnx_op("pyops.selftest::Sine", compile=True, parallel="()->()")
    def sine(x: F32) -> F32:
        return np.sin(x)

    sine.register_shape_inference(lambda x: x)
    x = np.linspace(-9, 9, 10**6, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYOPS_CACHE_DIR"] = folder
        assert np.allclose(_result(_session(sine), x), np.sin(x), atol=1e-6)
        assert {file.suffix for file in Path(folder).iterdir()} >= {".nbc"}


def pickled_sessions() -> None:
    """Send a session to a process that is started anew."""
    session = _session(copy)
    assert np.array_equal(_result(pickle.loads(pickle.dumps(session))), X)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert np.array_equal(pool.submit(_result, session).result(60), X)


def built_libraries() -> None:
    """Build a library, and run it in plain onnxruntime."""
    import onnxruntime

    @pyops.onnx_op("pyops.selftest::Cube", compile=True)
    def cube(x: F32) -> F32:
        return x * x * x

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            report = pyops.build(Path(folder, "cube.library"), cube, ranks=[1])
        except MissingDependencyError as error:
            print(json.dumps(f"not tried: {error}"))
            sys.exit()
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(report.path))
        assert np.array_equal(_result(onnxruntime.InferenceSession(_model(cube).SerializeToString(), options)), X**3)


def main(name: str) -> None:
    """Run a test by name, and print as JSON what it shows."""
    started = time.monotonic()
    globals()[name]()
    print(json.dumps(f"works ({math.ceil(time.monotonic() - started)} s)"))
