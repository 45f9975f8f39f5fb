"""`pyops.list_ops()`: the declared ops, in a terminal and in a notebook."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, TypeVar

import ml_dtypes
import numpy as np
import onnxruntime_extensions
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from pyops._core.ops import op_registry
from tests.helpers.scripts import PREAMBLE, run_plain_script

T = TypeVar("T", np.float16, np.float32)
Many = TypeVar("Many", np.int8, np.int16, np.int32, np.int64, np.uint8, ml_dtypes.bfloat16)
F32, C64 = NDArray[np.float32], NDArray[np.complex64]


@pytest.fixture(autouse=True)
def nothing_declared() -> None:
    op_registry._ops.clear()


def declare(domain: str = "listing", name: str = "Scale", version: int = 1) -> Op[..., Any]:
    @onnx_op(f"{domain}::{name}", version=version)
    def scale(x: NDArray[T], *rest: NDArray[Many], by: float = 0.1, mode: Literal["a", "<b>"] = "<b>") -> NDArray[T]:
        return x

    return scale


def listed() -> list[Op[..., Any]]:
    """What is declared with pyops; other tests may have used onnxruntime-extensions."""
    return [op for op in pyops.list_ops() if op.domain.startswith("listing")]


def cells(op: Op[..., Any]) -> dict[str, str]:
    """The row of an op by its header."""
    rows = Rows()
    rows.feed(pyops.list_ops()._repr_html_())
    header, *body = rows.rows
    return next(row for row in (dict(zip(header, row, strict=True)) for row in body) if row["op type"] == op.name)


class Rows(HTMLParser):
    """The texts in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        else:
            assert tag in ("table", "thead", "tbody", "p"), f"<{tag}> is not escaped"

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_it_is_a_sequence_of_ops_by_domain_name_and_version() -> None:
    second, last, first = declare(version=2), declare("listing.more"), declare(version=1)
    other = declare(name="Other")
    found = pyops.list_ops()
    assert isinstance(found, Sequence)
    assert listed() == [other, first, second, last]
    assert found[len(found) - 1] in found
    assert list(found[:2]) == list(found)[:2]


def test_it_stays_what_it_was_when_more_is_declared() -> None:
    declare()
    before = pyops.list_ops()
    declare(name="Another")
    assert len(pyops.list_ops()) == len(before) + 1


def test_a_row_says_all_of_an_op() -> None:
    op = declare(version=3)
    op.register_kernel("cuda")(lambda x, *rest, by, mode: x)
    line = inspect.getsourcelines(declare)[1] + 1
    source = Path(__file__)
    shown = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
    assert cells(op) == {
        "domain": "listing",
        "op type": "Scale",
        "version": "3",
        "devices": "cpu, cuda",
        "engine": "native",
        "source": f"{shown}:{line}",
        "signature": "(x: T, *rest: Many, *, by: float = 0.1, mode: Literal['a', '<b>'] = '<b>') -> T; "
        "T: float16, float32; Many: int8, int16, int32, int64 and 2 more",
    }


def test_the_terminal_shows_the_same_in_columns() -> None:
    op = declare()
    header, *rows = repr(pyops.list_ops()).splitlines()
    row = next(row for row in rows if row.startswith("listing"))
    for name, cell in cells(op).items():
        assert row[header.index(name) :].startswith(cell)


def test_an_op_that_no_session_can_host_says_so() -> None:
    @onnx_op("listing::Conjugate")
    def conjugate(x: C64) -> C64:
        return x.conj()

    assert cells(conjugate)["engine"] == "reference"


@pytest.mark.parametrize("installed", [True, False])
def test_where_native_does_not_work_it_says_which_ops_extensions_hosts(installed: bool) -> None:
    script = f"""
import platform
platform.machine = lambda: "sparc"
if not {installed}:
    sys.modules["onnxruntime_extensions"] = None

@onnx_op("listing::Carried")
def carried(x: F32) -> F32:
    return x

@onnx_op("listing::Half")
def half(x: NDArray[np.float16]) -> F32:
    return x.astype(np.float32)

for row in repr(pyops.list_ops()).splitlines()[1:]:
    print(row.split()[4])
print(bool(sys.modules.get("onnxruntime_extensions")))
"""
    run_plain_script(PREAMBLE + script, f"{'extensions' if installed else 'reference'}\nreference\nFalse")


def test_without_onnxruntime_only_the_evaluator_runs_them() -> None:
    script = """
import sys
sys.modules["onnxruntime"] = None
import numpy as np, pyops
from numpy.typing import NDArray

@pyops.onnx_op("listing::Op")
def op(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x

print(repr(pyops.list_ops()).splitlines()[1].split()[4])
"""
    run_plain_script(script, "reference")


def test_what_onnxruntime_extensions_itself_declares_is_not_listed() -> None:
    def shipped(x: Any) -> Any:  # as the one that it has where torch is installed
        return x

    shipped.__module__ = "onnxruntime_extensions._cuops"
    onnxruntime_extensions.onnx_op(op_type="listing.shipped::Op")(shipped)
    assert not [op for op in pyops.list_ops() if op.domain == "listing.shipped"]


def test_functions_declared_with_onnxruntime_extensions_are_listed() -> None:
    code = onnxruntime_extensions.PyCustomOpDef.dt_float

    @onnxruntime_extensions.onnx_op(op_type="listing.adopted::Third", inputs=[code], outputs=[code])
    def third(x):
        return x / np.float32(3)

    (op,) = listed()
    assert (op.domain, op.name) == ("listing.adopted", "Third")
    assert "test_list_ops.py:" in cells(op)["source"]


def test_nothing_declared_is_said() -> None:
    from pyops._display.op_table import OpTable

    assert repr(OpTable([])) == "no ops are declared"
    assert OpTable([], ["a <note>"])._repr_html_() == "<p>no ops are declared</p><p>a &lt;note&gt;</p>"
