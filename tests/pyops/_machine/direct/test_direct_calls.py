"""Plain kernels that machine code calls: it does what Python does, and leaves what it does not do to Python."""

from __future__ import annotations

import ast
import contextlib
import gc
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._machine.direct import llvm_code, loaded_code, numpy_arrays
from pyops.errors import EngineError
from pyops.shapes import new_dim
from pyops.testing import Sample
from tests.helpers.engines import make_session
from tests.helpers.models import assert_same, make_model
from tests.helpers.op_db import SAMPLES
from tests.helpers.scripts import run_new_script, run_script
from tests.helpers.tiers import exhaustive

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
X = np.arange(6, dtype=np.float32)
DIRECT, BY_PYTHON = "pyops._core.runtime.inference_session", "pyops._core.runtime.native.kernel_node"
ORDINARY = "pyops._core.runtime.native.kernel_node"

pytestmark = pytest.mark.skipif(bool(loaded_code.problem()), reason=f"no direct calls: {loaded_code.problem()}")

callers: list[str] = []


def note_caller() -> None:
    """Note which module called the kernel that calls this."""
    callers.append(sys._getframe(2).f_globals["__name__"])


def session_for(body: str, outputs: str = "float[m] y", inputs: str = "float[n] x") -> pyops.InferenceSession:
    text = f'<ir_version: 8, opset_import: ["" : 17, "direct" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    callers.clear()
    return pyops.InferenceSession(onnx.parser.parse_model(text))


def run(session: pyops.InferenceSession, **feed: Any) -> list[Any]:
    """Run twice: with a shape function, the shapes are known from the second call on."""
    first, second = (session.run(None, feed or {"x": X}) for _ in range(2))
    assert_same(first, second)
    return second


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_without_direct_calls_sessions_give_the_same(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOPS_DIRECT_CALLS", "0")
    session = make_session(sample.model(), "native")
    for _ in range(2):
        assert_same(session.run(None, sample.feed), sample.expected())


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (3, 4), (1,) * 32, (2,) * 8])
def test_arrays_are_those_that_python_passes(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @onnx_op("direct::Look")
    def look(x: F32, *, out: F32 | None = None) -> F32:
        note_caller()
        for array in (x, out):
            assert array is not None
            seen.append((type(array), array.dtype, array.shape, array.strides, array.flags.num, type(array.base)))
        return np.negative(x, out=out)

    look.register_shape_inference(lambda x: x)
    x = np.ones(shape, np.float32)
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    session = session_for("y = direct.Look(x)", f"float[{dims}] y", f"float[{dims}] x")
    assert_same(run(session, x=x), [-x])
    assert callers == [BY_PYTHON, DIRECT]
    python, direct = seen[:2], seen[2:]
    if x.size:
        assert python == direct
    else:  # an array without elements may have any memory
        assert [item[:3] for item in python] == [item[:3] for item in direct]


def test_attributes_of_every_kind_and_state() -> None:
    seen = []

    @onnx_op("direct::All")
    def everything(
        x: F32,
        *,
        a: int,
        b: float,
        c: str,
        d: bool,
        e: list[int],
        f: list[float],
        g: list[str],
        h: tuple[int, ...],
        i: np.ndarray,
        j: int | None = None,
        state: Any = None,
    ) -> F32:
        note_caller()
        seen.append((a, b, c, d, e[:], f[:], g[:], h, i.tolist(), j, state))
        for values in (e, f, g):
            values.clear()
        return x + 1

    everything.register_setup(lambda **attributes: sorted(attributes))
    given = 'a = 1, b = 0.5, c = "text", d = 1, e = [1, 2], f = [0.5], g = ["x", "y"], h = [3], i = float[2] {1, 2}'
    assert_same(run(session_for(f"y = direct.All<{given}>(x)")), [X + 1])
    expected = (1, 0.5, "text", True, [1, 2], [0.5], ["x", "y"], (3,), [1, 2], None, sorted("abcdefghij"))
    assert seen == [expected] * 2
    assert callers == [DIRECT] * 2


def test_optional_and_variadic_inputs() -> None:
    @onnx_op("direct::Inputs")
    def inputs(x: F32, y: I64 | None = None, *rest: F32) -> F32:
        note_caller()
        return x + sum(rest, np.float32(0)) + np.float32(0 if y is None else y.sum())

    assert_same(run(session_for("y = direct.Inputs(x)")), [X])
    assert callers == [DIRECT] * 2
    session = session_for("y = direct.Inputs(x, z, x, x)", inputs="float[n] x, int64[m] z")
    assert_same(run(session, x=X, z=np.arange(3)), [3 * X + 3])
    assert callers == [DIRECT] * 2
    node = onnx.helper.make_node("Inputs", ["x", "", "x"], ["y"], domain="direct")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "direct": 1]> g (float[n] x) => (float[n] y) { }'
    )
    model.graph.node.append(node)
    callers.clear()
    assert_same(run(pyops.InferenceSession(model)), [2 * X])
    assert callers == [DIRECT] * 2


