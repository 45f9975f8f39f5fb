"""Generated declarations, inputs and attributes give the same in every engine, a plain call, and every other path.

Each kernel returns arrays that are a digest of everything it got, so that a difference in any value, dtype, shape,
order or default shows. Hypothesis generates those of the first test, which compares engines with the plain call. Those
of the second come from seeds (``PYOPS_STRESS_SEED``, and as many as ``PYOPS_STRESS_COUNT``): declared in every way that
there is, they are compared with a digest of what the declaration and Python say that a kernel gets. So are those of the
third, in torch and exported, for every tenth seed and of what torch can express.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import random
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pyops
from pyops._core.models.hosting import is_mistaken
from pyops._core.schema.hints import read_attribute
from pyops._display.inspection import inspect as inspect_model
from pyops._extensions import operator_registry as extensions_registry
from pyops.errors import EngineError, InputError
from pyops.testing import isolated_declarations, strategies
from tests.helpers.engines import ENGINES, make_plain_session, make_session, run_plain

pytestmark = pytest.mark.stress

SCALARS = {
    **{f"float{bits}": getattr(np, f"float{bits}") for bits in (16, 32, 64)},
    **{f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")},
    "bool_": np.bool_,
    "str_": np.str_,
}
KINDS = ("int", "float", "bool", "str", "list[int]", "list[float]", "list[str]", "tuple[int, ...]", "np.ndarray")
FOREIGN = {"tensor(bfloat16)", "tensor(float8e4m3fn)", "tensor(float8e5m2)"}
"""Types that ONNX Runtime's bindings take only in OrtValues."""
Outputs = list[tuple[str, tuple[int, ...]]]


@st.composite
def declarations(draw: st.DrawFn) -> tuple[str, Outputs]:
    """The source of a kernel, and its outputs: an element type and a shape for each."""
    parameters = []
    count = draw(st.integers(1, 8))
    first_optional = draw(st.integers(1, count))
    for index in range(count):
        scalar = draw(st.sampled_from(list(SCALARS)))
        parameters.append(f"x{index}: NDArray[{scalar}]" + (" | None = None" if index >= first_optional else ""))
    parameters.append(f"*rest: NDArray[{draw(st.sampled_from(list(SCALARS)))}]" if draw(st.booleans()) else "*")
    for index, kind in enumerate(draw(st.lists(st.sampled_from(KINDS), max_size=4))):
        default = draw(st.sampled_from(["", "value", "None"]))
        if default == "None":
            parameters.append(f"a{index}: {kind} | None = None")
        elif default and kind != "np.ndarray":
            parameters.append(f"a{index}: {kind} = {draw(values(kind))!r}")
        else:
            parameters.append(f"a{index}: {kind}")
    if parameters[-1] == "*":
        parameters.pop()
    outputs = draw(st.lists(st.tuples(st.sampled_from(list(SCALARS)), strategies.SHAPES), min_size=1, max_size=3))
    returned = ", ".join(f"NDArray[{scalar}]" for scalar, _ in outputs)
    return f"def kernel({', '.join(parameters)}) -> tuple[{returned}]:\n    return digest(locals())\n", outputs


def values(kind: str) -> st.SearchStrategy[Any]:
    hint = eval(kind, {"np": np})
    return strategies.attribute_values(read_attribute("a", hint, inspect.Parameter.empty))


def digest_into(outputs: Outputs) -> Any:
    def digest(arguments: dict[str, Any]) -> tuple[Any, ...]:
        text = repr({name: spelled(value) for name, value in sorted(arguments.items())})
        seed = int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:8], "little")
        random = np.random.default_rng(seed)
        results = []
        for scalar, shape in outputs:
            values = random.integers(0, 8, shape)
            if scalar == "str_":
                results.append(np.asarray(values, object).astype(str).astype(object).reshape(shape))
            else:
                results.append(np.asarray(values).astype(SCALARS[scalar]))
        return tuple(results)

    return digest


