"""What ``pyops doctor --selftest`` tries, each function in a process of its own; one that fails raises."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import pyops

from ..errors import BorrowedArrayWarning, MissingDependencyError

F32 = NDArray[np.float32]
X = np.arange(6, dtype=np.float32)
_ROUNDS = 1000
_SECONDS = 30  # after which fewer interrupts do, on a slow machine


@pyops.onnx_op("pyops.selftest::Copy")
def copy(x: F32) -> F32:
    """Return the numbers that it gets, if there are any; a spawned process can import it."""
    if not x.size:
        raise LookupError("nothing to do")
    return x.copy()


def _model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "pyops.selftest": 1]> '
        f"main (float[n] x) => (float[n] y) {{ a = Neg(x)  b = pyops.selftest.{name}(a)  y = Neg(b) }}"
    )


def _session(name: str) -> pyops.InferenceSession:
    return pyops.InferenceSession(_model(name), engine="native", providers=["CPUExecutionProvider"])


def _check(session: Any, expected: F32, x: F32 = X) -> None:
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-6)


def calls() -> None:
    """Have a kernel return, and raise."""
    session, raised = _session("Copy"), 0
    for _ in range(_ROUNDS):
        _check(session, X)
        try:
            _check(session, X, X[:0])
        except LookupError:
            raised += 1
    assert raised == _ROUNDS, f"{raised} of {_ROUNDS} exceptions were raised"


def in_place() -> None:
    """Have a kernel write into the memory of its input."""
    shared = []

    @pyops.onnx_op("pyops.selftest::Grow", may_inplace={"output": "x"})
    def grow(x: F32, *, out: F32 | None = None) -> F32:
        shared.append(out is not None and np.shares_memory(x, out))
        return np.add(x, 1, out=out)

    grow.register_shape_inference(lambda x: x)
    _check(_session("Grow"), X - 1)
    assert shared == [True], shared


def interrupts() -> None:
    """Interrupt runs and creations of sessions at any instant: none is lost, and none harms."""
    is_armed, raised, caught, is_over = False, 0, 0, threading.Event()

    def interrupt(*_: Any) -> None:
        nonlocal is_armed, raised
        if is_armed:
            is_armed = False
            raised += 1
            raise KeyboardInterrupt

    def send() -> None:
        while not is_over.wait(0.0003):
            signal.raise_signal(signal.SIGINT)

    session = _session("Copy")
    _check(session, X)  # Python loses an interrupt that comes in a finalizer, as while it imports
    signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=send, daemon=True).start()
    end = time.monotonic() + _SECONDS
    while caught < _ROUNDS and time.monotonic() < end:
        try:
            is_armed = True
            _check(session if caught % 20 else _session("Copy"), X)
            is_armed = False
        except KeyboardInterrupt:
            caught += 1
    is_over.set()
    assert caught == raised > _ROUNDS // 10, f"{caught} of {raised} interrupts were raised"


def kept_arrays() -> None:
    """Keep an array that a kernel got; it outlives the session."""
    kept: list[F32] = []

    @pyops.onnx_op("pyops.selftest::Keep")
    def keep(x: F32) -> F32:
        kept.append(x[1:])
        return x + 0

    x = np.ones(10**6, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BorrowedArrayWarning)
        _check(_session("Keep"), x, x)
    assert kept[0].sum() == 1 - 10**6


def compiled() -> None:
    """Compile a kernel, call it in parts, and find its code on disk."""

    @pyops.onnx_op("pyops.selftest::Sine", compile=True, parallel="()->()")
    def sine(x: F32) -> F32:
        return np.sin(x)

    sine.register_shape_inference(lambda x: x)
    x = np.linspace(-9, 9, 10**6, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYOPS_CACHE_DIR"] = folder
        _check(_session("Sine"), np.sin(x), x)
        assert list(Path(folder).glob("*.nbc")), "the code is not kept on disk"


def processes() -> None:
    """Send a session to a spawned process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_check, _session("Copy"), X).result()


def libraries() -> None:
    """Build a library, and run it in plain onnxruntime."""

    @pyops.onnx_op("pyops.selftest::Cube", compile=True)
    def cube(x: F32) -> F32:
        return x * x * x

    options = onnxruntime.SessionOptions()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options.register_custom_ops_library(str(pyops.build(Path(folder, "library"), cube, ranks=[1]).path))
        _check(onnxruntime.InferenceSession(_model("Cube").SerializeToString(), options), X**3)


def main(name: str) -> None:
    """Run a test by name, and print as JSON what it shows."""
    said = "works"
    try:
        globals()[name]()
    except MissingDependencyError as error:
        said = f"not tried: {error}"
    print(json.dumps(said))
