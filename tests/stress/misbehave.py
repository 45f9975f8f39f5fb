"""Ten thousand ill-behaved kernels, or sessions and redeclarations, in one process.

``python tests/stress/misbehave.py kernels|sessions`` prints how resident memory grew between the
1,000th and the last, and ends with an error if a failure was not an exception that names the op.
"""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from memory import report, resident, steady
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

COUNT = 10_000
WARM = 1_000
NAMES = [f"Bad{number}" for number in range(8)]
Behaviour = Callable[..., object]
kept: list[object] = []


class SurpriseError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message either")


def raises(x, out):
    raise random.choice(
        [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, MemoryError, SurpriseError]
    )


def keeps(x, out):
    kept.append(random.choice([x, x[:1], {"x": x}, (x, [x[1:]]), memoryview(x)]))
    del kept[:-4]
    return x + 1


def writes(x, out):
    x[...] = 0
    return x


def reshapes(x, out):
    x.shape = (1, *x.shape)
    return x[0] + 1


def recurses(x, out):
    return recurses(x, out)


def exits(x, out):
    sys.exit(3)


def leaves_out(x, out):
    return np.zeros(x.shape[0] + 1, np.float32)


def returns(value):
    return lambda x, out: value(x) if callable(value) else value


def right(x, out):
    return np.add(x, np.float32(1), out=out)


BEHAVIOURS = [
    raises,
    keeps,
    writes,
    reshapes,
    recurses,
    exits,
    leaves_out,
    right,
    *map(
        returns,
        [
            None,
            3.5,
            "text",
            [1.0],
            (),
            lambda x: [x],
            lambda x: (x, x),
            lambda x: x.astype(np.float64),
            lambda x: x.view(np.int32),
            lambda x: x.astype(np.int64),
            lambda x: x.astype(object),
            lambda x: x.astype(str),
            lambda x: x.astype(complex),
            lambda x: x.astype(">f4"),
            lambda x: np.ma.masked_array(x, x > 0),
            lambda x: x[:-1],
            lambda x: x[None],
            lambda x: x,
            lambda x: x[::-1],
            lambda x: np.zeros((1,) * 60, np.float32),
            lambda x: np.lib.stride_tricks.as_strided(x, (4,), (0,)),
            lambda x: type("Odd", (), {"dtype": np.dtype("f4"), "shape": (4,)})(),
        ],
    ),
]


def declare(name: str, behave: Behaviour) -> None:
    """Redeclare an op with one of several signatures."""
    with_out = random.random() < 0.5

    def kernel(x: NDArray[np.float32], *, k: int = 0) -> NDArray[np.float32]:
        return behave(x, None)

    def kernel_out(
        x: NDArray[np.float32], *, k: int = 0, out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        return behave(x, out)

    op = onnx_op(f"fuzz::{name}")(kernel_out if with_out else kernel)
    if with_out:
        op.register_shape_inference(lambda x, *, k=0: x)


def model(name: str) -> bytes:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "fuzz" : 1]>
    g (float[n] x) => (float[m] y) {{ a = Relu(x)  b = fuzz.{name} <k = 1> (a)  y = Relu(b) }}"""
    return onnx.parser.parse_model(text).SerializeToString()


MODELS = {name: model(name) for name in NAMES}


def one_kernel(session: pyops.InferenceSession) -> None:
    x = np.arange(4, dtype=np.float32)
    try:
        (y,) = session.run(None, {"x": x})
    except BaseException as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        if "fuzz::Bad" not in notes:
            raise AssertionError(f"{type(error).__name__} does not name the op: {notes!r}") from error
    else:
        assert y.dtype == np.float32
    assert x.tolist() == [0, 1, 2, 3]


def kernels() -> None:
    """Redeclare an op, and run two at random, in eight threads, with a session for several declarations each."""
    sessions: dict[str, pyops.InferenceSession] = {}
    lock = threading.Lock()

    def step(number: int) -> None:
        name = random.choice(NAMES)
        # The first thousand cover every behaviour, each in all threads at once.
        turn = BEHAVIOURS[number * len(BEHAVIOURS) // WARM % len(BEHAVIOURS)]
        with lock:
            declare(name, turn if number < WARM else random.choice(BEHAVIOURS))
            if number % 3 == 0:
                sessions[name] = pyops.InferenceSession(MODELS[name])
        for name in random.choices(NAMES, k=2):
            one_kernel(sessions[name])

    def left_over() -> int:
        for name in NAMES:
            declare(name, right)
            sessions[name] = pyops.InferenceSession(MODELS[name])
        kept.clear()
        return resident()

    with ThreadPoolExecutor(8) as pool:
        left_over()
        list(pool.map(step, range(WARM)))
        before = left_over()
        for start in range(WARM, COUNT, WARM):
            list(pool.map(step, range(start, start + WARM)))
        report(f"{COUNT} {sys.argv[1]}", before, left_over())


def sessions() -> None:
    """Redeclare, make a session and run it, again and again."""
    for number in range(COUNT):
        name = random.choice(NAMES)
        declare(name, right)
        one_kernel(pyops.InferenceSession(MODELS[name]))
        if number == WARM:
            before = resident()
    report(f"{COUNT} {sys.argv[1]}", before, resident())


if __name__ == "__main__":
    steady()
    random.seed(0)
    warnings.simplefilter("ignore", pyops.errors.BorrowedArrayWarning)
    {"kernels": kernels, "sessions": sessions}[sys.argv[1]]()