def spelled(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes()
    return [spelled(item) for item in value] if type(value) is tuple and value and hasattr(value[0], "dtype") else value


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(declaration=declarations(), data=st.data())
def test_an_engine_and_the_plain_call_agree(engine: str, declaration: tuple[str, Outputs], data: st.DataObject):
    source, outputs = declaration
    namespace = {"np": np, "NDArray": NDArray, "digest": digest_into(outputs), **SCALARS}
    exec(compile(source, "<generated>", "exec", dont_inherit=True), namespace)
    op = pyops.onnx_op("generated::Kernel")(namespace["kernel"])
    sample = data.draw(strategies.samples(op))
    if engine == "extensions" and extensions_registry.reason_against(op.signature):
        with pytest.raises(EngineError, match="onnxruntime-extensions does not support its"):
            make_session(sample.model(), engine)
        return
    session = make_session(sample.model(), engine)
    inputs = [] if engine == "reference" else [item.type for item in session.get_inputs()]
    if "tensor(string)" in inputs and FOREIGN.intersection([*inputs, *(item.type for item in session.get_outputs())]):
        with pytest.raises(InputError, match="no strings as inputs"):
            session.run(None, sample.feed)
        return
    for wanted, got in zip(sample.expected(), session.run(None, sample.feed), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tolist() == wanted.tolist()


NAMES = (
    *("x", "y", "type", "match", "case", "_", "__a", "__init__", "name", "domain", "version", "function", "node", "op"),
    *(
        "inputs",
        "arrays",
        "attributes",
        "values",
        "kernel",
        "signature",
        "args",
        "kwargs",
        "output",
        "output_0",
        "self_",
    ),
    *("context", "result", "shape", "dtype", "print", "λ", "größe", "变量", "x" * 300, "True_", "T", "np_", "axis"),
    *("device_type", "compile", "index", "item", "what", "self", "cls", "call", "given", "lambda_", "μ"),
)
DOMAINS = ("generated", "a.b-c", "_x", "größe.λ", "com.microsoft.mine", "torch_like", "x" * 200)
OPS = ("Kernel", "_k", "Größe", "Add", "Reshape", "Identity", "If", "K" * 200, "class_", "Kλ")
TORCH = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool_")
ABSTRACT = {"floating": TORCH[:3], "integer": TORCH[3:8], "number": TORCH[:8]}
ODD: dict[str, list[Any]] = {
    "int": [0, -1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 0.1, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4e38],
    "bool": [True, False],
    "str": ["", "a", "\n", '"', "{}", "%s", "λ" * 50, "\\", "\U0001f600"],
}
ODD |= {f"list[{kind}]": [[], ODD[kind][:1], ODD[kind]] for kind in ("int", "float", "str")}
ODD |= {f"tuple[{kind}, ...]": [tuple(value) for value in ODD[f"list[{kind}]"]] for kind in ("int", "float", "str")}
ODD |= {
    "np.ndarray": [np.zeros(()), np.arange(6.0).reshape(2, 3), np.zeros((0, 2)), np.array(["a", ""], object)],
    "Literal['a', 'b\\'c', '']": ["a", "b'c", ""],
    "Literal[1, -2]": [1, -2],
}
SEED, COUNT = int(os.environ.get("PYOPS_STRESS_SEED", "0")), int(os.environ.get("PYOPS_STRESS_COUNT", "300"))


@dataclass
class Declared:
    """A declaration, and one call of it.

    Attributes
    ----------
    names : dict
        The globals of the source.
    received : dict
        What the kernel gets in the call, by the names of its parameters.
    """

    qualified_name: str
    version: int
    source: str
    names: dict[str, Any]
    outputs: Outputs
    inputs: list[Any] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    received: dict[str, Any] = field(default_factory=dict)

    def function(self, more: str = "") -> Any:
        source = self.source.replace(") ->", f"{more}) ->", 1)
        names = dict(self.names)  # to which the builtins are added, with what packages have put there
        exec(compile(source, "<generated>", "exec", dont_inherit=True), names)
        return names["kernel"]

    def shapes(self, /, *specs: Any, **attributes: Any) -> Any:
        made = [pyops.shapes.TensorSpec(shape, np.dtype(SCALARS[scalar])) for scalar, shape in self.outputs]
        return tuple(made) if "-> NDArray" not in self.source else made[0]

    def model(self, random: random.Random) -> onnx.ModelProto:
        domain, _, name = self.qualified_name.partition("::")
        inputs = [f"in_{index}" if array is not None else "" for index, array in enumerate(self.inputs)]
        while inputs and not inputs[-1] and random.random() < 0.5:
            inputs.pop()
        outputs = [f"out_{index}" for index in range(len(self.outputs))]
        node = onnx.helper.make_node(name, inputs, outputs, domain=domain, name="node")
        hints = {item.name: item for item in inspect.signature(self.function()).parameters.values()}
        for key, value in self.attributes.items():
            hint = hints[key].annotation.removesuffix(" | None")
            if value is not None:
                node.attribute.append(attribute(key, hint, value))
        info = onnx.helper.make_tensor_value_info
        given = [
            info(f"in_{index}", code(array.dtype), array.shape)
            for index, array in enumerate(self.inputs)
            if array is not None
        ]
        made = [
            info(f"out_{index}", code(np.dtype(SCALARS[scalar])), [None] * len(shape))
            for index, (scalar, shape) in enumerate(self.outputs)
        ]
        graph = onnx.helper.make_graph([node], "g", given, made)
        imports = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(domain, self.version)]
        return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def code(dtype: Any) -> int:
    return onnx.TensorProto.STRING if dtype.kind in "UTO" else onnx.helper.np_dtype_to_tensor_dtype(dtype)


def attribute(name: str, hint: str, value: Any) -> onnx.AttributeProto:
    types = onnx.AttributeProto
    if hint == "np.ndarray":
        return onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value))
    element = hint.partition("[")[2].rstrip("]").partition(",")[0]
    kinds = {"int": types.INTS, "float": types.FLOATS, "str": types.STRINGS}
    singles = {"int": types.INT, "bool": types.INT, "float": types.FLOAT, "str": types.STRING}
    if hint.startswith("Literal"):
        return onnx.helper.make_attribute(name, value, attr_type=singles[type(value).__name__])
    if element:
        return onnx.helper.make_attribute(name, list(value), attr_type=kinds[element])
    return onnx.helper.make_attribute(name, value, attr_type=singles[hint])


