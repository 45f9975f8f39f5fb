"""What goes wrong in compiled kernels: exceptions, indices out of bounds, and what numba cannot compile."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import onnxruntime
import pytest
from numba import typed, types  # noqa: F401  # for the kernels of WRITES
from numba.experimental import jitclass
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import CompileError, CompileWarning, DeclarationError, InputError
from tests.helpers.models import chain
from tests.helpers.scripts import run_script
from tests.helpers.systems import HAS_FORK, needs_fork
from tests.helpers.tiers import exhaustive
from tests.project.test_imports import BLOCK
from tests.pyops._machine.compiled.checking_kernel import TooLargeError

F32 = NDArray[np.float32]
X = np.arange(3, dtype=np.float32)


def error_of(session: Any, x: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        session.run(None, {"x": x})
    return caught.value


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
def test_an_exception_is_raised_as_itself(first: bool) -> None:
    session = pyops.InferenceSession(chain("compiled::Check"))
    if not first:
        session.run(None, {"x": X})
    error = error_of(session, X + 99)
    assert type(error) is TooLargeError
    assert error.args == ("too large", 2)
    assert pyops.last_exception() is error
    assert "compiled::Check), inputs x: float32[3]" in error.__notes__[0]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    assert (frame.name, frame.line) == ("check", 'raise TooLargeError("too large", i)')
    assert str(error_of(session, X - 1)) == "negative"
    assert session.run(None, {"x": X})[0].tolist() == [1, 2, 3]


def test_an_exception_in_a_session_that_is_not_ours_is_the_text_of_its_error() -> None:
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(chain("compiled::Check").SerializeToString(), options)
    session.run(None, {"x": X})
    assert "AssertionError: negative" in str(error_of(session, X - 1))
    assert isinstance(pyops.last_exception(), AssertionError)


def test_the_first_exception_of_several_parts_is_raised() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 4
    session = pyops.InferenceSession(chain("compiled::Check"), options)
    x = np.zeros(10**6, np.float32)
    session.run(None, {"x": x})
    for _ in range(20):
        assert str(error_of(session, x - 1)) == "negative"
    assert session.run(None, {"x": x})[0].tolist() == [1] * 10**6


def test_raising_leaves_no_references_behind() -> None:
    session = pyops.InferenceSession(chain("compiled::Check"))
    session.run(None, {"x": X})
    for _ in range(3):
        error_of(session, X - 1)
    gc.collect()
    before = sys.getrefcount(AssertionError)
    for _ in range(50):
        error_of(session, X - 1)
    gc.collect()
    assert abs(sys.getrefcount(AssertionError) - before) < 10


def test_debug_checks_the_bounds_of_indices() -> None:
    @onnx_op("compiled::Beyond", compile="debug")
    def beyond(x: F32) -> F32:
        y = x.copy()
        y[0] = x[x.size + int(x[0])]
        return y

    session = pyops.InferenceSession(chain("compiled::Beyond"))
    assert session.run(None, {"x": X - 3})[0].tolist() == [-3, -2, -1]
    error = error_of(session, X)
    assert type(error) is IndexError
    assert "out of bounds" in str(error)


@pytest.mark.parametrize(
    "code",
    [
        "y.flat[4] = 9",
        "y.T.flat[-5] += 9",
        "y[0] = x.flat[4]",
        "y[0] = x.flat[np.uint64(2**64 - 1)]",
        "y[0] = np.delete(x, np.array([4]))[0]",
        *map(
            exhaustive,
            [
                "y[0] = np.take_along_axis(x, np.array([[2]]), 0)[0, 0]",
                "y[0] = x.T.flat[4]",
                "y[0] = np.take(x, 4)",
                "y[0] = np.take(x, np.array([4]))[0]",
                "y[0] = x[np.array([2])][0]",
                "y[0] = x[0, np.array([-3])]",
                "y[0] = x[:, 2]",
                "y[0] = x[1:][1]",
                "y.ravel()[np.array([4])] = 9",
                "y[2] += 9",
                "y[np.uint8(200)] = 9",
            ],
        ),
    ],
)
def test_debug_checks_the_bounds_of_indices_of_all_kinds(code: str) -> None:
    code = f"y = x.copy(); {code}; return y"
    x = np.ones((2, 2), np.float32)
    kernel_that_does(code).compile(x)  # numba keeps what it compiles without checks
    with pytest.raises(IndexError):
        kernel_that_does(code, compile="debug")(x)


@pytest.mark.parametrize("compile", [True, "debug"])
def test_a_negative_index_of_flat_counts_from_the_end(compile: Any) -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    code = "y = x.copy(); y.T.flat[-1] = x.flat[-2] + x.T.flat[-3] + x.flat[np.int8(-1)]; return y"
    assert kernel_that_does(code, compile=compile)(x).tolist() == [[1, 2], [3, 10]]


def test_an_input_is_read_only() -> None:
    @onnx_op("compiled::Write", compile=True)
    def write(x: F32) -> F32:
        x[0] = 1
        return x

    with pytest.raises(CompileError, match=r"(?s)compiled::Write cannot be compiled for float32\[:\].*readonly array"):
        write.compile(X)


MUTABLE = types.float32[:, ::1]


@jitclass([("a", MUTABLE)])
class Box:
    def __init__(self, a: Any) -> None:
        self.a = a


def helper(x: Any) -> None:
    x.flat[0] = 9


WRITES = [
    "np.ascontiguousarray(x)[0, 0] = 9",
    "np.ascontiguousarray(x[0])[0] = 9",
    "np.asfortranarray(x[0])[0] = 9",
    "np.asfortranarray(x.T)[0] = 9",
    "x.flat[0] = 9",
    "x.T.flat[0] = 9",
    "np.fill_diagonal(x, 9)",
    "np.dot(x, x, x)",
    "np.nan_to_num(x, copy=False)",
    "np.dot(x, x[0], out=x[1])",
    "for v in np.nditer(x): v[()] = 9",
    "for v in np.nditer((x, x + 1)): v[0][()] = 9",
    "helper(x)",
    "y = typed.List.empty_list(MUTABLE); y.append(x); y[0][0] = 9",
    "y = typed.List.empty_list(MUTABLE); y.extend([x]); y[0][0] = 9",
    "y = {1: x + 1}; y[2] = x; y[2][0] = 9",
    "Box(x).a[0] = 9",
    "y = Box(x + 1); y.a = x; y.a[0] = 9",
    *map(
        exhaustive,
        [
            "np.asarray(x)[0] = 9",
            "np.asarray_chkfinite(x)[0] = 9",
            "x.view(np.int32)[0] = 9",
            "x.ravel()[0] = 9",
            "x.reshape(4)[0] = 9",
            "x.T[0] = 9",
            "np.transpose(x)[0] = 9",
            "np.atleast_3d(x)[0] = 9",
            "x.sort()",
            "x.fill(9)",
            "np.add(x, x, x)",
            "np.round(x, 0, x)",
            "np.clip(x, 2, 3, x)",
            "np.outer(x[0], x[1], x)",
            "np.random.shuffle(x)",
            "x += 9",
            "np.expand_dims(x, 0)[0] = 9",
            "np.broadcast_to(x, (2, 2))[0] = 9",
            "np.split(x, 2)[0][0] = 9",
            "np.frombuffer(x, np.float32)[0] = 9",
            "np.real(x)[0] = 9",
            "for r in x: r[0] = 9",
            "y = [x + 1, x]; y[1][0] = 9",
            "y = x if x[0, 0] > 9 else x + 1; y[0] = 9",
        ],
    ),
]


def kernel_that_does(code: str, compile: Any = True) -> Any:
    names: dict[str, Any] = globals() | {"__name__": "writes"}
    exec(f"def k(x: F32) -> F32:\n    {code}\n    return x + np.float32(0)", names)
    return onnx_op("compiled::Writes", compile=compile)(names["k"])


@pytest.mark.parametrize("code", WRITES)
def test_no_way_of_writing_to_an_input_compiles(code: str) -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    with pytest.raises(CompileError, match=r"(?s)read-?only"):
        kernel_that_does(code)(x)
    assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "code",
    [
        "y = np.ascontiguousarray(x[:, 0]); y[0] = 9; y = np.ascontiguousarray(x[:, ::1]); y[0] = 9",
        "y = np.asfortranarray(x); y[0] = 9; np.ascontiguousarray(x.T)[0] = 9",
        "y = x.copy(); y.flat[0] = 9; np.dot(x, x, y); np.ascontiguousarray(y)[0] = 9",
        "y = np.nan_to_num(x); y[0] = 9; np.nan_to_num(x.T, True, 1)[0] = 9; np.nan_to_num(y, False)",
        "y = x + 1; Box(y).a[0] = 9\n    for v in np.nditer(y): v[()] = 9",
    ],
)
def test_a_copy_of_an_input_may_be_written_to(code: str) -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert kernel_that_does(code)(x).tolist() == x.tolist() == [[1, 2], [3, 4]]


@onnx_op("compiled::Opaque", compile=True)
def opaque(x: F32) -> F32:
    return np.array([float(f"{value:.1f}") for value in x], np.float32)


def test_what_numba_cannot_compile_is_said_with_its_reason_and_line() -> None:
    line = inspect.getsourcelines(inspect.unwrap(opaque))[1]
    session = pyops.InferenceSession(chain("compiled::Opaque"))
    for call in (lambda: opaque.compile(X), lambda: opaque(X), lambda: session.run(None, {"x": X})):
        with pytest.raises(CompileError) as caught:
            call()
        text = str(caught.value)
        assert f"compiled::Opaque cannot be compiled for float32[:] ({__file__}:{line})" in text
        assert f", line {line + 2}:" in text or f"({line + 2})" in text
        assert 'compile="try"' in text


def test_what_a_call_lacked_may_be_defined_after_it() -> None:
    @onnx_op("compiled::Early", compile=True)
    def early(x: F32) -> F32:
        return helper(x)

    with pytest.raises(CompileError, match="Untyped global name 'helper'"):
        early(X)

    def helper(x: Any) -> Any:
        return x + x

    assert early(X).tolist() == (2 * X).tolist()


def test_try_runs_the_plain_kernel_and_says_why_once() -> None:
    @onnx_op("compiled::Tried", compile="try")
    def tried(x: F32) -> F32:
        return np.array([float(f"{value:.1f}") for value in x], np.float32)

    session = pyops.InferenceSession(chain("compiled::Tried"))
    with pytest.warns(CompileWarning, match=r"(?s)compiled::Tried cannot be compiled for float32\[:\].*numba says"):
        results = [session.run(None, {"x": X})[0] for _ in range(3)]
    assert [result.tolist() for result in results] == [X.tolist()] * 3
    assert tried(X).tolist() == X.tolist()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("x > 0", r"returns array\(bool, 1d, C\), but float32 is declared; return result.astype\(np.float32\)"),
        ("x.size", r"returns int64, but float32 is declared; return np.float32\(result\)"),
        ("None", "returns none, but float32 is declared; return an array"),
        ("(x, x)", "but float32 is declared; return an array"),
    ],
)
def test_a_result_of_another_type_is_a_compile_error(result: str, message: str) -> None:
    names = {"np": np, "F32": F32}
    exec(f"def wrong(x: F32, *, out: F32 | None = None) -> F32:\n    return {result}", names)
    with pytest.raises(CompileError, match=message):
        onnx_op("compiled::Wrong", compile=True)(names["wrong"]).compile(X)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("[x, x]", r"returns list\(.*but a tuple is declared; return one of a fixed length"),
        ("x", r"returns .*array\(float32, 1d, C\).*, but a tuple is declared; return one of a fixed length"),
        ("(x, x, x)", "the kernel returns 3 arrays, but 2 are declared"),
        ("(x,)", "the kernel returns 1 arrays, but 2 are declared"),
        ("(x, x > 0)", r"returns array\(bool, 1d, C\), but float32 is declared"),
    ],
)
def test_a_tuple_of_another_form_is_a_compile_error(result: str, message: str) -> None:
    names = {"np": np, "F32": F32}
    exec(f"def wrong(x: F32) -> tuple[F32, F32]:\n    return {result}", names)
    with pytest.raises(CompileError, match=message):
        onnx_op("compiled::WrongTuple", compile=True)(names["wrong"]).compile(X)


def factorial(n: Any) -> Any:
    return n * factorial(n - 1) if n > 1 else 1


def is_even(n: Any) -> Any:
    return is_odd(n - 1) if n > 0 else True


def is_odd(n: Any) -> Any:
    return is_even(n - 1) if n > 0 else False


def with_closure() -> Any:
    def digits(n: Any) -> Any:
        return 1 + digits(n // 10) if n > 9 else 1

    return lambda n: digits(n)


compiled_factorial = numba.njit(factorial)
MODULE = ModuleType("helpers")
MODULE.__dict__["factorial"] = numba.njit(lambda n: MODULE.factorial(n - 1) if n > 1 else 1)


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("factorial", "factorial"),
        ("is_even", "is_even"),
        ("digits", "with_closure.<locals>.digits"),
        ("compiled", "factorial"),
        ("module.factorial", "<lambda>"),
        ("kernel", "kernel"),
    ],
)
def test_a_function_that_calls_itself_does_not_compile(called: str, name: str) -> None:
    names: dict[str, Any] = {"np": np, "factorial": factorial, "is_even": is_even, "digits": with_closure()}
    names |= {"compiled": compiled_factorial, "module": MODULE, "__name__": "recursion"}
    exec(f"def kernel(x):\n    return np.float32({called}(x.size)) + x", names)
    kernel = names["kernel"]
    kernel.__annotations__ = {"x": F32, "return": F32}
    with pytest.raises(CompileError) as caught:
        onnx_op("compiled::Recursion", compile=True)(kernel)(X)
    assert "compiled::Recursion cannot be compiled for float32[:]" in str(caught.value)
    assert f"{name} (" in str(caught.value)
    assert "calls itself, directly or through others; machine code has no recursion limit" in str(caught.value)


def test_try_runs_the_plain_kernel_of_a_function_that_calls_itself() -> None:
    @onnx_op("compiled::TriedRecursion", compile="try")
    def tried(x: F32) -> F32:
        return x * np.float32(factorial(x.size))

    session = pyops.InferenceSession(chain("compiled::TriedRecursion"))
    with pytest.warns(CompileWarning, match="the plain kernel runs instead. factorial .* calls itself"):
        assert session.run(None, {"x": X})[0].tolist() == (6 * X).tolist()


def test_a_function_may_be_called_in_several_places() -> None:
    def add(x: Any) -> Any:
        return x + np.float32(1)

    def add_twice(x: Any) -> Any:
        return add(add(x))

    @onnx_op("compiled::Diamond", compile=True)
    def diamond(x: F32) -> F32:
        return add(add_twice(x)) + add_twice(x)

    assert diamond(X).tolist() == (2 * X + 5).tolist()


def test_a_variadic_output_is_a_tuple() -> None:
    @onnx_op("compiled::NoTuple", compile=True)
    def no_tuple(x: F32) -> tuple[F32, ...]:
        return x  # type: ignore[return-value] # which is the mistake

    with pytest.raises(CompileError, match="but a tuple is declared"):
        no_tuple(X)


def test_wider_floats_are_narrowed() -> None:
    @onnx_op("compiled::Narrowed", compile=True)
    def narrowed(x: F32) -> F32:
        return x * np.float64(2)

    assert narrowed(X).dtype == np.float32
    assert narrowed(X).tolist() == (2 * X).tolist()


def test_hints_may_be_local_names() -> None:
    Local = F32

    @onnx_op("compiled::Local", compile=True)
    def local(x: Local) -> Local:
        return x + x

    assert local(X).tolist() == (2 * X).tolist()


def test_try_goes_on_where_nothing_can_be_compiled_ahead() -> None:
    @onnx_op("compiled::TriedAhead", compile="try")
    def tried_ahead(x: F32) -> F32:
        return np.array([float(f"{value:.1f}") for value in x], np.float32)

    with pytest.warns(CompileWarning, match="cannot be compiled"):
        tried_ahead.compile(X)


def test_declarations_that_cannot_be_compiled() -> None:
    @onnx_op("compiled::Plain")
    def plain(x: F32) -> F32:
        return -x

    class Negative:
        def __call__(self, x: F32) -> F32:
            return -x

    with pytest.raises(DeclarationError, match=r"needs a function written in Python, not <.*Negative object"):
        plain.register_kernel("cpu", compile=True)(Negative())
    with pytest.raises(DeclarationError, match="needs a function written in Python, not CPUDispatcher"):
        plain.register_kernel("cpu", compile=True)(numba.njit(lambda x: -x))

    def doubled(function: Any) -> Any:
        return functools.wraps(function)(lambda x: 2 * function(x))

    @doubled
    def decorated(x: F32) -> F32:
        return x

    for mode in (True, "try"):
        with pytest.raises(
            DeclarationError, match=r"needs a function without decorators.*remove them from .*decorated"
        ):
            onnx_op("compiled::Decorated", compile=mode)(decorated)

    def several(x: F32, *others: NDArray[np.floating[Any]]) -> F32:
        return x

    with pytest.raises(
        DeclarationError, match="needs one type for all tensors of a variadic input or output; use a TypeVar"
    ):
        onnx_op("compiled::Several", compile=True)(several)

    def alike(x: F32, *others: F32) -> F32:
        return x

    with pytest.raises(DeclarationError, match="parallel requires a fixed number of inputs; leave it out"):
        onnx_op("compiled::Alike", compile=True, parallel="(),()->()")(alike)


def test_compile_takes_examples_and_attributes() -> None:
    @onnx_op("compiled::Matrix", compile=True)
    def matrix(x: F32, *, k: int) -> F32:
        return x[:, :k]

    with pytest.raises(InputError, match="'k' is missing"):
        matrix.compile(X)
    matrix.compile(np.ones((2, 2), np.float32), k=1)
    with pytest.raises(CompileError, match=r"float32\[:\]"):
        matrix.compile(X, k=1)


def test_an_op_without_a_compiled_kernel_says_how_to_have_one() -> None:
    @onnx_op("compiled::Plain")
    def plain(x: F32) -> F32:
        return x

    with pytest.raises(DeclarationError, match=r'@onnx_op\("compiled::Plain", compile=True\)'):
        plain.compile(X)


def test_a_parallel_kernel_whose_parts_have_another_shape_is_an_error() -> None:
    @onnx_op("compiled::Uneven", compile=True, parallel="()->()")
    def uneven(x: F32) -> F32:
        return x if x.size > 500_000 else x[:-1]

    uneven.register_shape_inference(lambda x: x)
    session = pyops.InferenceSession(chain("compiled::Uneven"))
    x = np.zeros(10**6, np.float32)
    session.run(None, {"x": x})
    assert "a shape other than `parallel` declares" in str(error_of(session, x))


def test_where_numba_is_not_installed() -> None:
    run_script(
        (
            f"BLOCKED = {{'numba', 'llvmlite'}}\n{BLOCK}",
            """
            from numpy.typing import NDArray
            import warnings, importlib.util
            find_spec = importlib.util.find_spec
            importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find_spec(name, *rest)
            def declare(**options):
                @onnx_op("compiled::Missing", **options)
                def missing(x: NDArray[np.float32]) -> NDArray[np.float32]:
                    return x + np.float32(1)
                return missing
            attempt(lambda: declare(compile=True))
            with warnings.catch_warnings(record=True) as caught:
                declare(compile="try")
            print([str(warning.message) for warning in caught])
            declare().register_kernel("cpu", compile="try")(lambda x: x)
            session = pyops.InferenceSession(chain("compiled::Missing"))
            attempt(lambda: session.run(None, {"x": np.zeros(1, np.float32)}))
            """,
        ),
        """
        MissingDependencyError compiled::Missing: compile=True needs numba; pip install "onnx-pyops[compiled]"
        ['compiled::Missing: compile=\\'try\\' needs numba; pip install "onnx-pyops[compiled]". The plain kernel runs']
        [[1.0]]
        """,
    )


@needs_fork
def test_interrupts_and_forks_leave_everything_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(tmp_path))  # so that there is something to interrupt
    run_script(
        """
        from numba.core import event
        @onnx_op("compiled::Interrupted", compile=True)
        def interrupted(x: F32) -> F32:
            y = x.copy()
            for _ in range(int(x[0])):
                for i in range(x.size):
                    y[i] = np.sqrt(y[i] * y[i] + np.float32(1))
            return y

        class Interrupt(event.Listener):
            armed = True
            def on_start(self, event):
                if self.armed:
                    self.armed = False
                    signal.raise_signal(signal.SIGINT)
            def on_end(self, event): pass
        event.register("numba:compile", Interrupt())

        session = pyops.InferenceSession(chain("compiled::Interrupted"))
        def run(times):
            return [round(float(session.run(None, {"x": np.array([times], np.float32)})[0][0]), 3)]
        attempt(run, 1)
        print(run(1))

        # It waits for the kernel, as it waits for one of ONNX Runtime's own.
        timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        try:
            for _ in range(1000):
                run(1e6)
            print("never")
        except KeyboardInterrupt:
            print("interrupted")
        timer.join()
        print(run(1))
        child = os.fork()
        if child == 0:
            ok = run(1) == [1.414] and interrupted(np.ones(1, np.float32))[0] > 1
            os._exit(0 if ok else 1)
        print(os.waitpid(child, 0)[1])
        del interrupted
        gc.collect()
        print(run(1))
        """,
        """
        KeyboardInterrupt
        [1.414]
        interrupted
        [1.414]
        0
        [1.414]
        """,
    )


@onnx_op("compiled::Described", compile=True)
def described(x: F32, *, scale: float = 0.25, lowest: int = -(2**63)) -> F32:
    if x.size > 3:
        numbers = f"{x.shape} {scale} {np.max(x)} {x.size / 3}"
        raise ValueError(f"{numbers} {x.dtype} {lowest} {None} {x.ndim > 1} {x[0, 0]}")
    return x


def test_messages_have_the_texts_of_values() -> None:
    x = np.array([[0.5, 1e-7, 3], [4, -1, 1e20]], np.float32)
    session = pyops.InferenceSession(chain("compiled::Described"))
    texts = []
    for run in (described.kernels["cpu"].plain, described, lambda x: session.run(None, {"x": x})):
        with pytest.raises(ValueError, match="float32 -9223372036854775808 None True") as caught:
            run(x)
        texts.append(str(caught.value))
    assert texts[1:] == [texts[0]] * 2


def test_the_text_of_any_number() -> None:
    @numba.njit
    def text(value: Any) -> str:
        return f"{value}"

    text(0)
    source = np.random.default_rng()
    floats = [0.0, -0.0, 1e15, 1e16, 1e-4, 1e-5, 5e-324, np.finfo(float).max, np.nan, np.inf, -np.inf, 2.0**53 + 1]
    floats += source.integers(0, 2**64, 1000, np.uint64).view(np.float64).tolist()
    floats += (source.uniform(-1, 1, 1000) * 10.0 ** source.integers(-8, 18, 1000)).tolist()
    texts, expected = [text(value) for value in floats], [f"{value}" for value in floats]
    if HAS_FORK:
        assert texts == expected
    else:  # Windows rounds a tie up in the 17th digit, which is another text of the same number
        assert [(len(item), f"{float(item)}") for item in texts] == [(len(item), item) for item in expected]
    integers = [sign * (10**k + offset) for k in range(19) for offset in (-1, 0, 1) for sign in (1, -1)] + [-(2**63)]
    assert [text(value) for value in integers] == [f"{value}" for value in integers]
    tuples = [(), (1,), (0.5, -2), (True, None, (3,))]
    assert [text(value) for value in tuples] == [f"{value}" for value in tuples]


def test_what_has_no_text_in_machine_code_is_named() -> None:
    @onnx_op("compiled::ArrayText", compile=True)
    def array_text(x: F32) -> F32:
        if x.size > 3:
            raise ValueError(f"too large: {x}")
        return x

    with pytest.raises(CompileError, match="machine code cannot format readonly array"):
        array_text(X)
