"""The page with the results of ONNX's node tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx
import onnxruntime

from pyops._support.text_tables import text_table
from tests.helpers.markdown import as_cell, as_table
from tests.node_tests.attempt import Result

Results = Mapping[tuple[bool, bool], Sequence[Result]]
"""The results of each run: with bfloat16 in place of float32 or not, with `fill_missing` or not."""

_RANDOM = re.compile(r"test_(bernoulli|training_dropout)")
_GROUP = re.compile(r"  (?P<kind>.+), by (?P<by>.+): (?P<nodes>.+)")

_INTRODUCTION = """# ONNX's node tests

`python -m tests.node_tests` ran the {count} node tests of onnx {onnx} in `pyops.InferenceSession` on onnxruntime
{onnxruntime}'s CPU execution provider, without [`fill_missing`](fill_missing.md) and with it, and wrote this page.
A test is reproduced if every output has the expected type and shape, and values within the test's own tolerances; for
bfloat16 within a relative 2⁻⁶, as in the runner of onnx.

The float32 tests whose operators ONNX defines for bfloat16 were run again with bfloat16 in place of every float32. They
are reproduced if they give what float32 gives for the same rounded inputs, within 2⁻⁶ of the value, or of the largest
value of its output.
"""


def summary(results: Results) -> str:
    """Return the counts of each run, for a terminal."""
    return text_table(_counts(results))


def _counts(results: Results) -> list[list[str]]:
    rows = [["tests", "fill_missing", "run", "reproduced", "random", "not reproduced"]]
    for (bfloat16, fill_missing), found in results.items():
        random = [item for item in found if item.problem and _is_random(item)]
        good = [item for item in found if not item.problem]
        counts = (len(found), len(good), len(random), len(found) - len(good) - len(random))
        kind = "float32 as bfloat16" if bfloat16 else "as they are"
        rows.append([kind, str(fill_missing), *map(str, counts)])
    return rows


def _is_random(result: Result) -> bool:
    return bool(_RANDOM.match(result.name)) and "values differ" in result.problem


def as_markdown(results: Results) -> str:
    """Return the page: the counts, what is not reproduced with its reason, and what was filled."""
    counts = as_table(_counts(results))
    versions = {"count": len(results[False, False]), "onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__}
    parts = [_INTRODUCTION.format(**versions), counts]
    for bfloat16, title in ((False, "as they are"), (True, "with bfloat16 in place of float32")):
        left = [item for item in results[bfloat16, True] if item.problem]
        alone = {item.name for item in results[bfloat16, False] if not item.problem}
        rows = [[item.name, _reason(item), "yes" if item.name in alone else "no"] for item in left]
        parts.append(f"## Not reproduced with fill_missing, {title}\n")
        parts.append(as_table([["test", "reason", "without it"], *rows]))
    for bfloat16, title in ((False, "as they are"), (True, "with bfloat16 in place of float32")):
        filled: dict[tuple[str, str], int] = {}
        for item in results[bfloat16, True]:
            for kind, by, _ in _GROUP.findall(item.warned):
                filled[by, kind.partition("(")[0]] = filled.get((by, kind.partition("(")[0]), 0) + 1
        rows = [
            [by, ", ".join(f"{kind} ({count})" for (who, kind), count in sorted(filled.items()) if who == by)]
            for by in dict.fromkeys(who for who, _ in sorted(filled))
        ]
        parts.append(f"## Filled, {title}\n\nIn how many tests, by operator and version of its definition:\n")
        parts.append(as_table([["by", "operators"], *rows]))
    return "\n".join(parts)


def _reason(result: Result) -> str:
    if _is_random(result):
        return "random: the type and the shape are as expected"
    # The rest names lines of ONNX Runtime's source.
    text = re.sub(r"/onnxruntime_src/\S+", "", result.problem.splitlines()[0])
    return as_cell(text if len(text) <= 240 else f"{text[:237]}...")
