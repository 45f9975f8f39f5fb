"""Tables of the results of runs, in Markdown and in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pyops._support.text_tables import text_table
from tests.helpers.markdown import as_cell, as_table
from tests.operator_coverage.plan import TOLERANCES, Mode
from tests.operator_coverage.results import Result, ResultFile, Status

_INTRODUCTION = """# Which of torch's operators can be exported

Torch tests its operators on sample calls, its OpInfo database. `python -m tests.operator_coverage` exported each of
these calls with each kind of export, ran it in ONNX Runtime, compared it with torch, and wrote this page. The columns:

- **reproduced**: every output has torch's dtype and shape, and its values are within a relative and an absolute
  tolerance of {tolerances}. Integers are equal.
- **random**: with another seed before every operator that torch tags `nondeterministic_seeded`, torch itself returns
  another result. **uninitialised**: with other memory contents in the results of `empty`, `empty_like`, `new_empty` and
  similar, torch itself returns another result. These calls count if the model is exported and runs, and dtypes and
  shapes agree; their values cannot be compared.
- **failed**: all other calls, with the reason below.
- **custom nodes**: the calls that torch's exporter does not translate, or translates wrongly, and that ops of
  `pyops.kernels` or fallback nodes compute: how many are reproduced, of how many. Random, uninitialised and fixed-size
  calls do not count here.

Calls that take or return no tensor are left out, as are calls that torch cannot run on this machine. The sample of an
operator is the first whose tensors all have elements. In the float32 runs, an operator without float32 uses the first
dtype that it supports. In the runs of another dtype, operators without this dtype are left out.

In the runs with every dimension dynamic, the sample is the first that torch also accepts at another size. The exported
model runs at that size: all dimensions, or as many as torch and the captured graph allow, are one smaller or larger.
For the operators under **fixed size**, torch accepts no sample at another size; they are reproduced at its own size.
"""

_LEFT_OUT = (Status.UNUSABLE, Status.ABSENT)


def summary(files: Sequence[ResultFile]) -> str:
    """Return a table with a row for each run, for a terminal."""
    return text_table([_header(), *map(_row, files)])


def as_markdown(files: Sequence[ResultFile]) -> str:
    """Return a page with a row for each run, and the calls of each run that are not reproduced, with reasons."""
    tolerances = ", ".join(
        f"{rtol:g} and {atol:g} for {str(dtype).removeprefix('torch.')}" for dtype, (rtol, atol) in TOLERANCES.items()
    )
    parts = [_INTRODUCTION.format(tolerances=tolerances), as_table([_header(), *map(_row, _ordered(files))])]
    for file in _ordered(files):
        parts += [f"## {_title(file)}\n", *_left(file)]
    return "\n".join(parts)


def as_json(files: Sequence[ResultFile]) -> str:
    """Return every run in JSON: its plan, versions, counts and results; reproduced calls by name alone."""
    return json.dumps([_as_data(file) for file in _ordered(files)], indent=1, ensure_ascii=False) + "\n"


def _ordered(files: Iterable[ResultFile]) -> list[ResultFile]:
    modes = list(Mode)
    return sorted(
        files, key=lambda file: (file.plan.dtype, file.plan.samples, file.plan.dynamic, modes.index(file.plan.mode))
    )


def _as_data(file: ResultFile) -> dict[str, Any]:
    counted = _counted(file)
    others = [item for item in file if item.status not in (Status.REPRODUCED, Status.ABSENT)]
    return {
        "plan": asdict(file.plan),
        "versions": file.versions,
        "counts": dict(Counter(item.status for item in counted)),
        "reproduced": [_name(file, item) for item in counted if item.status is Status.REPRODUCED],
        "custom nodes": {_name(file, item): item.custom_nodes for item in counted if item.custom_nodes},
        "others": [_shown(item) for item in others],
    }


def _shown(result: Result) -> dict[str, Any]:
    names = ("op", "sample", "status", "kind", "reason")
    return {name: value for name, value in asdict(result).items() if name in names and value != ""}


def _counted(file: ResultFile) -> list[Result]:
    return [item for item in file if item.status not in _LEFT_OUT]


def _header() -> list[str]:
    return ["run", "calls", "reproduced", "random", "uninitialised", "fixed size", "failed", "custom nodes"]


def _row(file: ResultFile) -> list[str]:
    counted = _counted(file)
    counts = Counter(item.status for item in counted)
    own = [item for item in counted if item.custom_nodes and item.status in (Status.REPRODUCED, Status.FAILED)]
    good = sum(item.status is Status.REPRODUCED for item in own)
    others = (Status.REPRODUCED, Status.RANDOM, Status.UNINITIALISED, Status.FIXED, Status.FAILED)
    return [_title(file), str(len(counted)), *(str(counts[item]) for item in others), f"{good} of {len(own)}"]


def _title(file: ResultFile) -> str:
    return file.plan.title if file.complete else f"{file.plan.title} (not complete)"


def _left(file: ResultFile) -> list[str]:
    parts = []
    for status in (Status.RANDOM, Status.UNINITIALISED, Status.FIXED):
        names = [f"`{_name(file, item)}`" for item in file if item.status is status]
        if names:
            parts.append(f"{status.capitalize()}: {', '.join(names)}.\n")
    failed = [item for item in file if item.status is Status.FAILED]
    if failed:
        kinds = Counter(item.kind for item in failed).most_common()
        summed = ", ".join(f"{kind}: {count}" for kind, count in kinds)
        rows = [[_name(file, item), item.kind, as_cell(item.reason)] for item in failed]
        listed = as_table([["operator", "what happened", "reason"], *rows])
        parts.append(f"<details><summary>{len(failed)} failed ({summed})</summary>\n\n{listed}\n</details>\n")
    return parts


def _name(file: ResultFile, result: Result) -> str:
    return f"{result.op}[{result.sample}]" if file.plan.samples > 1 else result.op
