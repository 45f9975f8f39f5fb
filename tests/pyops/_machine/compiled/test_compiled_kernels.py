"""Kernels that numba compiles: in a session, where ONNX Runtime calls machine code, they give what NumPy gives."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops.errors import CompileWarning, DeclarationError
from pyops.testing import Sample
from tests.helpers.engines import make_session, sample_cases
from tests.helpers.models import assert_same, chain
from tests.helpers.scripts import run_script
from tests.helpers.tiers import exhaustive
from tests.pyops._machine.compiled.compiled_db import F32, NOT_KEPT, PARAMETERS, QUICK, X, add_round


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls in which a session went through the interpreter."""
    from pyops._machine.machine_node import MachineNode

    calls: list[int] = []
    compute = MachineNode.compute
    monkeypatch.setattr(MachineNode, "compute", lambda self, context: (calls.append(1), compute(self, context))[1])
    return calls


S = TypeVar("S", np.float32, ml_dtypes.float8_e5m2)


def plain(op: Op[..., Any]) -> Callable[..., Any]:
    return op.kernels["cpu"].plain


def test_the_log_tells_what_is_compiled_for_sessions_from_what_is_for_plain_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @onnx_op("compiled::Logged", compile=True)
    def logged(x: F32) -> F32:
        return x + np.float32(0.625)

    monkeypatch.setenv("PYOPS_CACHE_DIR", str(tmp_path))  # so that there is something to compile
    with caplog.at_level("INFO", "pyops"):
        logged.compile(X)
    assert caplog.messages == ["compiling compiled::Logged", "compiling compiled::Logged for sessions (entry)"]


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_session_calls_machine_code_that_gives_what_numpy_gives(case: Sample, python_calls: list[int]) -> None:
    values = case.op.signature.convert_attributes(case.attributes)
    expected = plain(case.op)(*case.inputs, **values)
    expected = expected if isinstance(expected, tuple) else (expected,)
    session = pyops.InferenceSession(case.model())
    for _ in range(3):
        for given, wanted in zip(session.run(None, case.feed), expected, strict=True):
            assert given.dtype == wanted.dtype
            np.testing.assert_allclose(given, wanted, rtol=1e-6, atol=1e-6)
    assert len(python_calls) == 1, "the first call compiles; the others do not need the interpreter"


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_plain_call_runs_the_compiled_function(case: Sample) -> None:
    values = case.op.signature.convert_attributes(case.attributes)
    expected = plain(case.op)(*case.inputs, **values)
    given = case.op(*case.inputs, **case.attributes)
    assert isinstance(given, tuple) == isinstance(expected, tuple)
    assert getattr(given, "_fields", None) == getattr(expected, "_fields", None)
    for a, b in zip(
        given if isinstance(given, tuple) else (given,),
        expected if isinstance(given, tuple) else (expected,),
        strict=True,
    ):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("case", "engine"), sample_cases(("extensions", "reference"), QUICK))
def test_other_engines_call_the_compiled_function_too(case: Sample, engine: str) -> None:
    if engine == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    session = make_session(case.model(), engine)
    assert_same(session.run(None, case.feed), case.expected())


@pytest.mark.exhaustive
def test_a_second_process_compiles_nothing_and_gives_the_same_numbers() -> None:
    for case in QUICK:  # from here on they are on disk
        pyops.InferenceSession(case.model()).run(None, case.feed)
    numbers = [f"{case.id} {[array.tolist() for array in case.expected()]}" for case in QUICK]
    run_script(
        """
        from numba.core import event
        class Compiled(event.Listener):
            what = set()
            def on_start(self, event): self.what.add(current)
            def on_end(self, event): pass
        current = None
        event.register("numba:compile", Compiled())
        from tests.pyops._machine.compiled.compiled_db import QUICK
        from tests.helpers.models import assert_same
        for sample in QUICK:
            current = sample.id
            session = pyops.InferenceSession(sample.model())
            for _ in range(2):
                assert_same(session.run(None, sample.feed), sample.expected())
            print(sample.id, [array.tolist() for array in sample.expected()])
        print(sorted(Compiled.what))
        """,
        "\n".join([*numbers, str(sorted(NOT_KEPT))]),
    )


