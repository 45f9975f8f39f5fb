"""Signatures, inputs and attributes that hypothesis makes up give the same through every engine and a plain call.

Each kernel returns arrays that are a digest of everything it got, so that a difference in any value,
dtype, shape, order or default shows.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import hypothesis.extra.numpy as st_numpy
import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import pyops
from pyops.engines import extensions_carried
from pyops.errors import EngineError
from pyops.types import element_type
from tests.engines import ENGINES, make_session

pytestmark = pytest.mark.stress

SCALARS = {
    **{f"float{bits}": getattr(np, f"float{bits}") for bits in (16, 32, 64)},
    **{f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")},
    "bool_": np.bool_,
    "str_": np.str_,
}
SHAPES = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**63), 2**63 - 1)
ATTRIBUTES = {
    "int": INTS,
    "float": FLOATS,
    "bool": st.booleans(),
    "str": TEXT,
    "list[int]": st.lists(INTS, max_size=3),
    "list[float]": st.lists(FLOATS, max_size=3),
    "list[str]": st.lists(TEXT, max_size=3),
    "tuple[int, ...]": st.lists(INTS, max_size=3).map(tuple),
    "np.ndarray": st_numpy.arrays(np.float64, SHAPES, elements=st.floats(-9, 9)),
}


@dataclass
class Case:
    """An op as source, what it is called with, and what its outputs are."""

    source: str
    inputs: list[Any]
    attributes: dict[str, Any]
    kinds: dict[str, str]
    outputs: list[tuple[str, tuple[int, ...]]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    parameters, inputs = [], []
    count = draw(st.integers(1, 8))
    first_optional = draw(st.integers(1, count))
    for index in range(count):
        scalar = draw(st.sampled_from(list(SCALARS)))
        optional = index >= first_optional
        parameters.append(f"x{index}: NDArray[{scalar}]" + (" | None = None" if optional else ""))
        inputs.append(None if optional and draw(st.booleans()) else draw(arrays(scalar)))
    if draw(st.booleans()):
        scalar = draw(st.sampled_from(list(SCALARS)))
        parameters.append(f"*rest: NDArray[{scalar}]")
        inputs += [draw(arrays(scalar)) for _ in range(draw(st.integers(0, 3)))]
    else:
        parameters.append("*")
    attributes, kinds = {}, {}
    for index, kind in enumerate(draw(st.lists(st.sampled_from(list(ATTRIBUTES)), max_size=4))):
        kinds[f"a{index}"] = kind
        default = draw(st.sampled_from(["", "value", "None"]))
        if default == "None":
            parameters.append(f"a{index}: {kind} | None = None")
        elif default and kind != "np.ndarray":
            parameters.append(f"a{index}: {kind} = {draw(ATTRIBUTES[kind])!r}")
        else:
            parameters.append(f"a{index}: {kind}")
        if not default or (default == "value" and kind == "np.ndarray") or draw(st.booleans()):
            attributes[f"a{index}"] = draw(ATTRIBUTES[kind])
    if parameters[-1] == "*":
        parameters.pop()
    outputs = draw(st.lists(st.tuples(st.sampled_from(list(SCALARS)), SHAPES), min_size=1, max_size=3))
    returned = ", ".join(f"NDArray[{scalar}]" for scalar, _ in outputs)
    source = f"def kernel({', '.join(parameters)}) -> tuple[{returned}]:\n    return digest(locals())\n"
    return Case(source, inputs, attributes, kinds, outputs)


@st.composite
def arrays(draw: st.DrawFn, scalar: str) -> Any:
    shape = draw(SHAPES)
    if scalar == "str_":
        return draw(st_numpy.arrays(object, shape, elements=TEXT, fill=st.just("")))
    dtype = np.dtype(SCALARS[scalar])
    if dtype.kind == "V" or scalar in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        values = draw(st_numpy.arrays(np.int8, shape, elements=st.integers(-8, 8)))
        return values.astype(dtype)
    array = draw(st_numpy.arrays(dtype, shape))
    return array.T if draw(st.booleans()) else array


def digest_into(outputs: list[tuple[str, tuple[int, ...]]]) -> Any:
    def digest(arguments: dict[str, Any]) -> tuple[Any, ...]:
        text = repr({name: spelled(value) for name, value in arguments.items()})
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


def model_for(case: Case) -> onnx.ModelProto:
    names = ["" if value is None else f"i{index}" for index, value in enumerate(case.inputs)]
    while names and not names[-1]:
        names.pop()
    outputs = [f"o{index}" for index in range(len(case.outputs))]
    node = helper.make_node("Kernel", names, outputs, domain="generated")
    for name, value in case.attributes.items():
        node.attribute.append(attribute(name, value, case.kinds[name]))
    infos = [
        helper.make_tensor_value_info(name, element_type(value.dtype).onnx, [None] * value.ndim)
        for name, value in zip(names, case.inputs, strict=False)
        if name
    ]
    results = [
        helper.make_tensor_value_info(name, element_type(SCALARS[scalar]).onnx, None)
        for name, (scalar, _) in zip(outputs, case.outputs, strict=True)
    ]
    graph = helper.make_graph([node], "generated", infos, results)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("generated", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def attribute(name: str, value: Any, kind: str) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, onnx.numpy_helper.from_array(value))
    if isinstance(value, (list, tuple)) and not value:
        types = {
            "int": onnx.AttributeProto.INTS,
            "float": onnx.AttributeProto.FLOATS,
            "str": onnx.AttributeProto.STRINGS,
        }
        return helper.make_attribute(name, [], attr_type=next(types[element] for element in types if element in kind))
    return helper.make_attribute(name, int(value) if isinstance(value, bool) else value)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_an_engine_and_the_plain_call_agree(engine: str, case: Case):
    namespace = {"np": np, "NDArray": NDArray, "digest": digest_into(case.outputs), **SCALARS}
    exec(compile(case.source, "<generated>", "exec", dont_inherit=True), namespace)
    op = pyops.onnx_op("generated::Kernel")(namespace["kernel"])
    expected = op(*case.inputs, **case.attributes)
    if engine == "extensions" and extensions_carried.obstacles(op.signature):
        with pytest.raises(EngineError, match="onnxruntime-extensions cannot carry its"):
            make_session(model_for(case), engine)
        return
    session = make_session(model_for(case), engine)
    feed = {f"i{index}": value for index, value in enumerate(case.inputs) if value is not None}
    for wanted, got in zip(expected, session.run(None, feed), strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tolist() == wanted.tolist()
