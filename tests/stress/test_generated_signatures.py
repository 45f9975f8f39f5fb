"""Signatures, inputs and attributes that hypothesis generates give the same in every engine and in a plain call.

Each kernel returns arrays that are a digest of everything it got, so that a difference in any value,
dtype, shape, order or default shows.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pyops
from pyops._runtime.extensions import registry as extensions_registry
from pyops._schema.hints import read_attribute
from pyops.errors import EngineError, InputError
from pyops.testing import strategies
from tests.helpers.engines import ENGINES, make_session

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


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(declaration=declarations(), data=st.data())
def test_an_engine_and_the_plain_call_agree(engine: str, declaration: tuple[str, Outputs], data: st.DataObject):
    source, outputs = declaration
    namespace = {"np": np, "NDArray": NDArray, "digest": digest_into(outputs), **SCALARS}
    exec(compile(source, "<generated>", "exec", dont_inherit=True), namespace)
    op = pyops.onnx_op("generated::Kernel")(namespace["kernel"])
    sample = data.draw(strategies.samples(op))
    if engine == "extensions" and extensions_registry.obstacles(op.signature):
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
