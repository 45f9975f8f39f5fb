"""Sessions in other processes: spawned, forked, of joblib; each process ends by itself."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers.scripts import run_plain_script
from tests.helpers.systems import HAS_FORK, needs_fork
from tests.helpers.tiers import exhaustive

OPS = """
import numpy as np, onnx, pyops
from numpy.typing import NDArray
from pyops import onnx_op

@onnx_op("workers::Scale")
def scale(x: NDArray[np.float32], *, by: float = 2.0) -> NDArray[np.float32]:
    if not x.size:
        raise LookupError("nothing to scale")
    return x * np.float32(by)

MODEL = onnx.parser.parse_model('''
<ir_version: 10, opset_import: ["" : 20, "workers" : 1]>
main (float[n] x) => (float[n] y) { a = workers.Scale(x)  b = Exp(a)  y = Log(b) }''')
"""
USE = """
import numpy as np

def use(session, number):
    y = session.run(None, {"x": np.full(100_000, number, np.float32)})[0]
    assert np.allclose(y, 2 * number), y
    return session.get_session_options().intra_op_num_threads
"""


@pytest.fixture
def ops_module(tmp_path, monkeypatch):
    """A folder with a module of ops and one that uses sessions, which other processes can import."""
    (tmp_path / "worker_ops.py").write_text(OPS)
    (tmp_path / "worker_use.py").write_text(USE)
    path = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    return tmp_path, path


def run_file(folder: Path, script: str) -> list[str]:
    """Run a script as a file, which spawned processes import again; return the lines that it prints."""
    (folder / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-X", "faulthandler", "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


START = """
import multiprocessing, onnxruntime, pyops
from worker_ops import MODEL
from worker_use import use

usual = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"

def make(threads, **arguments):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return pyops.InferenceSession(MODEL, options, **arguments)
"""


@pytest.mark.parametrize("how", ["fork", exhaustive("forkserver"), exhaustive("spawn")] if HAS_FORK else ["spawn"])
def test_sessions_of_one_and_two_threads_run_in_processes_that_end_by_themselves(how, ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        START
        + f"""
if __name__ == "__main__":
    context = multiprocessing.get_context({how!r})
    for threads in (1, 2):
        session = make(threads)
        use(session, 1)
        processes = [context.Process(target=use, args=(session, number)) for number in range(8)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        print([process.exitcode for process in processes])
        with context.Pool(2) as pool:
            print(pool.starmap(use, [(session, number) for number in range(4)]))
    use(session, 2)
""",
    )
    assert printed == [str([0] * 8), "[1, 1, 1, 1]", str([0] * 8), "[2, 2, 2, 2]"]


@needs_fork
def test_a_forked_process_ends_as_the_interpreter_does_whatever_it_ran(ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        START
        + """
import copy, os, pickle, sys
for threads in (1, 2):
    session = make(threads)
    other, data = copy.copy(session), pickle.dumps(session)
    use(session, 1)
    for uses in ([], [session], [other, session], [None]):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            for used in uses:
                use(used or pickle.loads(data), 3)
            if uses == [other, session]:
                grandchild = os.fork()
                if not grandchild:
                    use(other, 4)
                    sys.exit(5)
                assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 5
                del session
            print("done", flush=False)
            sys.exit(len(uses))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    use(session, 1)
""",
    )
    assert printed == ["done", "0", "done", "1", "done", "2", "done", "1"] * 2


@needs_fork
@pytest.mark.exhaustive
def test_an_inherited_session_is_not_made_again_from_a_file_that_has_changed(ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        START
        + """
import onnx, os
onnx.save(MODEL, "model.onnx")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = pyops.InferenceSession("model.onnx", options)
MODEL.producer_name = "other"
onnx.save(MODEL, "model.onnx")
use(session, 1)
child = os.fork()
if not child:
    try:
        use(session, 1)
    except Exception as error:
        print(type(error).__name__, error)
    raise SystemExit
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    )
    path = str(folder / "model.onnx")
    assert printed == [
        f"ModelError the model file {path!r} differs from the one that the session was made from; copy that one there, "
        "or make the session again",
        "0",
    ]