def generate(
    seed: int, scalars: tuple[str, ...], kinds: tuple[str, ...], every_name: tuple[str, ...] = NAMES
) -> Declared:
    """Return the declaration of a seed, with these element types, kinds of attributes and names of parameters."""
    chosen = random.Random(seed)
    array_of = np.random.default_rng(seed)
    names = chosen.sample(every_name, 12)
    variable = tuple(chosen.sample(scalars, min(len(scalars), chosen.randint(2, 3))))
    is_variable, bound = chosen.random() < 0.5, chosen.choice(variable)
    dtypes: list[str] = []

    def type_(position: str) -> tuple[str, str]:
        """Return a hint, and the element type that it has in the call."""
        if is_variable and chosen.random() < 0.5:
            return "NDArray[Shared]", bound
        abstract = chosen.choice(list(ABSTRACT))
        if position == "input" and set(ABSTRACT[abstract]) <= set(scalars) and chosen.random() < 0.2:
            return f"NDArray[np.{abstract}]", chosen.choice(ABSTRACT[abstract])
        scalar = chosen.choice(scalars)
        return f"NDArray[{scalar}]", scalar

    def array(scalar: str) -> Any:
        shape = tuple(chosen.randint(0, 3) for _ in range(chosen.randint(0, 3)))
        values = array_of.integers(0, 2 if scalar == "bool_" else 8, shape)
        if scalar == "str_":
            return np.array([f"λ{value}" for value in values.ravel()] + [None], object)[:-1].reshape(shape)
        return np.asarray(values).astype(SCALARS[scalar])

    made = Declared(
        f"{chosen.choice(DOMAINS)}::{chosen.choice(OPS)}",
        chosen.choice([1, 2, 7, 1000]),
        "",
        {"np": np, "NDArray": NDArray, "Literal": Literal, "NamedTuple": NamedTuple, "__name__": __name__, **SCALARS},
        [],
    )
    made.names["Shared"] = TypeVar("Shared", *[SCALARS[scalar] for scalar in variable])  # type: ignore[misc]
    parameters: list[str] = []
    first_optional = chosen.randint(1, 4)
    for index in range(chosen.randint(1, 4)):
        hint, scalar = ("NDArray[Shared]", bound) if is_variable and index == 0 else type_("input")
        name, is_optional = names.pop(), index >= first_optional
        parameters.append(f"{name}: {hint}{' | None = None' * is_optional}")
        value = None if is_optional and chosen.random() < 0.5 else array(scalar)
        made.inputs.append(value)
        made.received[name] = value
        dtypes.append(scalar)
    if chosen.random() < 0.3:
        hint, scalar = type_("input")
        name = names.pop()
        parameters.append(f"*{name}: {hint}")
        more = [array(scalar) for _ in range(chosen.randint(0, 3))]
        made.inputs += more
        made.received[name] = tuple(more)
    else:
        parameters.append("*")
    for kind in chosen.choices(kinds, k=chosen.randint(0, 4)):
        name, odd = names.pop(), ODD[kind]
        how = chosen.choice(["required", "default", "none"])
        if how == "default" and kind != "np.ndarray":
            default = chosen.choice(odd)
            made.names[f"default_{len(parameters)}"] = default
            parameters.append(f"{name}: {kind} = default_{len(parameters)}")
        else:
            default = None
            parameters.append(f"{name}: {kind}" + " | None = None" * (how != "required"))
        value = chosen.choice(odd) if how == "required" or chosen.random() < 0.5 else default
        if value is not default or how == "required":
            made.attributes[name] = value
        made.received[name] = as_float32(value)
    if parameters[-1] == "*":
        parameters.pop()
    results = [type_("output") for _ in range(chosen.randint(1, 3))]
    hints = [hint for hint, _ in results]
    shapes = [tuple(chosen.randint(0, 3) for _ in range(chosen.randint(0, 3))) for _ in results]
    made.outputs = [(scalar, shape) for (_, scalar), shape in zip(results, shapes, strict=True)]
    form = chosen.choice(["one", "tuple", "named", "variadic"])
    returned, before, after = f"tuple[{', '.join(hints)}]", "", ""
    if form == "one":
        made.outputs = made.outputs[:1]
        returned, after = hints[0], "[0]"
    elif form == "variadic":
        last = f"*tuple[{hints[-1]}, ...]" if hints[1:] else f"{hints[0]}, ..."
        returned = f"tuple[{', '.join([*hints[:-1], last])}]"
        made.outputs += made.outputs[-1:] * chosen.randint(0, 2)
    elif form == "named":
        known = [name if not name.startswith("_") else f"f{name}" for name in names[:2]]
        fields = chosen.sample(list(dict.fromkeys(["low", "type", "größe", "λ", "y" * 200, *known])), len(hints))
        lines = "".join(f"    {name}: {hint}\n" for name, hint in zip(fields, hints, strict=True))
        before, returned = f"class Result(NamedTuple):\n{lines}", "Result"
    made.names["digest"] = digest_into(made.outputs)
    body = "Result(*digest(got))" if form == "named" else f"digest(got){after}"
    head = f"from __future__ import annotations\n{before}def kernel({', '.join(parameters)}) -> {returned}:\n"
    made.source = f"{head}    got = locals()\n    return {body}\n"
    return made