def session_for(body: str, inputs: str = "float[n] x", outputs: str = "float[m] y", **options: Any) -> Any:
    text = f'<ir_version: 8, opset_import: ["" : 18, "compiled" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return pyops.InferenceSession(onnx.parser.parse_model(text), **options)


def test_machine_code_serves_changing_ranks_and_shapes(python_calls: list[int]) -> None:
    session = session_for("y = compiled.Loop(x)", "float x", "float y")
    shapes = [(2,), (3,), (2, 2), (), (0, 3), *[(n,) for n in range(4, 60)]]
    for _ in range(2):
        for shape in shapes:
            x = np.random.default_rng(0).random(shape, np.float32)
            assert np.array_equal(session.run(None, {"x": x})[0], x + x)
    assert len(python_calls) == len(shapes)


@pytest.mark.exhaustive
def test_of_thousands_of_shapes_the_last_ones_are_known(python_calls: list[int]) -> None:
    session = session_for("y = compiled.Loop(x)")
    sizes = range(2060)
    for size in (*sizes, 2059, 0):
        assert session.run(None, {"x": np.ones(size, np.float32)})[0].tolist() == [2] * size
    assert len(python_calls) == len(sizes) + 1


def test_several_dtypes_of_one_op_in_one_model() -> None:
    session = session_for(
        "y = compiled.Loop(x) b = compiled.Loop(a)", "float[n] x, int64[n] a", "float[m] y, int64[m] b"
    )
    y, b = session.run(None, {"x": X[0], "a": np.arange(3)})
    assert (y.tolist(), b.tolist()) == ((X[0] + X[0]).tolist(), [0, 2, 4])


def test_the_memory_of_an_output_that_the_model_does_not_use_is_other_memory(python_calls: list[int]) -> None:
    for body, outputs in (
        ("y, z = compiled.SumAndDifference(x, x)", "float[m] z"),
        ("y = compiled.SumAndDifference(x, x)", "float[m] y"),
    ):
        session = session_for(body, outputs=outputs)
        expected = X[0] - X[0] if outputs.endswith("z") else X[0] + X[0]
        for _ in range(3):
            assert session.run(None, {"x": X[0]})[0].tolist() == expected.tolist()
    assert len(python_calls) == 2


def test_an_op_that_may_work_in_place_gets_the_memory_of_its_input() -> None:
    @onnx_op("compiled::Grow", compile=True, may_inplace={"output": "x"})
    def grow(x: F32, *, out: F32 | None = None) -> F32:
        if out is None:
            return x + np.float32(1)
        shared = x.ctypes.data == out.ctypes.data
        np.add(x, np.float32(10 if shared else 1), out)
        return out

    grow.register_shape_inference(lambda x: x)
    session = session_for("a = Neg(x)  b = compiled.Grow(a)  y = Neg(b)")
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] - 10).tolist()
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] - 10).tolist()


class Two(NamedTuple):
    a: F32
    b: F32


def grown(x: F32) -> Two:
    return Two(x + np.float32(1), x)


def swapped(x: F32, *, out: tuple[F32, F32] | None = None) -> Two:
    if out is None:
        return Two(x + np.float32(1), x.copy())
    a, b = out
    np.add(x, np.float32(0), a)
    np.add(x, np.float32(1), b)
    return Two(b, a)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (swapped, {}),
        (grown, {"may_inplace": {"a": "x"}}),
        exhaustive(grown, {"may_inplace": {"a": "x"}, "parallel": "()->(),()"}),
    ],
)
def test_results_in_the_memory_of_other_outputs(kernel: Any, options: dict[str, Any]) -> None:
    onnx_op("compiled::Two", compile=True, **options)(kernel).register_shape_inference(lambda x: Two(x, x))
    session = session_for("z = Neg(x)  a, b = compiled.Two(z)  y = Sub(a, b)")
    for _ in range(2):  # the first call is made by Python
        assert session.run(None, {"x": X[0]})[0].tolist() == [1] * X[0].size