def test_a_kernel_s_exception_comes_back_with_its_node(ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        START
        + """
import numpy as np
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    session = make(1)
    with ProcessPoolExecutor(1, multiprocessing.get_context(usual)) as pool:
        error = pool.submit(session.run, None, {"x": np.zeros(0, np.float32)}).exception()
    print(type(error).__name__, error)
    text = str(error.__cause__)
    print("worker_ops.py" in text, "workers::Scale" in text)
""",
    )
    assert printed == ["LookupError nothing to scale", "True True"]


@pytest.mark.parametrize(
    ("environment", "arguments", "threads"),
    [
        exhaustive("", "0", 1),
        exhaustive("3", "0", 3),
        exhaustive("3", "2", 2),
        ("3", "0, worker_threads=4", 4),
        exhaustive("", "2, worker_threads=3", 3),
    ],
)
def test_the_number_of_threads_in_a_worker(environment, arguments, threads, ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        START
        + f"""
import os
os.environ["OMP_NUM_THREADS"] = {environment!r}
if __name__ == "__main__":
    session = make({arguments})
    with multiprocessing.get_context(usual).Pool(1) as pool:
        print(pool.starmap(use, [(session, 1)]))
""",
    )
    assert printed == [str([threads])]


def test_ops_of_a_script_travel_by_value_and_newer_ones_replace_them(ops_module):
    pytest.importorskip("cloudpickle")
    joblib = pytest.importorskip("joblib")
    del joblib
    folder, _ = ops_module
    printed = run_file(
        folder,
        OPS
        + """
from joblib import Parallel, delayed

def total(session):
    return float(session.run(None, {"x": np.ones(3, np.float32)})[0].sum())

if __name__ == "__main__":
    workers = Parallel(2)
    session = pyops.InferenceSession(MODEL)
    print(workers(delayed(total)(session) for _ in range(4)))

    @onnx_op("workers::Scale")
    def scale(x: NDArray[np.float32], *, by: float = 2.0) -> NDArray[np.float32]:
        return x * np.float32(by + added)

    for added in (1, 2):
        print(workers(delayed(total)(session) for _ in range(4)))
""",
    )
    assert printed == ["[6.0, 6.0, 6.0, 6.0]", "[9.0, 9.0, 9.0, 9.0]", "[12.0, 12.0, 12.0, 12.0]"]


def test_pickle_takes_an_op_of_a_script_by_its_name_as_it_takes_a_function(ops_module):
    folder, _ = ops_module
    printed = run_file(
        folder,
        """
import concurrent.futures, multiprocessing, sys
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

sys.modules["cloudpickle"] = None

@onnx_op("scripts::Kept")
def kept(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + 1

@kept.register_shape_inference
def _(x):
    return x

def use(op, times):
    return [op(np.ones(1, np.float32)).tolist()] * times, op

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        found, back = pool.submit(use, kept, 2).result()
    print(found, back is kept)
""",
    )
    assert printed == ["[[2.0], [2.0]] True"]


def test_an_op_of_another_script_of_that_name_is_refused():
    run_plain_script(
        """
import pickle, numpy as np, pyops
from numpy.typing import NDArray
from pyops import onnx_op
from pyops.testing import isolated_declarations

def attempt():
    try:
        print(pickle.loads(data) is op)
    except Exception as error:
        # The second is what Python 3.14 says.
        print(type(error).__name__, str(error).partition(" on ")[0].replace("resolve path", "get attribute"))

with isolated_declarations():
    @onnx_op("scripts::One")
    def op(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x
    data = pickle.dumps(op)
    attempt()
    @onnx_op("scripts::One")
    def op(x: NDArray[np.float32], *, by: int = 1) -> NDArray[np.float32]:
        return x
    attempt()

@onnx_op("scripts::Two")
def op(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x
attempt()
pickle.dumps(op)
attempt()
op = np.add
attempt()
""",
        """
        True
        PickleError scripts::One was pickled as scripts::One(x: float32) -> float32, but is declared here as \
scripts::One(x: float32, *, by: int = 1) -> float32 (<string>:20); let both processes import the same version of it
        PickleError scripts::One was pickled by its name in a script, which is another op in the script of this \
process; let both run the same one
        PickleError scripts::One was pickled by its name in a script, which is another op in the script of this \
process; let both run the same one
        AttributeError Can't get attribute 'op._carrier'
        """,
    )


