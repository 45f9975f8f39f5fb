"""Kernels that misbehave: none ends the process, none gives a wrong number, and each error names the cause."""

import pytest

from tests.helpers.scripts import run_script
from tests.helpers.systems import needs_fork

pytestmark = pytest.mark.usefixtures("engine_of_scripts")

DECLARED = "hazards::Op: 'output' is declared"

# What a kernel of float32 does, and what `run` then raises.
KERNELS = {
    "exception": ('raise ValueError("boom")', "ValueError boom"),
    "keyboard-interrupt": ('raise KeyboardInterrupt("mine")', "KeyboardInterrupt mine"),
    "system-exit": ("sys.exit(3)", "SystemExit 3"),
    "generator-exit": ('raise GeneratorExit("mine")', "GeneratorExit mine"),
    "stop-iteration": ("next(iter([]))", "StopIteration"),
    "none": ("return None", f"OutputError {DECLARED} float32 and the kernel returned None; return an array"),
    "list": (
        "return [1.0, 2.0]",
        f"OutputError {DECLARED} float32 and the kernel returned list; return np.asarray(result, np.float32)",
    ),
    "number": (
        "return 1.5",
        f"OutputError {DECLARED} float32 and the kernel returned float; return np.asarray(result, np.float32)",
    ),
    "tuple": (
        "return x, x",
        f"OutputError {DECLARED} float32 and the kernel returned tuple; return one array, or declare -> tuple[...]",
    ),
    "wider": (
        "return x.astype(np.float64)",
        f"OutputError {DECLARED} float32 and the kernel returned float64[3]; return result.astype(np.float32), "
        "or declare it NDArray[np.float64]",
    ),
    "same-item-size": (
        "return np.array([1, 2, 3], np.int32)",
        f"OutputError {DECLARED} float32 and the kernel returned int32[3]; return result.astype(np.float32), "
        "or declare it NDArray[np.int32]",
    ),
    "float16": (
        "return x.astype(np.float16)",
        f"OutputError {DECLARED} float32 and the kernel returned float16[3]; return result.astype(np.float32), "
        "or declare it NDArray[np.float16]",
    ),
    "other-byte-order": (
        'return x.astype(">f4")',
        f"OutputError {DECLARED} float32 and the kernel returned >f4[3]; return result.astype(np.float32)",
    ),
    "masked-array": (
        "return np.ma.masked_less(x, 1)",
        f"OutputError {DECLARED} float32 and is a masked array, but ONNX has no masks; return value.filled(...)",
    ),
    "scalar-of-another-type": (
        "return x.astype(np.float64).sum()",
        f"OutputError {DECLARED} float32 and the kernel returned float64[]; return result.astype(np.float32), "
        "or declare it NDArray[np.float64]",
    ),
}


@pytest.mark.parametrize(("body", "error"), KERNELS.values(), ids=KERNELS.keys())
def test_a_kernel_that_misbehaves_is_an_error_and_the_session_goes_on(body: str, error: str) -> None:
    script = f"""
        def declare(misbehave):
            @onnx_op("hazards::Op")
            def op(x: F32) -> F32:
                if misbehave:
                    {body}
                return x + 1

        declare(True)
        session = pyops.InferenceSession(chain("Neg", "hazards::Op", "Neg"))
        attempt(session.run, None, {{"x": x}})
        attempt(session.run, None, {{"x": x}})
        declare(False)
        attempt(session.run, None, {{"x": x}})
    """
    run_script(script, f"{error}\n{error}\n[[-1.0, -0.0, 1.0]]")