def test_several_outputs_of_which_a_model_leaves_out_some() -> None:
    @onnx_op("direct::Three")
    def three(x: F32) -> tuple[F32, I64, F32]:
        note_caller()
        return x + 1, np.arange(2), x.reshape(2, -1)

    assert_same(run(session_for("a, b, c = direct.Three(x)", "float[n] a, int64[m] b, float[k, l] c")), list(three(X)))
    assert_same(run(session_for("a, b = direct.Three(x)  y = Neg(a)")), [-X - 1])
    node = onnx.helper.make_node("Three", ["x"], ["", "b"], domain="direct")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "direct": 1]> g (float[n] x) => (int64[m] b) { }'
    )
    model.graph.node.append(node)
    callers.clear()
    assert_same(run(pyops.InferenceSession(model)), [np.arange(2)])
    assert callers == [DIRECT] * 2


@pytest.mark.parametrize("known", [True, False])
def test_shapes_are_checked(known: bool) -> None:
    returned = {6: 6, 5: 4}

    @onnx_op("direct::Checked")
    def checked(x: F32) -> F32:
        note_caller()
        return np.ones((returned[x.size], 2), np.float32)

    checked.register_shape_inference(lambda x: x.like(shape=(x.shape[0], 2 if known else new_dim())))
    session = session_for("y = direct.Checked(x)", "float[m, l] y")
    assert_same(run(session), [np.ones((6, 2), np.float32)])
    for _ in range(2):
        with pytest.raises(pyops.errors.OutputError, match=r"returned shapes \[4, 2\] and the shape function"):
            session.run(None, {"x": X[:5]})
    assert callers == [BY_PYTHON, DIRECT] * 2


def test_shapes_by_the_hundred() -> None:
    @onnx_op("direct::Grow")
    def grow(*xs: F32, out: F32 | None = None) -> F32:
        note_caller()
        return np.add(xs[0][:, None], xs[1], out=out)

    grow.register_shape_inference(lambda *xs: xs[0].like(shape=xs[0].shape + xs[1].shape))
    session = session_for("y = direct.Grow(x, z)", "float[m, l] y", "float[n] x, float[k] z")
    sizes = [(n, k) for n in range(1, 25) for k in range(1, 25)]
    for _ in range(2):
        for n, k in sizes:
            (y,) = session.run(None, {"x": X[:1].repeat(n), "z": X[1:2].repeat(k)})
            assert y.shape == (n, k)
            assert (y == 1).all()
    callers.clear()
    for _ in range(2):
        session.run(None, {"x": X, "z": X})
    assert callers[-1] == DIRECT