def test_an_op_that_arrives_alone_is_declared(ops_module):
    cloudpickle = pytest.importorskip("cloudpickle")
    del cloudpickle
    folder, _ = ops_module
    run_file(
        folder,
        OPS
        + """
import cloudpickle
if __name__ == "__main__":
    open("op.pickle", "wb").write(cloudpickle.dumps(scale))
""",
    )
    run_plain_script(
        f"""
import pickle, numpy as np, pyops
op = pickle.load(open({str(folder / "op.pickle")!r}, "rb"))
print(op, op(np.ones(1, np.float32)))
print([item.qualified_name for item in (op.signature for op in pyops.list_ops()) if item.domain == "workers"])
""",
        """
        <Op workers::Scale(x: float32, *, by: float = 2.0) -> float32> [2.]
        ['workers::Scale']
        """,
    )


@pytest.mark.parametrize(
    ("before", "message"),
    [
        exhaustive("", "True"),
        (
            'text = text.replace("np.float32(by)", "np.float32(by + 1)")',
            "ChangedOpWarning: workers::Scale has different code",
        ),
        ('text = text.replace("by: float = 2.0", "by: float = 3.0")', "PickleError: workers::Scale was pickled as"),
        exhaustive(
            'text = text.replace("workers::Scale", "workers::Other")', "PickleError: workers::Scale is not declared"
        ),
        exhaustive(
            'text = ""\nos.remove(path)', "PickleError: workers::Scale is declared by the module 'worker_ops', which"
        ),
    ],
)
def test_an_op_whose_module_differs_is_found_out(before, message, ops_module):
    folder, path = ops_module
    run_file(
        folder,
        """
import pickle, pyops
from worker_ops import MODEL
open("session.pickle", "wb").write(pickle.dumps(pyops.InferenceSession(MODEL)))
""",
    )
    printed = run_plain_script(
        f"""{path}
import os, pickle, warnings
path = {str(folder / "worker_ops.py")!r}
text = open(path).read()
{before}
if text:
    open(path, "w").write(text)
warnings.simplefilter("error", UserWarning)
session = pickle.load(open({str(folder / "session.pickle")!r}, "rb"))
from worker_use import np
try:
    found = str(session.run(None, {{"x": np.ones(1, np.float32)}})[0][0] == 2)
except Exception as error:
    found = f"{{type(error).__name__}}: {{error}}"
print(found.startswith({message!r}) or found)
""",
        "True",
    )
    assert "Traceback" not in printed


@pytest.mark.exhaustive
def test_a_compiled_kernel_of_a_script_travels_and_is_compiled_again(ops_module):
    pytest.importorskip("numba")
    pytest.importorskip("cloudpickle")
    joblib = pytest.importorskip("joblib")
    del joblib
    folder, _ = ops_module
    printed = run_file(
        folder,
        OPS.replace('"workers::Scale"', '"workers::Scale", compile=True, fastmath={"reassoc"}')
        + """
from joblib import Parallel, delayed

def total(session):
    y = session.run(None, {"x": np.ones(3, np.float32)})[0]
    (op,) = (op for op in pyops.list_ops() if op.domain == "workers")
    return type(op.kernels["cpu"]).__name__, float(y.sum())

if __name__ == "__main__":
    print(Parallel(2)(delayed(total)(pyops.InferenceSession(MODEL)) for _ in range(1)))
""",
    )
    assert printed == ["[('CompiledKernel', 6.0)]"]
