"""Tables of the results of runs, in Markdown and in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pyops._tables import text_table
from tests.operator_coverage.plan import TOLERANCES, Mode
from tests.operator_coverage.results import Result, ResultFile, Status

_INTRODUCTION = """# Which of torch's operators can be exported

Torch tests its operators on sample calls, its OpInfo database. Here each was exported, run in ONNX Runtime and
compared with torch, by each kind of export. `python -m tests.operator_coverage` wrote this page.

- **reproduced**: every output has torch's dtype and shape, and its values within a relative and an absolute tolerance
  of {tolerances}. Integers are equal.
- **random**: another seed before every operator that torch tags `nondeterministic_seeded` gives another result in
  torch itself, by more than the tolerances. **uninitialised**: other content of what `empty`, `empty_like`,
  `new_empty` and the like return does.
  Such calls count here if they are exported and run, and dtypes and shapes agree; there are no values to compare.
- **failed**: all others, with the reason below.
- **custom nodes**: of the calls that torch's exporter cannot translate, or not rightly, so that ops of `pyops.kernels`
  or torch run them in the exported model, those that are reproduced; random, uninitialised and fixed ones are not
  among them.

Calls that take or return no tensor are left out, and those that torch does not run on this machine. A sample is the
first of its operator whose tensors are all non-empty. Where an operator has no float32, the first dtype that it has
is taken; for another dtype, operators without it are left out.

In runs with every dimension dynamic a sample is the first that torch takes at another size too, which is the size that
the exported model is run at: all dimensions, or as many as torch and the captured graph let, one smaller or larger.
**fixed size** are the operators of which torch takes no sample at another size; they are reproduced at their own.
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
    parts = [_INTRODUCTION.format(tolerances=tolerances), _table([_header(), *map(_row, _ordered(files))])]
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
        rows = [[_name(file, item), item.kind, _cell(item.reason)] for item in failed]
        listed = _table([["operator", "what happened", "reason"], *rows])
        parts.append(f"<details><summary>{len(failed)} failed ({summed})</summary>\n\n{listed}\n</details>\n")
    return parts


def _name(file: ResultFile, result: Result) -> str:
    return f"{result.op}[{result.sample}]" if file.plan.samples > 1 else result.op


def _table(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    # Python code in a message must not render as a link or as HTML.
    return text.replace("|", "\\|").replace("<", "&lt;").replace("](", "] (")
