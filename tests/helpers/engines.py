"""The engines, and sessions in which they run the ops."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
import pytest

import pyops
from pyops._core.runtime import ort_values
from pyops.testing import Sample
from pyops.testing._engine_checks import ENGINES as ENGINES
from pyops.testing._engine_checks import make_session as make_session
from tests.helpers.op_db import SAMPLES, expected_failures

PLAIN_ENGINES = ("native", "extensions-plain")
"""The engines in ONNX Runtime's own sessions, where one of them supports less."""


def sample_cases(
    engines: Sequence[str] = ENGINES, samples: Sequence[Sample] = SAMPLES, exhaustive: bool = False
) -> list[Any]:
    """Each sample with each engine, as pytest's parameters; with `exhaustive`, only the first engine is quick."""
    cases = []
    for engine in engines:
        for sample in samples:
            reason = expected_failures(sample).get(engine)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            if exhaustive and engine != engines[0]:
                marks.append(pytest.mark.exhaustive)
            cases.append(pytest.param(sample, engine, id=f"{engine}-{sample.id}", marks=marks))
    return cases


def make_plain_session(
    model: onnx.ModelProto, engine: str = "native", options: Any = None
) -> onnxruntime.InferenceSession:
    """ONNX Runtime's own session, with options in which the ops are registered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what an engine leaves out
        options = pyops.register_custom_ops(options or onnxruntime.SessionOptions(), engine.partition("-")[0])
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run_plain(session: onnxruntime.InferenceSession, feed: Mapping[str, Any]) -> list[Any]:
    """Run ONNX Runtime's own session, which takes bfloat16 and similar types only as OrtValues."""
    types = {item.type for item in (*session.get_inputs(), *session.get_outputs())}
    if types.isdisjoint(ort_values.FOREIGN_TYPES):
        return session.run(None, feed)
    values = {name: ort_values.from_array(value) for name, value in feed.items()}
    return [ort_values.to_array(value) for value in session.run_with_ort_values(None, values)]
