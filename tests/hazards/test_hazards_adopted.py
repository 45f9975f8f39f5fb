"""Functions declared with onnxruntime-extensions' own ``onnx_op``, in sessions of pyops."""

import textwrap

import pytest

from tests.helpers.scripts import run_script

pytest.importorskip("onnxruntime_extensions")

SETUP = """
        sys.modules["torch"] = None  # which onnxruntime-extensions imports if it is there, and that takes long
        import onnxruntime_extensions as extensions
        from onnxruntime_extensions import PyCustomOpDef

        def options():
            made = onnxruntime.SessionOptions()
            if WITH_LIBRARY:
                made.register_custom_ops_library(extensions.get_library_path())
            return made

        def session(*nodes, **kwargs):
            return pyops.InferenceSession(chain(*nodes, **kwargs), options())

        def run(*nodes):
            return session(*nodes).run(None, {"x": x})
"""

both_ways = pytest.mark.parametrize("library", [False, True], ids=["alone", "with-their-library-in-the-options"])


def run_adopted(script: str, expected: str, library: bool) -> None:
    run_script((f"WITH_LIBRARY = {library}", SETUP, script), expected)


@both_ways
def test_a_kernel_that_misbehaves_is_an_error_and_the_session_goes_on(library: bool) -> None:
    script = """
        class Mood:
            result = None

        def act():
            if isinstance(Mood.result, BaseException):
                raise Mood.result
            return Mood.result

        @extensions.onnx_op(op_type="adopted::Op", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])
        def op(x):
            return act()

        living = session("adopted::Op")
        for Mood.result in (
            ValueError("boom"), KeyboardInterrupt("mine"), SystemExit(3), None, [1.0, 2.0, 3.0],
            np.array([1, 2, 3], np.int32), np.ones(3, np.float16), (x, x), x + 1,
        ):
            attempt(living.run, None, {"x": x})
    """
    declared = "OutputError adopted::Op: 'output_0' is declared float32 and the kernel returned"
    expected = f"""
        ValueError boom
        KeyboardInterrupt mine
        SystemExit 3
        {declared} None; return an array
        {declared} list; return np.asarray(result, np.float32)
        {declared} int32[3]; return result.astype(np.float32), or declare it NDArray[np.int32]
        {declared} float16[3]; return result.astype(np.float32), or declare it NDArray[np.float16]
        {declared} tuple; return one array, or declare -> tuple[...]
        [[1.0, 2.0, 3.0]]
    """
    run_adopted(script, expected, library)


@both_ways
def test_int64_is_never_read_out_of_float64_and_float16_works(library: bool) -> None:
    script = """
        P = PyCustomOpDef

        @extensions.onnx_op(op_type="adopted::Int", inputs=[P.dt_float], outputs=[P.dt_int64])
        def op(x):
            return np.array([0.5])

        @extensions.onnx_op(op_type="adopted::Half", inputs=[P.dt_float16], outputs=[P.dt_float16])
        def half(x):
            return x + x

        nodes = chain("adopted::Int").graph.node
        model = make_model(nodes, [("x", np.float32, None)], [("y", np.int64, None)], {"adopted": 1})
        attempt(pyops.InferenceSession(model, options()).run, None, {"x": x})
        print(session("adopted::Half", dtype=np.float16).run(None, {"x": np.ones(2, np.float16)}))
    """
    expected = """
        OutputError adopted::Int: 'output_0' is declared int64 and the kernel returned float64[1]; \
return result.astype(np.int64), or declare it NDArray[np.float64]
        [array([2., 2.], dtype=float16)]
    """
    run_adopted(script, expected, library)


