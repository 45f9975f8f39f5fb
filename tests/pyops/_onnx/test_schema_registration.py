"""Declared ops in onnx's checker and shape inference."""

from contextlib import nullcontext
from typing import TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

import pyops
from pyops import onnx_op, shapes
from tests.helpers.models import chain, make_model, value_info
from tests.helpers.op_db import SAMPLES
from tests.helpers.scripts import run_script

T = TypeVar("T", np.float32, np.float64)
F32 = NDArray[np.float32]


@pytest.fixture
def schemas():
    with pyops.register_schemas():
        yield


@pytest.fixture
def ops():
    @onnx_op("known::Pair")
    def pair(x: NDArray[T], y: NDArray[T] | None = None, *rest: F32, axis: int = 0) -> tuple[NDArray[T], F32]:
        return x, np.zeros((2 * x.shape[axis], 1), np.float32)

    @pair.register_shape_inference
    def _(x, y=None, *rest, axis=0):
        broadcast = x.shape if y is None else shapes.broadcast(x, y)
        return x.like(shape=broadcast), x.like(shape=(2 * x.shape[axis], shapes.new_dim()), dtype=np.float32)

    @onnx_op("known::Late", version=3)
    def late(x: F32) -> NDArray[np.int64]:
        return x.astype(np.int64)

    @late.register_shape_inference
    def _(x):
        return x.like(shape=x.shape[::-1], dtype=np.int64)


def pair(inputs="a _", outputs="y z", dtype=np.float32, **attributes):
    """One node of Pair: inputs (n, 3), outputs of which the model says the rank alone."""
    names = ["" if name == "_" else name for name in inputs.split()]
    node = helper.make_node("Pair", names, outputs.split(), domain="known", name="the_node", **attributes)
    given = [(name, dtype, ("n", 3)) for name in dict.fromkeys(filter(None, names))]
    types = {"y": dtype, "z": np.float32}
    results = [(name, types.get(name, np.float32), (None, None)) for name in node.output]
    return make_model([node], given, results, {"known": 1})


def check(model):
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def described(model):
    """Name to element type and shape of everything that the model has types for."""
    found = {}
    for item in (*model.graph.value_info, *model.graph.output):
        kind = item.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim]
        found[item.name] = (kind.elem_type, dims if kind.HasField("shape") else None)
    return found


# Declared as Same is, and sizes are not looked at.
AGAIN = ("Reverse", "Turned", "Corner", "Same-large", "Same-empty", "Tile-stride-zero-large", "Tile-zero-times")
TOLD_APART = [sample for sample in SAMPLES if not sample.id.startswith(AGAIN)]


@pytest.mark.parametrize("sample", TOLD_APART, ids=lambda sample: sample.id)
def test_checker_and_strict_inference_accept_every_sample(sample, schemas):
    model = sample.model()
    for output, array in zip(model.graph.output, sample.expected(), strict=True):
        output.CopyFrom(value_info(output.name, array.dtype, [None] * array.ndim))
    check(model)


def test_without_a_registration_they_know_nothing(ops):
    with pytest.raises(ValidationError, match="No Op registered for Pair"):
        check(pair())


def test_types_and_shapes_follow_through_a_model(ops, schemas):
    model = chain("known::Late", "Abs", "Cast", domains={"known": 3})
    model.graph.node[2].attribute.append(helper.make_attribute("to", 1))
    model.graph.input[0].CopyFrom(value_info("x", np.float32, ("n", 3)))
    model.graph.output[0].CopyFrom(value_info("y", np.float32, (3, "m")))
    assert described(check(model)) == {"t1": (7, [3, "n"]), "t2": (7, [3, "n"]), "y": (1, [3, "m"])}


def test_symbolic_and_run_time_dimensions(ops, schemas):
    # unk__0 is what onnx calls a dimension without a name.
    assert described(check(pair())) == {"y": (1, ["n", 3]), "z": (1, ["2*n", "unk__0"])}
    assert described(check(pair(axis=1))) == {"y": (1, ["n", 3]), "z": (1, [6, "unk__0"])}


@pytest.mark.parametrize("inputs", ["a _", "a b", "a _ c", "a b c c"])
def test_absent_and_variadic_inputs(ops, schemas, inputs):
    assert described(check(pair(inputs)))["y"] == (1, ["n", 3])


def optional(x: F32, y: F32 | None = None) -> F32: ...
def rest(x: F32, *xs: F32) -> F32: ...
def optional_and_rest(x: F32, y: F32 | None = None, *xs: F32) -> F32: ...
def two_optional_and_rest(x: F32, y: F32 | None = None, z: F32 | None = None, *xs: F32) -> F32: ...
def all_optional(x: F32 | None = None, y: F32 | None = None, *xs: F32) -> F32: ...