def test_int64_is_never_read_out_of_float64() -> None:
    script = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> I64:
            return np.array([0.5])

        model = make_model(chain("hazards::Op").graph.node, [("x", np.float32, None)], [("y", np.int64, None)],
                           {"hazards": 1})
        attempt(pyops.InferenceSession(model).run, None, {"x": x})
    """
    run_script(
        script,
        f"OutputError {DECLARED} int64 and the kernel returned float64[1]; return result.astype(np.int64), "
        "or declare it NDArray[np.float64]",
    )


@pytest.mark.parametrize(
    ("result", "came"),
    [("()", "0"), ("(x,)", "1"), ("(x, x, x)", "3")],
    ids=["none", "too-few", "too-many"],
)
def test_a_wrong_number_of_outputs_is_an_error_that_says_both(result: str, came: str) -> None:
    script = f"""
        from onnx import helper

        @onnx_op("hazards::Op")
        def op(x: F32) -> tuple[F32, F32]:
            return {result}

        node = helper.make_node("Op", ["x"], ["y", "z"], domain="hazards")
        outputs = [("y", np.float32, None), ("z", np.float32, None)]
        model = make_model([node], [("x", np.float32, None)], outputs, {{"hazards": 1}})
        attempt(pyops.InferenceSession(model).run, None, {{"x": x}})
    """
    run_script(
        script,
        f"OutputError hazards::Op is declared to return 2 arrays and returned {came}; "
        "return as many as the return type names",
    )


STRINGS = {
    "pickled": ('pickle.loads(pickle.dumps(np.array(["a", "b"], object)))', "[['a', 'b']]"),
    "dtype-with-metadata": ('np.array(["a", "b"], np.dtype(object, metadata={"k": 1}))', "[['a', 'b']]"),
    "fixed-width": ('np.array(["a", "bc"])', "[['a', 'bc']]"),
    "none-inside": (
        'np.array(["a", None], object)',
        f"OutputError {DECLARED} string and the kernel returned an array that holds None; return str",
    ),
    "bytes": (
        'np.array([b"a"])',
        f"OutputError {DECLARED} string and the kernel returned |S1[1]; return an array of str",
    ),
    "lone-surrogate": (
        'np.array(["\\udc80"], object)',
        "UnicodeEncodeError 'utf-8' codec can't encode character '\\udc80' in position 0: surrogates not allowed",
    ),
}


@pytest.mark.parametrize(("result", "expected"), STRINGS.values(), ids=STRINGS.keys())
def test_strings_are_taken_whatever_their_array_is_or_refused(result: str, expected: str) -> None:
    script = f"""
        import pickle

        @onnx_op("hazards::Op")
        def op(x: Str) -> Str:
            return {result}

        session = pyops.InferenceSession(chain("hazards::Op", dtype=np.object_))
        attempt(session.run, None, {{"x": np.array(["q"], object)}})
    """
    run_script(script, expected)


def test_running_out_of_recursion_anywhere_is_a_recursion_error() -> None:
    script = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x + 1

        session = pyops.InferenceSession(chain("hazards::Op"))

        def at_depth(n):
            return at_depth(n - 1) if n else session.run(None, {"x": x})

        results = set()
        for depth in range(sys.getrecursionlimit() - 60, sys.getrecursionlimit()):
            try:
                results.add(str(at_depth(depth)))
            except BaseException as error:
                results.add(type(error).__name__)
        print(sorted(results))
        attempt(session.run, None, {"x": x})
    """
    run_script(script, "['RecursionError', '[array([1., 2., 3.], dtype=float32)]']\n[[1.0, 2.0, 3.0]]")


