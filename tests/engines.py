"""The engines, and sessions in which each of them runs the ops."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import pyops
from pyops import ort_values
from tests.op_db import SAMPLES

SESSION_ENGINES = ("native",)
"""Those that host ops in sessions of ONNX Runtime."""
ENGINES = (*SESSION_ENGINES, "reference")


def sample_cases(engines: Sequence[str] = ENGINES) -> list[Any]:
    """The table times the engines, as pytest's parameters."""
    cases = []
    for engine in engines:
        for sample in SAMPLES:
            reason = sample.expected_failures.get(engine)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            cases.append(pytest.param(sample, engine, id=f"{engine}-{sample.id}", marks=marks))
    return cases


def make_session(model: onnx.ModelProto, engine: str = "native", options: Any = None) -> Any:
    """A `pyops.InferenceSession` that hosts the ops by an engine; ONNX's ReferenceEvaluator for ``reference``."""
    if engine == "reference":
        return ReferenceEvaluator(model, new_ops=pyops.reference_ops(model))
    assert engine == "native"
    return pyops.InferenceSession(model, options)


def make_plain_session(
    model: onnx.ModelProto, engine: str = "native", options: Any = None
) -> onnxruntime.InferenceSession:
    """ONNX Runtime's own session, with options that the ops are registered in."""
    assert engine == "native"
    options = pyops.register_custom_ops(options or onnxruntime.SessionOptions())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run_plain(session: onnxruntime.InferenceSession, feed: Mapping[str, Any]) -> list[Any]:
    """Run ONNX Runtime's own session, which takes bfloat16 and the like as OrtValues only."""
    types = {item.type for item in (*session.get_inputs(), *session.get_outputs())}
    if types.isdisjoint(ort_values.FOREIGN_TYPES):
        return session.run(None, feed)
    values = {name: ort_values.from_array(value) for name, value in feed.items()}
    return [ort_values.to_array(value) for value in session.run_with_ort_values(None, values)]