@both_ways
def test_redefinition_and_new_ops_leave_living_sessions_alive(library: bool) -> None:
    script = """
        def declare(name, amount):
            @extensions.onnx_op(op_type=f"adopted::{name}")
            def op(x):
                return x + np.float32(amount)
            return op

        declare("Op", 1)
        first = session("adopted::Op")
        for i in range(20):
            declare(f"Op{i}", i)
            attempt(session(f"adopted::Op{i}", "adopted::Op").run, None, {"x": x * 0 - i})
        attempt(first.run, None, {"x": x})
        WITH_LIBRARY = False  # where its own library refuses every session after a redeclaration
        declare("Op", 2)
        attempt(session("adopted::Op").run, None, {"x": x})
        attempt(first.run, None, {"x": x})
    """
    run_adopted(script, "[[1.0, 1.0, 1.0]]\n" * 20 + "[[1.0, 2.0, 3.0]]\n[[2.0, 3.0, 4.0]]\n[[1.0, 2.0, 3.0]]", library)


@both_ways
def test_writing_to_an_input_and_keeping_it_is_allowed_there(library: bool) -> None:
    script = """
        kept = []
        warnings.simplefilter("error")

        @extensions.onnx_op(op_type="adopted::Op")
        def op(x):
            x[0] = 100
            kept.append(x)
            return x + 1

        living = session("adopted::Op")
        attempt(living.run, None, {"x": x})
        del living
        gc.collect()
        print(kept[0].tolist(), x.tolist())
    """
    run_adopted(script, "[[101.0, 2.0, 3.0]]\n[100.0, 1.0, 2.0] [0.0, 1.0, 2.0]", library)


@both_ways
def test_an_assigned_body_is_followed(library: bool) -> None:
    script = """
        @extensions.onnx_op(op_type="adopted::Op")
        def op(x):
            return x + 1

        living = session("adopted::Op")
        op.body = lambda x: x + 2
        attempt(living.run, None, {"x": x})
    """
    run_adopted(script, "[[2.0, 3.0, 4.0]]", library)


@both_ways
def test_ops_of_both_declarations_and_their_built_in_ones_run_in_one_model(library: bool) -> None:
    script = """
        @extensions.onnx_op(op_type="Theirs")
        def theirs(x):
            return x + 1

        @onnx_op("ai.onnx.contrib::Ours")
        def ours(x: F32) -> F32:
            return x * 10

        @onnx_op("mine::Shape")
        def shape(x: Str) -> Str:
            return np.array([f"{item}!" for item in x], object)

        attempt(run, "ai.onnx.contrib::Theirs", "ai.onnx.contrib::Ours", "Neg")
        if WITH_LIBRARY:
            upper = session("mine::Shape", "ai.onnx.contrib::StringUpper", "mine::Shape", dtype=np.object_)
            attempt(upper.run, None, {"x": np.array(["ab"], object)})
        else:
            print([["AB!!"]])
    """
    run_adopted(script, "[[-10.0, -20.0, -30.0]]\n[['AB!!']]", library)


@both_ways
def test_a_version_above_1_runs_in_a_domain_of_theirs(library: bool) -> None:
    script = """
        @extensions.onnx_op(op_type="shared::Theirs")
        def theirs(x):
            return x

        @onnx_op("shared::Ours", version=2)
        def ours(x: F32) -> F32:
            return x + 1

        attempt(session("shared::Ours", domains={"shared": 3}).run, None, {"x": x})
    """
    run_adopted(script, "[[1.0, 2.0, 3.0]]", library)


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [('attrs={"a": PyCustomOpDef.dt_double}', "x, **attributes"), ("inputs=[PyCustomOpDef.dt_float] * 2", "x")],
    ids=["attribute-type", "number-of-inputs"],
)
def test_a_declaration_that_nobody_uses_and_that_cannot_be_adopted_is_not_in_the_way(
    arguments: str, parameters: str
) -> None:
    script = f"""
        @extensions.onnx_op(op_type="adopted::Unused", {arguments})
        def unused({parameters}):
            return x

        @onnx_op("mine::Op")
        def op(x: F32) -> F32:
            return x + 1

        attempt(run, "mine::Op")
    """
    run_adopted(script, "[[1.0, 2.0, 3.0]]", library=False)