def test_an_op_may_have_the_name_of_any_of_onnx_in_another_domain() -> None:
    # Nodes in which ONNX Runtime's optimizers look for operators to remove, to replace or to fuse.
    script = '''
        graph = """<ir_version: 10, opset_import: ["": 20, "hazards": 1]>
            graph (float[2, 2] i, float[2, 2] j, float[2, 2] k, float[2, 2] l, float[2, 2] m)
                => (float[2, 2] first, float[2, 2] second, float[2, 2] third, float[2, 2] fourth, float[2, 2] fifth) {
                i1 = hazards.Op(i)  first = hazards.Op(i1)
                j1 = hazards.Op(j)  second = MatMul(j, j1)
                k1 = hazards.Op(k)  third = Add(k1, k)
                l1 = Transpose(l)  l2 = hazards.Op(l1)  fourth = Transpose(l2)
                m1 = Neg(m)  m2 = hazards.Op(m1)  fifth = Neg(m2)
            }"""
        x = np.arange(4, dtype=np.float32).reshape(2, 2)
        expected = [x * 9, x @ (x * 3), x * 4, x * 3, x * 3]

        def results(name):
            @onnx_op(f"hazards::{name}")
            def op(x: F32) -> F32:
                return x * 3

            model = onnx.parser.parse_model(graph.replace("hazards.Op", f"hazards.{name}"))
            return pyops.InferenceSession(model).run(None, dict.fromkeys("ijklm", x))

        names = {schema.name for schema in onnx.defs.get_all_schemas()}
        print({"Cast", "Expand", "Identity", "Transpose"} <= names)
        print([name for name in sorted(names) if not np.array_equal(results(name), expected)])
    '''
    run_script(script, "True\n[]")


def test_redefinition_and_new_ops_leave_living_sessions_alive() -> None:
    script = """
        def declare(name, amount, signature_changes=False):
            if signature_changes:
                @onnx_op(f"hazards::{name}")
                def op(x: F32, *, extra: int = 0) -> F32:
                    return x + np.float32(amount)
            else:
                @onnx_op(f"hazards::{name}")
                def op(x: F32) -> F32:
                    return x + np.float32(amount)

        declare("Op", 1)
        sessions = [pyops.InferenceSession(chain("hazards::Op"))]
        declare("Op", 2)
        attempt(sessions[0].run, None, {"x": x})
        for i in range(40):
            declare(f"Op{i}", i)
            sessions.append(pyops.InferenceSession(chain(f"hazards::Op{i}", "hazards::Op")))
        declare("Op", 3, signature_changes=True)
        print({str(session.run(None, {"x": x})[0] - i) for i, session in enumerate(sessions[1:])})
        attempt(pyops.InferenceSession(chain("hazards::Op")).run, None, {"x": x})
    """
    run_script(script, "[[2.0, 3.0, 4.0]]\n{'[2. 3. 4.]'}\n[[3.0, 4.0, 5.0]]")


def test_a_kernel_may_redeclare_its_own_op_and_drop_its_own_session() -> None:
    script = """
        def declare(amount):
            @onnx_op("hazards::Op")
            def op(x: F32) -> F32:
                declare(amount + 1)
                sessions.clear()
                gc.collect()
                return x + np.float32(amount)

        declare(1)
        sessions = [pyops.InferenceSession(chain("hazards::Op"))]
        attempt(sessions[0].run, None, {"x": x})
        attempt(pyops.InferenceSession(chain("hazards::Op")).run, None, {"x": x})
    """
    run_script(script, "[[1.0, 2.0, 3.0]]\n[[2.0, 3.0, 4.0]]")


@needs_fork
def test_a_forked_child_and_its_parent_go_on_with_living_sessions() -> None:
    script = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            if x[0] < 0:
                raise ValueError("negative")
            return x + 1

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        attempt(session.run, None, {"x": x})
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            attempt(session.run, None, {"x": x + 1})
            attempt(session.run, None, {"x": x - 1})
            attempt(pyops.InferenceSession(chain("hazards::Op"), options).run, None, {"x": x + 2})
            sys.stdout.flush()
            os._exit(0)  # ONNX Runtime itself hangs where a forked child ends otherwise
        print(os.waitpid(child, 0)[1])
        attempt(session.run, None, {"x": x + 3})
    """
    expected = """
        [[1.0, 2.0, 3.0]]
        [[2.0, 3.0, 4.0]]
        ValueError negative
        [[3.0, 4.0, 5.0]]
        0
        [[4.0, 5.0, 6.0]]
    """
    run_script(script, expected)
