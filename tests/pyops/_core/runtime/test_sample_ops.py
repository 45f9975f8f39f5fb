from typing import Any

import numpy as np
import pytest

from pyops.testing import Sample
from tests.helpers.engines import PLAIN_ENGINES, make_plain_session, make_session, run_plain, sample_cases
from tests.helpers.models import assert_same
from tests.helpers.op_db import DTYPES, SAMPLES

over_the_table = pytest.mark.parametrize(("sample", "engine"), sample_cases())
over_the_table_in_plain_sessions = pytest.mark.parametrize(
    ("sample", "engine"), sample_cases(PLAIN_ENGINES, exhaustive=True)
)
over_the_table_with_open_shapes = pytest.mark.parametrize(("sample", "engine"), sample_cases(exhaustive=True))


@over_the_table
def test_a_session_gives_what_the_plain_call_gives(sample: Sample, engine: str) -> None:
    session = make_session(sample.model(), engine)
    assert_same(session.run(None, sample.feed), sample.expected())


@over_the_table_in_plain_sessions
def test_a_session_of_onnxruntime_gives_what_the_plain_call_gives(sample: Sample, engine: str) -> None:
    session = make_plain_session(sample.model(), engine)
    assert_same(run_plain(session, sample.feed), sample.expected())


@over_the_table_with_open_shapes
def test_a_model_may_leave_all_shapes_open(sample: Sample, engine: str) -> None:
    session = make_session(sample.model(dynamic=True), engine)
    for _ in range(2):
        assert_same(session.run(None, sample.feed), sample.expected())


def test_one_session_takes_one_shape_after_another() -> None:
    sample = next(sample for sample in SAMPLES if sample.id == "Reverse-float32")
    session = make_session(sample.model(dynamic=True))
    for shape in [(2, 3), (0, 3), (1,), (70, 80), (2, 2, 2), (2, 3)]:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert_same(session.run(None, {"x": x}), [sample.op(x)])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_element_type_is_in_the_table(dtype: Any) -> None:
    assert any(array is not None and array.dtype == dtype for sample in SAMPLES for array in sample.inputs)


def test_samples_have_names_of_their_own() -> None:
    names = [sample.id for sample in SAMPLES]
    assert len(set(names)) == len(names)