@pytest.mark.parametrize(
    ("function", "least", "most"),
    [(optional, 1, 2), (rest, 1, 9), (optional_and_rest, 1, 9), (two_optional_and_rest, 1, 9), (all_optional, 0, 9)],
)
def test_a_node_has_as_many_inputs_as_the_declaration_takes(function, least, most, schemas):
    onnx_op("known::Counted")(function)
    for count in range(6):
        node = helper.make_node("Counted", ["x"] * count, ["y"], domain="known")
        model = make_model([node], [("x", np.float32, ("n",))], [("y", np.float32, ("n",))], {"known": 1})
        with nullcontext() if least <= count <= most else pytest.raises(ValidationError, match="not in range"):
            onnx.checker.check_model(model, check_custom_domain=True)


def test_a_size_that_is_not_known_leaves_the_shape_open(schemas):
    @onnx_op("known::Even")
    def even(x: F32) -> F32:
        return x[: len(x) // 2 * 2]

    @even.register_shape_inference
    def _(x):
        return x if x.shape[0] > 3 else x.like(shape=(4, *x.shape[1:]))

    model = chain("known::Even", "Relu")
    model.graph.output[0].CopyFrom(value_info("y", np.float32, (None, None)))
    model.graph.input[0].CopyFrom(value_info("x", np.float32, ("n", 2)))
    assert described(check(model)) == {"t1": (1, None), "y": (1, ["?", "?"])}
    model.graph.input[0].CopyFrom(value_info("x", np.float32, (3, 2)))
    assert described(check(model))["t1"] == (1, [4, 2])


def test_a_type_that_nothing_tells_leaves_those_after_it_open(schemas):
    @onnx_op("known::Count")
    def count(x: F32) -> NDArray[np.int64]:
        return np.array([x.size])

    inferred = onnx.shape_inference.infer_shapes(chain("unknown::Op", "known::Count", "Abs"))
    assert not {"t1", "t2"} & described(inferred).keys()


def test_fewer_shapes_than_outputs(schemas):
    @onnx_op("known::Parts")
    def parts(x: F32) -> tuple[F32, ...]:
        return x, x

    @parts.register_shape_inference
    def _(x):
        return (x,)

    node = helper.make_node("Parts", ["x"], ["y", "z"], domain="known")
    results = [(name, np.float32, (None,)) for name in node.output]
    with pytest.raises(InferenceError, match="it has 2 outputs, but the shape function gives 1"):
        check(make_model([node], [("x", np.float32, (2,))], results, {"known": 1}))


def test_without_a_shape_function_types_are_known(schemas):
    @onnx_op("known::Count")
    def count(x: F32) -> NDArray[np.int64]:
        return np.array([x.size])

    model = chain("known::Count", "Abs")
    model.graph.input[0].CopyFrom(value_info("x", np.float32, (2,)))
    model.graph.output[0].CopyFrom(value_info("y", np.int64, (None,)))
    assert described(check(model))["t1"] == (7, None)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            lambda: pair(dtype=np.int8),
            InferenceError,
            r"known::Pair: input 'x' is int8; declared as T \(one of float32",
        ),
        (lambda: pair(""), ValidationError, "has input size 0 not in range"),
        (lambda: pair(outputs="y z w"), ValidationError, "has output size 3 not in range"),
        (lambda: pair(wrong=1), ValidationError, "Unrecognized attribute: wrong for operator Pair"),
        (lambda: pair(axis=1.5), ValidationError, "Mismatched attribute type in 'the_node : axis'"),
    ],
)
def test_a_node_that_does_not_fit_its_declaration(ops, schemas, model, error, message):
    with pytest.raises(error, match=message):
        check(model())


def test_what_the_shape_function_refuses(ops, schemas):
    model = pair("a b")
    model.graph.input[0].CopyFrom(value_info("a", np.float32, (2, 3)))
    model.graph.input[1].CopyFrom(value_info("b", np.float32, (4, 3)))
    with pytest.raises(InferenceError, match=r"a node of known::Pair: float32\[2, 3\], float32\[4, 3\] do not broadc"):
        check(model)


def test_a_value_info_that_is_wrong(ops, schemas):
    model = pair()
    model.graph.output[0].CopyFrom(value_info("y", np.float32, (None, 4)))
    with pytest.raises(
        InferenceError,
        match=r"node name: the_node.*Inferred shape and existing shape differ in dimension 1: \(3\) vs \(4\)",
    ):
        check(model)


def test_a_shape_functions_own_exception_is_itself(schemas):
    @onnx_op("known::Broken")
    def broken(x: F32) -> F32:
        return x

    @broken.register_shape_inference
    def _(x):
        raise LookupError("as itself")

    model = chain("known::Broken")
    model.graph.input[0].CopyFrom(value_info("x", np.float32, (2,)))
    with pytest.raises(LookupError, match="as itself"):
        onnx.shape_inference.infer_shapes(model, strict_mode=True)


