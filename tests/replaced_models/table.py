"""The table of the results, in Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from tests.helpers.markdown import as_cell, as_table
from tests.operator_coverage.results import versions
from tests.replaced_models.attempt import Exporter, Result
from tests.replaced_models.ops import LAYERS

_TITLE = "# Where layers are found"
_INTRODUCTION = """\
`python -m tests.replaced_models` created small transformers with random weights, counted the layers that their modules
call, exported the models, searched them with [`pyops.replace`](replacing.md), and wrote this page, with {versions}. A
cell is the number of layers that were found, of how many that the model has. Numbers are compared in what
`exporters.export` makes. "fixed" after an opset: the sizes are those of the example."""

Results = Mapping[tuple[str, Exporter, int], Result]


def line(result: Result) -> str:
    """Return a result in one line."""
    if result.failed:
        return f"failed: {result.failed}"
    counts = ", ".join(f"{kind} {cell}" for kind, cell in zip(LAYERS, _cells(result), strict=True) if cell)
    reasons = "".join(f"\n    {kind}: {reason}" for kind, own in result.reasons.items() for reason in own)
    return counts + (f" [fixed: {result.fixed}]" if result.fixed else "") + reasons


def as_markdown(results: Results, failed: Mapping[str, str]) -> str:
    """Return a page: a row for each export, and the reasons of what was not found."""
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "python")
    introduction = textwrap.fill(_INTRODUCTION.format(versions=used), 120, break_on_hyphens=False)
    parts = [f"{_TITLE}\n\n{introduction}\n\n", as_table([["exporter", *LAYERS], *_summary(results)])]
    for name in dict.fromkeys(key[0] for key in results):
        own = {(exporter, opset): result for (of, exporter, opset), result in results.items() if of == name}
        rows = [[exporter, _opset(opset, result), *_cells(result)] for (exporter, opset), result in own.items()]
        parts += [f"\n## {name}\n\n", as_table([["exporter", "opset", *LAYERS], *rows])]
        reasons: dict[tuple[str, str], list[str]] = {}
        for (exporter, opset), result in own.items():
            for kind, found in result.reasons.items():
                for reason in found:
                    reasons.setdefault((kind, reason), []).append(f"{exporter} {opset}")
        if reasons:
            listed = [[kind, as_cell(reason), "; ".join(where)] for (kind, reason), where in reasons.items()]
            parts += ["\n", as_table([["layer", "reason", "where"], *listed])]
        parts += [
            f"\nNo export by {exporter} at opset {opset}: {as_cell(result.failed)}\n"
            for (exporter, opset), result in own.items()
            if result.failed
        ]
    unmeasured = [[name, as_cell(reason)] for name, reason in failed.items()]
    if failed:
        parts += ["\n## Not measured\n\n", as_table([["model", "reason"], *unmeasured])]
    return "".join(parts)


def _summary(results: Results) -> list[list[str]]:
    rows = []
    for exporter in Exporter:
        own = [result for (_, of, _), result in results.items() if of is exporter and not result.failed]
        sums = [(sum(r.found.get(k, 0) for r in own), sum(r.expected.get(k, 0) for r in own)) for k in LAYERS]
        if own:
            rows.append([exporter.value, *(f"{found} of {expected}" for found, expected in sums)])
    return rows


def _opset(opset: int, result: Result) -> str:
    return f"{opset}, fixed" if result.fixed else str(opset)


def _cells(result: Result) -> list[str]:
    counts = [(result.found.get(kind, 0), result.expected.get(kind, 0)) for kind in LAYERS]
    return ["" if found == expected == 0 else f"{found} of {expected}" for found, expected in counts]
