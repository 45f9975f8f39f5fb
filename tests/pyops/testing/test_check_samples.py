"""`pyops.testing.check` over tables: ops that pass, and ops with a fault each."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pyops.testing import CheckReport, Sample, check
from tests.helpers import op_db, op_db_shapes
from tests.pyops._machine.compiled import compiled_db
from tests.pyops.testing.faulty_db import FAULTS, Fault
from tests.pyops.testing.halving import WITHOUT_TORCH

# One sample of each op, and its last: of types that few others have, or with all there is.
SOME = dict.fromkeys(
    sample for which in (1, -1) for sample in {sample.op.name: sample for sample in op_db.SAMPLES[::which]}.values()
)


def assert_passes(sample: Sample, checks: Any = WITHOUT_TORCH) -> CheckReport:
    report = check(sample, checks=checks, raise_exception=False)
    assert report.ok, report
    return report


@pytest.mark.parametrize("sample", SOME)
def test_sample_ops_pass(sample: Sample):
    op_db_shapes.register_all()
    report = assert_passes(sample)
    assert {"shape_function", "engine_reference", "thread_safe"} <= {r.name for r in report if r.status == "passed"}


@pytest.mark.stress
@pytest.mark.parametrize("sample", op_db.SAMPLES)
def test_all_samples_pass(sample: Sample):
    op_db_shapes.register_all()
    assert_passes(sample)


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::pyops.errors.CompileWarning")
@pytest.mark.parametrize("sample", compiled_db.SAMPLES)
def test_all_compiled_samples_pass(sample: Sample):
    assert assert_passes(sample)["compiled"].status == "passed"


def test_there_are_twenty_faults_in_twenty_ops():
    assert len(FAULTS) >= 20
    assert len({fault.sample.op.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.sample.id)
def test_a_planted_fault_is_found_by_the_check_that_is_named_for_it(fault: Fault):
    report = check(fault.sample, checks=WITHOUT_TORCH, raise_exception=False)
    assert [result.name for result in report.failed] == [fault.check], report
    assert re.search(fault.reason, report[fault.check].reason, re.DOTALL), report