def as_float32(value: Any) -> Any:
    if isinstance(value, float):
        return float(np.float32(value))
    return type(value)(map(as_float32, value)) if isinstance(value, (list, tuple)) else value


def same(found: Any, wanted: Any) -> None:
    found = found if isinstance(found, (tuple, list)) else (found,)
    for got, expected in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape, got.tolist()) == (expected.dtype, expected.shape, expected.tolist())


FAMILIES = (tuple(name for name in SCALARS if name != "str_"), (*TORCH, "str_", "uint16", "uint32", "uint64"))


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT))
def test_a_declaration_is_the_same_on_every_path(seed: int) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    declared = generate(seed, FAMILIES[seed % 2], tuple(ODD))
    wanted = digest_into(declared.outputs)(declared.received)
    module = ModuleType("generated_ops")
    declared.names["__name__"] = "generated_ops"
    with isolated_declarations(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "generated_ops", module)

        def declare(more: str = "") -> Any:
            op = pyops.onnx_op(declared.qualified_name, version=declared.version)(declared.function(more))
            op.register_shape_inference(declared.shapes)
            return op

        op = declare()
        same(op(*declared.inputs, **declared.attributes), wanted)
        specs = [None if a is None else pyops.shapes.TensorSpec(a.shape, a.dtype) for a in declared.inputs]
        inferred = op.infer_shapes(*specs, **declared.attributes)
        assert [(spec.shape, spec.dtype) for spec in inferred] == [(a.shape, a.dtype) for a in wanted]

        model = declared.model(random.Random(seed))
        feed = {f"in_{i}": array for i, array in enumerate(declared.inputs) if array is not None}
        session = pyops.InferenceSession(model)
        for _ in range(2):
            same(session.run(None, feed), wanted)
        names = len(model.graph.node[0].input), len(op.signature.inputs) - op.signature.is_variadic
        # ONNX Runtime's own sessions have such an op under another name, and want a name for each optional input before
        # a variadic one.
        if not is_mistaken(op) and (not op.signature.is_variadic or names[0] >= names[1]):
            same(run_plain(make_plain_session(model), feed), wanted)
        report = inspect_model(model)
        assert report.ok, report.problems
        assert [set(node.attributes) for node in report.nodes] == [
            {item.name for item in model.graph.node[0].attribute}
        ]
        with pyops.register_schemas():
            onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
            typed = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        for item, array in zip(typed.graph.output, wanted, strict=True):
            assert item.type.tensor_type.elem_type == code(array.dtype)
            assert tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) == array.shape

        assert cloudpickle.loads(cloudpickle.dumps(op)) is op
        same(pickle.loads(pickle.dumps(session)).run(None, feed), wanted)
        module.kernel = op  # type: ignore[attr-defined]
        assert pickle.loads(pickle.dumps(op)) is op
        assert len(pickle.dumps(op)) < 100
        same(pickle.loads(pickle.dumps(session)).run(None, feed), wanted)

        assert declare() is op
        more = ", added: int = 1" if "*" in declared.source.split(") ->")[0] else ", *, added: int = 1"
        assert declare(more) is not op
        for _ in range(2):
            same(session.run(None, feed), wanted)
        del module.kernel
        by_value = cloudpickle.dumps(op)
    with isolated_declarations():
        arrived = pickle.loads(by_value)
        assert (arrived is not op, arrived.signature) == (True, op.signature)
        same(arrived(*declared.inputs, **declared.attributes), wanted)
        same(pyops.InferenceSession(model).run(None, feed), wanted)