def test_one_that_another_takes_over_is_told_once() -> None:
    script = """
        def declare(name, factor):
            def op(x):
                return x * np.float32(factor)

            op.__qualname__ = name
            extensions.onnx_op(op_type="adopted::Op")(op)

        declare("first", 2)
        declare("first", 3)
        warnings.simplefilter("error")
        attempt(run, "adopted::Op")
        declare("second", 4)
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as caught:
            attempt(run, "adopted::Op")
            attempt(run, "adopted::Op")
        print(*[(item.category.__name__, *str(item.message).split(" (")[:1]) for item in caught])
    """
    expected = """
        [[0.0, 3.0, 6.0]]
        [[0.0, 4.0, 8.0]]
        [[0.0, 4.0, 8.0]]
        ('RedeclarationWarning', 'adopted::Op now refers to second of module __main__')
    """
    run_adopted(script, expected, library=False)


@both_ways
def test_the_process_ends_with_living_sessions(library: bool) -> None:
    script = """
        @extensions.onnx_op(op_type="adopted::Op")
        def op(x):
            return x + 1

        living = session("adopted::Op")
        attempt(living.run, None, {"x": x})
    """
    run_adopted(script, "[[1.0, 2.0, 3.0]]", library)


def test_one_that_cannot_be_hosted_is_an_error_where_a_model_needs_it() -> None:
    script = """
        extensions.onnx_op(op_type="adopted::Odd", inputs=[PyCustomOpDef.dt_float] * 3)(lambda x: x)
        extensions.onnx_op(op_type="adopted::Op")(lambda x: x)
        attempt(run, "adopted::Op")
        try:
            session("adopted::Odd")
        except pyops.errors.ModelError as error:
            print("adopted::Odd" in str(error), "cannot be called with the 3 declared inputs" in str(error))
    """
    run_adopted(script, "[[0.0, 1.0, 2.0]]\nTrue True", library=False)


@both_ways
def test_attributes_that_are_not_declared_are_ignored_as_in_its_own_sessions(library: bool) -> None:
    script = """
        from onnx import helper
        from onnx.reference import ReferenceEvaluator
        from tests.helpers.models import opset_imports

        @extensions.onnx_op(op_type="adopted::Op", attrs={"by": PyCustomOpDef.dt_float})
        def op(x, by):
            return x + by

        model = chain("adopted::Op")
        attributes = {"by": 2.0, "extra": 3, "more": ["a"]}
        model.graph.node[0].attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        attempt(pyops.InferenceSession(model, options()).run, None, {"x": x})
        attempt(pyops.InferenceSession(model, options(), engine=ENGINE).run, None, {"x": x})
        with pyops.patch_onnxruntime():
            attempt(onnxruntime.InferenceSession(model.SerializeToString(), options()).run, None, {"x": x})

        body = helper.make_node("Op", ["a"], ["b"], domain="adopted", by=5.0)
        body.attribute.add(name="extra", ref_attr_name="given", type=2)
        imports = opset_imports({"adopted": 1})
        nested = chain("local::Wrapped")
        nested.opset_import.add(domain="adopted", version=1)
        nested.functions.append(helper.make_function("local", "Wrapped", ["a"], ["b"], [body], imports, ["given"]))
        nested.graph.node[0].attribute.add(name="given", type=2, i=4)
        attempt(pyops.InferenceSession(nested, options()).run, None, {"x": x})
        attempt(ReferenceEvaluator(model, new_ops=pyops.reference_ops(model)).run, None, {"x": x})
        function = ReferenceEvaluator(nested.functions[0], new_ops=pyops.reference_ops(nested))
        attempt(function.run, None, {"a": x}, {"given": 4})
        adopted = next(op for op in pyops.list_ops() if op.domain == "adopted")
        attempt(lambda: adopted(x, by=1.0, extra=3))
    """
    two, five = "[[2.0, 3.0, 4.0]]", "[[5.0, 6.0, 7.0]]"
    declared = "adopted::Op(x: float32, *, by: float) -> float32"
    refusal = f"InputError adopted::Op: unknown attribute 'extra'; {declared} declares: by"
    # Its library, once in the options, is not registered again by the extensions engine.
    script = f"ENGINE = {'native' if library else 'extensions'!r}\n" + textwrap.dedent(script)
    run_adopted(script, f"{two}\n{two}\n{two}\n{five}\n{two}\n{five}\n{refusal}", library)