def test_buffers_of_several_outputs_and_of_one_that_is_left_out() -> None:
    @onnx_op("direct::Pair")
    def pair(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        note_caller()
        less, more = out or (np.empty_like(x), np.empty_like(x))
        np.subtract(x, 1, out=less)
        np.add(x, 1, out=more)
        return less, more

    pair.register_shape_inference(lambda x: (x, x))
    assert_same(run(session_for("y, z = direct.Pair(x)", "float[n] y, float[n] z")), [X - 1, X + 1])
    assert callers == [BY_PYTHON, DIRECT]
    assert_same(run(session_for("y = direct.Pair(x)")), [X - 1])
    assert callers == [BY_PYTHON, DIRECT]


@pytest.mark.parametrize("other", ["other", "view", "swapped"])
def test_a_result_that_is_not_out_is_copied(other: str) -> None:
    @onnx_op("direct::Some")
    def some(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        note_caller()
        assert out is not None
        out[0][...], out[1][...] = x + 1, x + 2
        return {"other": (out[0], x + 2), "view": (out[0][:], out[1]), "swapped": out[::-1]}[other]

    some.register_shape_inference(lambda x: (x, x))
    results = [X + 1, X + 2]
    session = session_for("y, z = direct.Some(x)", "float[n] y, float[n] z")
    assert_same(run(session), results[::-1] if other == "swapped" else results)
    assert callers == [BY_PYTHON, DIRECT]


@pytest.mark.parametrize("takes_out", [False, True])
def test_in_place(takes_out: bool) -> None:
    shared = []

    if takes_out:

        @onnx_op("direct::Grow", may_inplace={"output": "x"})
        def grow(x: F32, *, out: F32 | None = None) -> F32:
            note_caller()
            shared.append(np.shares_memory(x, out))
            return np.add(x, 1, out=out)

        grow.register_shape_inference(lambda x: x)
    else:

        @onnx_op("direct::Grow", may_inplace={"output": "x"})
        def grow(x: F32) -> F32:
            note_caller()
            return x[::-1][::-1]  # which lies where it is copied to

    session = session_for("a = Neg(x)  b = direct.Grow(a)  y = Neg(b)")
    assert_same(run(session), [-(1 - X) if takes_out else X])
    assert callers == ([BY_PYTHON, DIRECT] if takes_out else [DIRECT] * 2)
    assert shared == [True] * (2 * takes_out)


def test_in_place_results_in_an_input_s_memory_do_not_change_each_other() -> None:
    @onnx_op("direct::Both", may_inplace={"output_0": "x"})
    def both(x: F32) -> tuple[F32, F32]:
        note_caller()
        return x + np.float32(1), x

    session = session_for("a = Neg(x)  b, c = direct.Both(a)  y = Sub(b, c)")
    assert_same(run(session), [np.ones(6, np.float32)])
    assert callers == [DIRECT] * 2


def test_a_changed_kernel_shape_function_and_profile_are_seen_at_once() -> None:
    def declare(add: int, size: int) -> None:
        @onnx_op("direct::Change")
        def change(x: F32, *, out: F32 | None = None) -> F32:
            note_caller()
            return np.add(x[:size], np.float32(add), out=out)

        change.register_shape_inference(lambda x: x.like(shape=(size,)))

    declare(1, 6)
    session = session_for("y = direct.Change(x)")
    for add, size in ((1, 6), (2, 6), (3, 5), (4, 4)):
        declare(add, size)
        assert_same(run(session), [X[:size] + np.float32(add)])
    with pyops.profile(session) as profile:
        for calls in (1, 2, 3):
            session.run(None, {"x": X})
            assert profile.nodes[0].calls == calls
    callers.clear()
    run(session)
    assert profile.nodes[0].calls == 3
    assert callers[-1] == DIRECT


def test_a_kernel_may_replace_itself_and_let_go_of_its_code() -> None:
    def declare(add: int) -> None:
        @onnx_op("direct::Again")
        def again(x: F32) -> F32:
            if add < 5:
                declare(add + 1)
                session.run(None, {"x": x})
                gc.collect()
            return x + np.float32(add)

    declare(0)
    session = session_for("y = direct.Again(x)")
    assert session.run(None, {"x": X})[0].tolist() == X.tolist()
    assert session.run(None, {"x": X})[0].tolist() == (X + 5).tolist()


def test_what_calls_a_kernel_may_be_any_callable() -> None:
    @onnx_op("direct::Absolute")
    def absolute(x: F32) -> F32:
        return x

    absolute.kernels["cpu"] = np.abs
    absolute._revision.value += 1
    assert_same(run(session_for("y = direct.Absolute(x)"), x=-X), [X])


# What a kernel may do besides returning a new contiguous array.
KEPT: list[Any] = []


class Odd(np.ndarray):
    pass


class RefusingError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


def raising(error: type[BaseException]) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        part = x[1:]
        raise error("text", part.size)

    return kernel


def reshaping(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.shape = (2, 3)
    return x


UNUSUAL: dict[str, Callable[[Any], Any]] = {
    **{error.__name__: raising(error) for error in (ValueError, KeyboardInterrupt, SystemExit, RefusingError)},
    **{error.__name__: raising(error) for error in (GeneratorExit, StopIteration, MemoryError, RecursionError)},
    "input": lambda x: x,
    "reversed": lambda x: x[::-1],
    "strided": lambda x: x[::2],
    "transposed": lambda x: x.reshape(2, 3).T,
    "broadcast": lambda x: np.broadcast_to(x[:1], (4, 4)),
    "unaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32),
    "reshaped": reshaping,
    "subclass": lambda x: x.view(Odd),
    "masked": lambda x: np.ma.masked_array(x, x > 2),
    "scalar": lambda x: x.sum(),
    "none": lambda x: None,
    "number": lambda x: 1.5,
    "list": lambda x: [x],
    "tuple": lambda x: (x,),
    "float64": lambda x: x.astype(np.float64),
    "swapped": lambda x: x.astype(">f4"),
    "equal-dtype": lambda x: x.astype(np.dtype("f4", metadata={"a": 1})),
    "strings": lambda x: x.astype(str),
    "empty": lambda x: x[:0],
    "many-axes": lambda x: np.ones((1,) * 60, np.float32),
    "recursing": lambda x: UNUSUAL["recursing"](x),
    "missing": lambda: None,
}


def outcome(kernel: Callable[[Any], Any], form: str) -> Any:
    """What two runs give: arrays, or an exception with its notes; numbers of lines and addresses left out."""
    if form == "returned":

        @onnx_op("direct::Op")
        def op(x: F32) -> F32:
            return kernel(x)
    elif form == "of two":

        @onnx_op("direct::Op")
        def op(x: F32) -> tuple[F32, F32]:
            return x + 1, kernel(x)
    else:

        @onnx_op("direct::Op")
        def op(x: F32, *, out: F32 | None = None) -> F32:
            return kernel(x)

        op.register_shape_inference(lambda x: x)
    names = ["a", "y"] if form == "of two" else ["y"]
    node = onnx.helper.make_node("Op", ["x"], names, domain="direct")
    inputs, outputs = ([(name, np.float32, None) for name in found] for found in (["x"], names))
    session = pyops.InferenceSession(make_model([node], inputs, outputs, {"direct": 1}))
    found: list[Any] = []
    for _ in range(2):
        try:
            y = session.run(None, {"x": X})[-1]
            found.append((y.dtype, y.shape, y.tolist()))
        except BaseException as error:
            notes = getattr(error, "__notes__", [])
            frames = [step.name for step in traceback.extract_tb(error.__traceback__)][-2:]
            found.append((type(error), error.args, notes, frames if type(error) is not RecursionError else []))
    return found


@pytest.mark.parametrize("form", ["returned", exhaustive("of two"), exhaustive("out")])
@pytest.mark.parametrize("kernel", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_unusual_ends_as_in_python(kernel: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = outcome(kernel, form)
    monkeypatch.setenv("PYOPS_DIRECT_CALLS", "0")
    assert str(outcome(kernel, form)) == str(direct)


@pytest.mark.filterwarnings("ignore::pyops.errors.BorrowedArrayWarning")
def test_a_kernel_that_keeps_arrays_gets_copies_until_it_is_replaced() -> None:
    def declare(keeps: bool) -> None:
        @onnx_op("direct::Keep")
        def keep(x: F32) -> F32:
            note_caller()
            if keeps:
                KEPT[:] = [x]
            return x + 1

    declare(True)
    session = session_for("y = direct.Keep(x)")
    run(session)
    declare(False)
    run(session)
    assert callers == [DIRECT, BY_PYTHON, BY_PYTHON, DIRECT]
    assert KEPT.pop().tolist() == X.tolist()


def test_what_is_left_to_python() -> None:
    @onnx_op("direct::Text")
    def text(x: NDArray[np.str_]) -> I64:
        note_caller()
        return np.arange(x.size)

    run(session_for("y = direct.Text(x)", "int64[m] y", "string[n] x"), x=np.array(["a"], object))

    @onnx_op("direct::Long")
    def long(*xs: F32) -> F32:
        note_caller()
        return xs[0] + len(xs)

    (y,) = run(session_for(f"y = direct.Long({', '.join(['x'] * 33)})"))[:1]
    assert y.tolist() == (X + 33).tolist()
    assert callers == [BY_PYTHON] * 2
    run(session_for(f"y = direct.Long({', '.join(['x'] * 32)})"))
    assert callers == [DIRECT] * 2


def test_references_are_as_many_as_before() -> None:
    attribute, state = "a string of its own", object()

    @onnx_op("direct::Count")
    def count(
        x: F32,
        *,
        b: list[int],
        a: str = attribute,
        state: Any = None,
        out: F32 | None = None,
    ) -> F32:
        if x[0] < 0:
            raise ValueError
        return np.add(x, 1, out=out) if x[0] else x + np.float32(1)

    count.register_setup(lambda **_: state)
    count.register_shape_inference(lambda x, *, a, b: x)
    session = session_for("y = direct.Count<b = [1, 2]>(x)")
    counted = [np.dtype(np.float32), np.ndarray, state, count.kernels["cpu"], None]

    def measure(times: int) -> list[int]:
        for _ in range(times):
            for first in (-1, 0, 1):
                with contextlib.suppress(ValueError):
                    session.run(None, {"x": X[:3] + np.float32(first)})
        gc.collect()
        return [sys.getrefcount(item) for item in counted]

    before = measure(100)
    assert all(abs(now - then) < 50 for now, then in zip(measure(300), before, strict=True))


def test_it_says_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = loaded_code._problem.__wrapped__
    assert problem() == ""
    with monkeypatch.context() as patch:
        patch.setenv("PYOPS_DIRECT_CALLS", "0")
        assert loaded_code.problem() == "PYOPS_DIRECT_CALLS is 0"
        run(session_for_path())
        assert callers == [ORDINARY] * 2
        patch.setenv("PYOPS_DIRECT_CALLS", "no")
        with pytest.raises(EngineError, match=r"PYOPS_DIRECT_CALLS is 'no'; set it to 0 .* or to 1"):
            session_for_path()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 99))
        assert re.fullmatch(r"machine code was not tested with cpython .*", problem())
    with monkeypatch.context() as patch:
        patch.setattr(numpy_arrays, "ARRAY_DTYPE", numpy_arrays.ARRAY_DIMS)
        assert "has another memory layout of its objects" in problem()
    with monkeypatch.context() as patch:
        patch.setattr(loaded_code, "_code", lambda: {}["LLVM"])
        assert problem() == "KeyError: 'LLVM'"
    with monkeypatch.context() as patch:
        loaded_code._code.cache_clear()
        patch.setitem(sys.modules, "llvmlite", None)
        assert problem() == "llvmlite is not installed: pip install llvmlite"


def session_for_path() -> pyops.InferenceSession:
    @onnx_op("direct::Path")
    def path(x: F32) -> F32:
        note_caller()
        return x + 1

    return session_for("y = direct.Path(x)")


def test_the_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(folder))
    compile_code = loaded_code._code.__wrapped__
    assert compile_code()["compute"]
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    monkeypatch.setattr(llvm_code, "write_code", lambda name, code: written.append(code))
    written: list[bytes] = []
    assert compile_code()["compute"]
    assert not written
    for broken in (b"", whole[:-10], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        file.write_bytes(broken)
        assert compile_code()["compute"]
        assert written.pop() == whole[32:]
    monkeypatch.undo()
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(file / "below-a-file"))
    assert compile_code()["compute"]


def test_a_language_of_few_words() -> None:
    source = "def f(x):\n    for i in x:\n        pass\n"
    with pytest.raises(NotImplementedError, match="for i in x"):
        llvm_code._Translator(ast.parse(source).body[0], {}, {})
    with pytest.raises(NotImplementedError, match="lambda"):
        llvm_code._Translator(ast.parse("def f():\n    return lambda: 2").body[0], {}, {})
    with pytest.raises(NotImplementedError):
        llvm_code.load(0)


DAEMONS = """
    import time

    inside = threading.Event()

    @onnx_op("hazards::Op")
    def op(x: F32) -> F32:
        inside.set()
        while True:
            time.sleep(0.0001)

    session = pyops.InferenceSession(chain("hazards::Op"))
    for _ in range(4):
        threading.Thread(target=session.run, args=(None, {"x": x}), daemon=True).start()
    inside.wait()
    class Slow:
        def __del__(self):
            end = time.time() + 0.05
            while time.time() < end:
                pass
    sys.modules["slow"] = Slow()
    print("the end")
"""


def test_daemon_threads_that_run_kernels_do_not_end_the_process_with_them() -> None:
    run_new_script(DAEMONS, "the end")


@pytest.mark.exhaustive
def test_a_kernel_that_runs_its_own_session_is_a_recursion_error() -> None:
    script = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return session.run(None, {"x": x})[0]

        session = pyops.InferenceSession(chain("hazards::Op"))
        def work():
            try:
                session.run(None, {"x": x})
            except RecursionError:
                print("too deep")

        work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    run_script(script, "too deep\ntoo deep")


@pytest.mark.parametrize("moment", ["first", "before", "after"])
def test_an_interrupt_while_a_call_is_handed_over_loses_neither_arrays_nor_itself(moment: str) -> None:
    script = f"""
        import ctypes
        from pyops._core.runtime.native.kernel_node import KernelNode

        kept = []

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            kept[:] = [x]
            if {moment == "first"}:
                ctypes.pythonapi.PyErr_SetInterrupt()
                return np.zeros(3)  # handed over, with no bytecode before
            return x + np.float32(1)

        def finish(self, *arguments):
            if not calls:
                calls.append(True)
                if {moment == "after"}:
                    original(self, *arguments)
                raise KeyboardInterrupt
            return original(self, *arguments)

        calls, original = [], KernelNode.finish
        if {moment != "first"}:
            KernelNode.finish = finish
        warnings.simplefilter("ignore")
        session = pyops.InferenceSession(chain("Neg", "hazards::Op"))
        attempt(session.run, None, {{"x": x}})
        del session
        gc.collect()
        print(kept[0].shape, kept[0].flags.writeable)
    """
    run_script(script, "KeyboardInterrupt\n(3,) False")