FOR_TORCH = tuple(name for name in NAMES if name.isascii() and name != "self")
TORCH_KINDS = tuple(kind for kind in ODD if kind != "np.ndarray")


@pytest.mark.parametrize("seed", range(SEED, SEED + COUNT, 10))
def test_a_declaration_is_the_same_in_torch_and_exported(seed: int) -> None:
    torch, exporters = pytest.importorskip("torch"), pytest.importorskip("exporters")
    declared = generate(seed, TORCH, TORCH_KINDS, FOR_TORCH)
    wanted = digest_into(declared.outputs)(declared.received)
    with isolated_declarations():
        op = pyops.onnx_op(declared.qualified_name, version=declared.version)(declared.function())
        op.register_shape_inference(declared.shapes)
        torch_op = exporters.custom_op(op, f"generated::kernel_{seed}")
        single = len(op.signature.inputs) - op.signature.is_variadic

        class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, *given: Any) -> Any:
                tensors = iter(given)
                args = [None if array is None else next(tensors) for array in declared.inputs]
                more = [args[single:]] if op.signature.is_variadic else []
                outputs = torch_op(*args[:single], *more, **declared.attributes)
                return tuple(flat(outputs))

        model = Model().eval()
        given = tuple(torch.from_numpy(array.copy()) for array in declared.inputs if array is not None)
        same([tensor.numpy() for tensor in model(*given)], wanted)
        program = exporters.export(model, given)
        report = exporters.verify(model, given, program)
        assert report.ok, report
        session = pyops.InferenceSession(program)
        assert [node.op_type for node in program.model_proto.graph.node] == [op.name]
        same(session.run(None, dict(zip(names_of(session), [x.numpy() for x in given], strict=True))), wanted)


def names_of(session: Any) -> list[str]:
    return [item.name for item in session.get_inputs()]


def flat(outputs: Any) -> list[Any]:
    if not isinstance(outputs, (tuple, list)):
        return [outputs]
    return [tensor for item in outputs for tensor in flat(item)]
