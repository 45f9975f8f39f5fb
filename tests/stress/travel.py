"""Ten thousand sessions pickled, loaded and run in one process, some broken on purpose.

``python tests/stress/travel.py pickles [SEED]`` prints how many were what, and how resident memory grew between the
1,000th and the last. It ends with an error if a session gives wrong numbers, or an error that does not say what is
wrong.
"""

from __future__ import annotations

import pickle
import random
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from memory import report, resident, steady
from numpy.typing import NDArray

import pyops
from pyops import onnx_op

COUNT = 10_000
WARM = 1_000

# Imported where a session is used; declare_other is another version of the module.
OPS = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

def declare():
    global twice
    @onnx_op("travel::Imported")
    def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + x

def declare_other(by):
    global twice
    @onnx_op("travel::Imported")
    def twice(x: NDArray[np.float32], *, by: int = by) -> NDArray[np.float32]:
        return x * np.float32(by)

declare()
"""


@onnx_op("travel::Carried")
def carried(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Run in sessions that carry its code, because no process can import ``__main__``."""
    return x + x


def model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 20, "travel" : 1]>
    main (float[n] x) => (float[n] y) {{ a = travel.{name}(x)  y = Neg(a) }}""")


@contextmanager
def unbroken(path: Path) -> Iterator[None]:
    yield


@contextmanager
def missing_file(path: Path) -> Iterator[None]:
    moved = path.rename(path.with_suffix(".moved"))
    yield
    moved.rename(path)


@contextmanager
def other_file(path: Path) -> Iterator[None]:
    data = path.read_bytes()
    path.write_bytes(data + onnx.ModelProto(producer_name="other").SerializeToString())
    yield
    path.write_bytes(data)


@contextmanager
def missing_module(path: Path) -> Iterator[None]:
    with mock.patch.dict(sys.modules, travel_ops=None):
        yield


@contextmanager
def changed_op(path: Path) -> Iterator[None]:
    sys.modules["travel_ops"].declare_other(by=2)
    yield
    sys.modules["travel_ops"].declare()


@contextmanager
def other_pyops(path: Path) -> Iterator[None]:
    with mock.patch.object(pyops, "__version__", "0.0.1"):
        yield


@contextmanager
def other_onnxruntime(path: Path) -> Iterator[None]:
    with mock.patch.object(onnxruntime, "__version__", "1.2.3"):
        yield


OF_FILES = {
    missing_file: r"FileNotFoundError: the session was made from the model file '.*model.onnx', which does not exist",
    other_file: r"ModelError: the model file '.*model.onnx' differs from the one that the session was made from",
    missing_module: "PickleError: travel::Imported is declared by the module 'travel_ops', which this process can",
    changed_op: r"PickleError: travel::Imported was pickled as travel::Imported\(x: float32\) -> .*, but is declared",
}
OF_ALL = {
    unbroken: r"\[0, -2, -4, -6\]",
    other_pyops: "PickleError: the session was pickled with pyops .*, and this process has pyops 0.0.1, .*install the",
    other_onnxruntime: "PickleError: the session was pickled with .*this process has .*onnxruntime 1.2.3; install the",
}


def travelled(number: int, path: Path) -> str:
    """Pickle a session, break what it needs, load it and use it; return how it was broken."""
    from_file = random.random() < 0.5
    breaking, expected = random.choice(list((OF_ALL | OF_FILES if from_file else OF_ALL).items()))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.logid = 1, str(number)  # so that no two sessions are the same
    session = pyops.InferenceSession(path if from_file else model("Carried"), options)
    data = pickle.dumps(session)
    with breaking(path):
        for _ in range(2):  # a session that could not be made raises its error each time
            try:
                (y,) = pickle.loads(data).run(None, {"x": np.arange(4, dtype=np.float32)})
                found = str(y.astype(int).tolist())
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            assert re.match(expected, found), f"{breaking.__name__}: {found}"
    return breaking.__name__


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "travel_ops.py").write_text(OPS)
        sys.path.insert(0, folder)
        import travel_ops  # noqa: F401

        path = Path(folder, "model.onnx")
        onnx.save(model("Imported"), path)
        found: Counter[str] = Counter()
        for number in range(COUNT):
            found[travelled(number, path)] += 1
            if number == WARM:
                before = resident()
        after = resident()
    print(*(f"{count} {name}" for name, count in found.most_common()), sep=", ")
    report(f"{COUNT} pickles", before, after)


if __name__ == "__main__":
    steady()
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    warnings.simplefilter("ignore", pyops.errors.RedeclarationWarning)
    main()
