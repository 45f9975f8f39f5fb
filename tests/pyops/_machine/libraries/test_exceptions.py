"""The exceptions of libraries: the text is that of the same kernel in Python, with the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyops
from pyops.errors import CompileError
from pyops.testing import Sample
from tests.pyops._machine.libraries.plain import plain_results
from tests.pyops._machine.libraries.raising_ops import OPS, whole_array

pytestmark = pytest.mark.exhaustive


def test_the_text_is_that_of_the_kernel_in_python(tmp_path: Path) -> None:
    samples = [Sample(op, np.array([1.5, 2.0])) for op in OPS]
    pyops.build(tmp_path / "lib.so", examples=samples)
    for op, sample, text in zip(OPS, samples, plain_results(tmp_path / "lib.so", samples), strict=True):
        with pytest.raises(Exception) as raised:  # noqa: PT011  # its type is part of the text
            op.kernels["cpu"].plain(*sample.inputs, **sample.attributes)
        code = op.kernels["cpu"].plain.__code__
        message = str(raised.value).replace(
            "np.float64(1.5000000000000002e+30)", "1.5000000000000002e+30"
        )  # compiled code has plain numbers
        expected = f"{op.signature.qualified_name}: {raised.type.__name__}{': ' * bool(message)}{message}"
        assert f"{expected} (raising_ops.py:{code.co_firstlineno + 3}, in " in text


def test_a_value_that_needs_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="an exception with an array among its values, where a shape, numbers and"):
        pyops.build(tmp_path / "lib.so", examples=[Sample(whole_array, np.ones(2))])