def test_a_plain_call_takes_arrays_of_any_strides() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[::2, 1::2], x[::-1], np.broadcast_to(x[0], (3, 6))):
        assert np.array_equal(add_round(view), view + view)


def test_a_type_that_numba_lacks_runs_the_plain_kernel_which_is_said_once() -> None:
    @onnx_op("compiled::Texts", compile=True)
    def texts(x: NDArray[np.str_]) -> NDArray[np.str_]:
        return x

    x = np.array(["a", "b"], object)
    session = session_for("y = compiled.Texts(x)", "string[n] x", "string[m] y")
    with pytest.warns(CompileWarning, match="compiled::Texts cannot be compiled for string, which numba"):
        results = [call() for call in [lambda: texts(x), lambda: session.run(None, {"x": x})[0]] * 2]
    assert [result.tolist() for result in results] == [["a", "b"]] * 4
    assert texts(x).tolist() == ["a", "b"], "a second warning would be an error"


def test_a_second_kernel_is_compiled_and_the_declared_one_is_its_plain_kernel() -> None:
    @onnx_op("compiled::Second")
    def declared(x: NDArray[S], *, k: int = 1) -> NDArray[S]:
        return x + x.dtype.type(k)

    @declared.register_kernel("cpu", compile=True)
    def _(x, k=1):
        return x + x.dtype.type(10 * k)

    session = session_for("y = compiled.Second<k=2>(x)")
    assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] + 20).tolist()
    with pytest.warns(CompileWarning, match="float8_e5m2"):
        assert declared(np.ones(1, ml_dtypes.float8_e5m2)).tolist() == [2]


def with_overload(x: Any) -> Any:
    return x + 1


def test_an_overload_that_numba_has_of_a_function_is_used() -> None:
    from numba.extending import overload

    @onnx_op("compiled::Overloaded", compile=True)
    def overloaded(x: F32) -> F32:
        return with_overload(x)

    overload(with_overload)(lambda x: lambda x: x + np.float32(100))  # which compiles by itself too
    assert overloaded(np.ones(2, np.float32)).tolist() == [101, 101]


@pytest.fixture
def redeclared() -> Callable[..., Op[..., Any]]:
    def declare(number: int, **options: Any) -> Op[..., Any]:
        @onnx_op("compiled::Changing", **options)
        def changing(x: F32) -> F32:
            return x + np.float32(number)

        return changing

    return declare


def test_living_sessions_follow_a_changed_body(redeclared: Callable[..., Op[..., Any]]) -> None:
    redeclared(1, compile=True)
    session = session_for("y = compiled.Changing(x)")
    options = onnxruntime.SessionOptions()
    plain_session = session_for("y = compiled.Changing(x)", sess_options=options)

    def results() -> list[float]:
        return [float(s.run(None, {"x": np.zeros(1, np.float32)})[0][0]) for s in (session, session, plain_session)]

    assert results() == [1, 1, 1]
    redeclared(2, compile=True)
    assert results() == [2, 2, 2]
    redeclared(3)
    assert results() == [3, 3, 3]
    later = session_for("y = compiled.Changing(x)", sess_options=options)
    redeclared(4, compile=True)
    assert results() == [4, 4, 4]
    assert later.run(None, {"x": np.zeros(1, np.float32)})[0].tolist() == [4]


def test_living_sessions_follow_what_another_thread_declares_while_the_old_body_is_compiled(
    redeclared: Callable[..., Op[..., Any]],
) -> None:
    threads: list[threading.Thread] = []

    def run(*shape: int) -> Any:
        return session.run(None, {"x": np.zeros(shape, np.float32)})[0].tolist()

    def declare_anew() -> None:
        redeclared(2, compile=True).register_shape_inference(lambda x: x)
        assert run(1, 1) == [[2]]

    def shape_function(x: pyops.shapes.TensorSpec) -> pyops.shapes.TensorSpec:
        if x.shape == (1,) and not threads:  # in a call, before the kernel is compiled for it
            threads.append(threading.Thread(target=declare_anew))
            threads[0].start()
            threads[0].join()
        return x

    redeclared(1, compile=True).register_shape_inference(shape_function)
    session = session_for("y = compiled.Changing(x)", "float x", "float y")
    run(1)
    assert threads
    assert [run(1), run(1)] == [[2], [2]]


