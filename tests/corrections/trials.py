"""Exports of cases with a row of the library and without it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import onnxruntime
import torch

import pyops
from exporters._library import translation_order
from exporters._library.row_table import Row, complex_rows, decompositions, rows
from exporters._lowering.translations import Registration
from exporters._torch.private.operators import OpOverload, qualified_name
from exporters._torch.private.trees import flatten, unflatten
from exporters._torch.tensors import as_onnx_array
from tests.exporters._library.kernel_calls import Call, calls, infos, run
from tests.exporters._library.test_library_samples import samples
from tests.exporters._library.test_wrong_translations import Calls, exported, given, tolerance

Case = tuple[Any, tuple[Any, ...], tuple[Any, ...] | None]
"""A function, its arguments, and others of other sizes."""


Table = dict[str, Any]

TABLES: tuple[Table, ...] = (rows, complex_rows, decompositions)


@contextmanager
def without(table: Table, name: str) -> Iterator[None]:
    """Context manager: a table without what corrects an operator."""
    before = table.pop(name)
    translation_order._targets.cache_clear()
    try:
        yield
    finally:
        table[name] = before
        translation_order._targets.cache_clear()


def used(case: Case) -> list[tuple[Table, str]]:
    """Return what corrects a call of a case, each as a table and a name."""
    found: dict[tuple[int, str], tuple[Table, str]] = {}

    def recording(table: Table, name: str, row: Row) -> Row:
        def translation(*args: Any, **kwargs: Any) -> Any:
            result = row.registration.translation(*args, **kwargs)
            if result is not NotImplemented:
                found[id(table), name] = table, name
            return result

        return replace(row, registration=Registration(translation, row.registration.source))

    def decomposing(captured: torch.export.ExportedProgram) -> Any:
        operators = decomposed(captured)
        for target in (node.target for node in captured.graph.nodes if isinstance(node.target, OpOverload)):
            if target.overloadpacket in operators:
                name = qualified_name(target).partition(".")[0]
                found[id(decompositions), name] = decompositions, name
        return operators

    decomposed = translation_order.decomposed
    before = [dict(table) for table in (rows, complex_rows)]
    try:
        for table in (rows, complex_rows):
            table |= {name: recording(table, name, row) for name, row in table.items() if row.replaces}
        with mock.patch.object(translation_order, "decomposed", decomposing):
            difference(case)
    finally:
        rows.update(before[0])
        complex_rows.update(before[1])
    return list(found.values())


def difference(case: Case) -> str | None:
    """Return how the exported model of a case differs from torch, or why there is none."""
    cases: Mapping[str, Case] = {"": case}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = pyops.InferenceSession(exported(cases, dynamic=case[2] is not None), options)
        for index in (1, 2):
            arrays = map(as_onnx_array, given(cases, index))
            feeds = dict(zip([item.name for item in session.get_inputs()], arrays, strict=True))
            found = _difference(session.run(None, feeds), Calls(cases)(*given(cases, index))[0])
            if found:
                return found
    except Exception as error:
        # Without the folders of files, which are those of one machine.
        message = re.sub(r"(?<!\S)/\S*/", "", str(error).strip().splitlines()[0])
        return f"{type(error).__name__}: {message[:300]}"
    return None


def _difference(found: list[np.ndarray], wanted: list[torch.Tensor]) -> str | None:
    for number, (actual, leaf) in enumerate(zip(found, wanted, strict=True)):
        expected = as_onnx_array(torch.view_as_real(leaf) if leaf.is_complex() else leaf)
        actual = np.asarray(actual)
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            kinds = [f"{item.dtype}{list(item.shape)}" for item in (actual, expected)]
            return f"result {number} is {kinds[0]}; torch gives {kinds[1]}"
        close = np.isclose(actual, expected, *tolerance(expected.dtype), equal_nan=True)
        if not close.all():
            place = tuple(map(int, np.argwhere(~close)[0]))
            return f"result {number} is {actual[place]!r} at {list(place)}; torch gives {expected[place]!r}"
    return None


def sampled(row: str) -> dict[str, Case]:
    """Return calls of torch's database that a row translates."""
    found: dict[str, Case] = {}
    for op, dtype in itertools.product(samples(row), (torch.float32, torch.float64, torch.complex64)):
        if dtype in infos()[op].supported_dtypes("cpu"):
            mine = (call for call in calls(op, dtype) if call.name == row and run(call) is not None)
            for number, call in enumerate(itertools.islice(mine, 2)):
                found[f"{op} of {dtype}, {number}"] = _as_case(call)
    return found


def _as_case(call: Call) -> Case:
    leaves = flatten((call.args, call.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        filled = {**dict(enumerate(leaves)), **dict(zip(places, tensors, strict=True))}
        args, kwargs = unflatten((call.args, call.kwargs), list(filled.values()))
        return call.target(*args, **kwargs)

    return function, tuple(leaves[place] for place in places), None


def verdicts(cases: Mapping[str, Case]) -> dict[str, tuple[str, str | None]]:
    """Return, for each correction that a case uses, the case that shows torch wrong, and how; None if none does."""
    found: dict[str, tuple[str, str | None]] = {}
    for title, case in cases.items():
        for table, name in used(case):
            if found.get(name, ("", None))[1] is None:
                with without(table, name):
                    found[name] = title, difference(case)
    return found