def test_registration_lasts_while_somebody_wants_it(ops):
    first, second = pyops.register_schemas(), pyops.register_schemas()
    second.close()
    second.close()
    assert onnx.defs.has("Pair", 1, "known")
    first.close()
    assert not onnx.defs.has("Pair", 1, "known")


def same(x: NDArray[np.int8]) -> NDArray[np.int8]:
    return x


def test_redeclaration_replaces(ops, schemas):
    with pytest.warns(pyops.errors.RedeclarationWarning, match="known::Pair now refers to "):
        changed = onnx_op("known::Pair")(same)
    schema = onnx.defs.get_schema("Pair", 1, "known")
    assert [item.type_str for item in schema.inputs] == ["tensor(int8)"]
    changed.register_shape_inference(lambda x: x.like(shape=(7,)))
    model = pair("a", outputs="y", dtype=np.int8)
    model.graph.output[0].CopyFrom(value_info("y", np.int8, (None,)))
    assert described(check(model))["y"] == (3, [7])

    again = onnx_op("known::Pair")(same)
    again.register_shape_inference(lambda x: x.like(shape=(8,)))
    assert described(check(model))["y"] == (3, [8])


def test_a_declaration_that_is_undone_is_replaced_too(ops, schemas):
    with pyops.testing.isolated_declarations():
        with pytest.warns(pyops.errors.RedeclarationWarning, match="known::Late now refers to "):
            onnx_op("known::Late", version=3)(same)
        assert onnx.defs.get_schema("Late", 3, "known").inputs[0].type_str == "tensor(int8)"
    assert onnx.defs.get_schema("Late", 3, "known").inputs[0].type_str == "tensor(float)"


def test_every_version_stands_beside_the_others(ops, schemas):
    @onnx_op("known::Late", version=5)
    def late(x: F32) -> F32:
        return x

    found = [onnx.defs.get_schema("Late", opset, "known").since_version for opset in (3, 4, 5, 9)]
    assert found == [3, 3, 5, 5]
    assert not onnx.defs.has("Late", 2, "known")


def foreign(name, domain):
    parameter = onnx.defs.OpSchema.FormalParameter("a", "tensor(float)")
    return onnx.defs.OpSchema(name, domain, 1, "somebody's", inputs=[parameter], outputs=[parameter])


def test_a_schema_of_others_stays(ops):
    onnx.defs.register_schema(foreign("Pair", "known"))
    try:
        with pytest.warns(UserWarning, match=r"schema of known::Pair, version 1, that other code registered; it st"):
            registration = pyops.register_schemas()
        assert onnx.defs.get_schema("Pair", 1, "known").doc == "somebody's"
        registration.close()
        assert onnx.defs.get_schema("Pair", 1, "known").doc == "somebody's"
    finally:
        onnx.defs.deregister_schema("Pair", 1, "known")


def test_a_schema_that_others_put_in_place_of_ours_stays(ops):
    with pyops.register_schemas():
        onnx.defs.deregister_schema("Pair", 1, "known")
        onnx.defs.register_schema(foreign("Pair", "known"))
    assert onnx.defs.get_schema("Pair", 1, "known").doc == "somebody's"
    onnx.defs.deregister_schema("Pair", 1, "known")


def test_onnxs_own_domain_stays():
    @onnx_op("ai.onnx::Relu", version=1000, override=True)
    def relu(x: F32) -> F32:
        return x

    version = onnx.defs.onnx_opset_version()
    with pyops.register_schemas():
        assert onnx.defs.onnx_opset_version() == version
        assert onnx.defs.get_schema("Relu").since_version < version


def test_a_process_ends_with_schemas_registered():
    script = """
        @onnx_op("known::Same")
        def same(x: F32) -> F32:
            return x
        same.register_shape_inference(lambda x: x)
        pyops.register_schemas()
        onnx.shape_inference.infer_shapes(chain("known::Same"), strict_mode=True)
        print(onnx.defs.has("Same", "known"))
    """
    run_script(script, "True")


def test_types_that_an_older_onnx_lacks_are_left_out(schemas):
    @onnx_op("known::Any")
    def count(x: NDArray[np.generic], *rest: NDArray[np.number]) -> NDArray[np.int64]:
        return np.array(x.size)

    @onnx_op("known::Smallest")
    def smallest(x: NDArray[ml_dtypes.uint2]) -> NDArray[ml_dtypes.uint2]:
        return x

    constraints = onnx.defs.get_schema("Any", domain="known").type_constraints
    types = {item for constraint in constraints for item in constraint.allowed_type_strs}
    has_uint2 = "UINT2" in onnx.TensorProto.DataType.keys()  # noqa: SIM118 - a wrapper of an enumeration
    assert ("tensor(uint2)" in types, onnx.defs.has("Smallest", 1, "known")) == (has_uint2, has_uint2)
    assert "tensor(float)" in types