def test_a_changed_shape_function_is_followed() -> None:
    @onnx_op("compiled::Shaped", compile=True)
    def shaped(x: F32) -> F32:
        return x[:2]

    session = session_for("y = compiled.Shaped(x)")
    assert session.run(None, {"x": X[0]})[0].tolist() == X[0, :2].tolist()
    shaped.register_shape_inference(lambda x: x)
    with pytest.raises(pyops.errors.OutputError, match=r"returned shapes \[2\] and the shape function gives \[3\]"):
        session.run(None, {"x": X[0]})
    shaped.register_shape_inference(lambda x: x.like(shape=(2,)))
    assert session.run(None, {"x": X[0]})[0].tolist() == X[0, :2].tolist()


def test_a_session_of_other_options_runs_it_too() -> None:
    model = chain("compiled::Loop")
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for _ in range(2):
        assert session.run(None, {"x": X[0]})[0].tolist() == (X[0] + X[0]).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compile": "always"}, 'compile=\'always\' is unknown; it must be True, "try" or "debug"'),
        ({"parallel": "()->()"}, "parallel and fastmath are for compiled kernels; add compile=True"),
        ({"compile": True, "parallel": "rows"}, 'write them as NumPy does for generalized ufuncs: "(),()->()"'),
        ({"compile": True, "parallel": "(),()->()"}, "has 2 inputs, but 1 are declared: x"),
        ({"compile": True, "fastmath": {"fast"}}, "fastmath is {'fast'}; write True or a set of LLVM's flags"),
        ({"compile": True, "fastmath": [["nnan"]]}, "fastmath is [['nnan']]; write True or a set of LLVM's flags"),
        ({"compile": True, "fastmath": "nnan"}, "fastmath is 'nnan'; write True or a set of LLVM's flags"),
        ({"compile": True, "fastmath": 3}, "compiled::Bad: fastmath is 3; write True or a set"),
    ],
)
def test_what_is_wrong_with_the_options_is_a_declaration_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:

        @onnx_op("compiled::Bad", **options)
        def bad(x: F32) -> F32:
            return x

    assert message in str(caught.value)


def test_a_cuda_kernel_is_not_compiled() -> None:
    with pytest.raises(DeclarationError, match="are for CPU kernels"):
        add_round.register_kernel("cuda", compile=True)(add_round.kernels["cpu"].function)


def test_a_plain_call_gives_a_named_tuple_that_only_the_declaring_function_knows() -> None:
    class Halves(NamedTuple):
        low: F32
        high: F32

    @onnx_op("compiled::HalvesOfALocalClass", compile=True)
    def halves(x: F32) -> Halves:
        return Halves(x / np.float32(2), x / np.float32(2))

    assert type(halves(np.ones(2, np.float32))) is Halves


ALIASES = """
from typing import NamedTuple
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

class Pair(NamedTuple):
    low: NDArray[np.float32]
    high: NDArray[np.float32]

class Parts[T](NamedTuple):
    low: NDArray[T]
    high: NDArray[T]

type Result = Pair
type Generic[T] = Parts[T]

def alias(x: NDArray[np.float32]) -> Result: return Pair(x, x)
def generic_alias[T: (np.float32, np.float64)](x: NDArray[T]) -> Generic[T]: return Parts(x, x)
def generic[T: (np.float32, np.float64)](x: NDArray[T]) -> Parts[T]: return Parts(x, x)

for function in (alias, generic_alias, generic):
    op = onnx_op("compiled::Aliases" + function.__name__, compile=True)(function)
    print(type(op(np.ones(2, np.float32))).__name__)
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type aliases are syntax from Python 3.12 on")
@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations\n"], ids=["eager", "postponed"])
def test_a_plain_call_gives_the_named_tuple_of_an_alias(tmp_path: Path, first_line: str) -> None:
    script = tmp_path / "aliases.py"
    script.write_text(first_line + ALIASES)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["Pair", "Parts", "Parts"], done.stderr
