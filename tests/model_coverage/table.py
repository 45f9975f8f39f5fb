"""The table of the results, in Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pyops._support.text_tables import text_table
from tests.helpers.markdown import as_cell, as_table
from tests.model_coverage.model import Model
from tests.model_coverage.results import REPRODUCED, Exporter, Result, Results, Status
from tests.operator_coverage.plan import TOLERANCES
from tests.operator_coverage.results import versions

_INTRODUCTION = """# Which models can be exported

`python -m tests.model_coverage` created a small version of each of these models with random weights, exported it, ran
it in ONNX Runtime, compared it with torch, and wrote this page, with {versions}. The columns:

- **torch**: plain `torch.onnx.export(..., dynamo=True)`. **pyops**: `exporters.export(..., {arguments})`.
- **yes**: every output has torch's dtype and shape, and its values are within a relative and an absolute tolerance of
  {rtol:g} and {atol:g} (float32). This holds for the example and for another size, of which the exporter was told no
  more than which dimensions are dynamic: another batch; for text, caches and waveforms another length too; for a graph
  network another graph. **fixed size**: it holds only for the example's size. **no**: neither holds, and the reason is
  below. Empty: not measured yet.
- **difference**: the largest one between torch and the model of `exporters.export`.
- **decisions**: how many values of the model's Python code are
  [fixed as in the example](export.md#models-whose-python-code-depends-on-values).
- **custom nodes**: how many nodes ONNX Runtime does not have: those of `pyops` are [kernels](kernel_library.md) that
  run without torch, those of `aten` and other namespaces are [nodes that call torch](fallback.md).
- **counterparts**: how many of the model's values [`exporters.verify(..., locate=True)`](debugging.md#a-wrong-number)
  compares with torch's, for the example; a text is an error of it, such as a node that it names although none is wrong.
  The median of those measured is {median}.
- **seconds**: the processor time of the export, by torch and by `exporters.export`.

"""


def summary(known: Mapping[str, Model], results: Results) -> str:
    """Return a table with a row for each family, for a terminal."""
    return text_table(_summary_rows(known, results))


def as_markdown(known: Mapping[str, Model], results: Results) -> str:
    """Return a page: a row for each family, then the models of each, and the reasons of what failed."""
    rtol, atol = next(pair for dtype, pair in TOLERANCES.items() if str(dtype) == "torch.float32")
    found = versions()
    used = ", ".join(f"{name} {found[name]}" for name in ("torch", "onnxruntime", "onnxscript"))
    intro = _INTRODUCTION.format(
        versions=used, median=_median(known, results), arguments=_arguments(), rtol=rtol, atol=atol
    )
    parts = [intro + as_table(_summary_rows(known, results))]
    for family in _families(known):
        rows = list(_rows(family, known, results))
        if rows:
            header = [
                "model",
                "package",
                "torch",
                "pyops",
                "difference",
                "decisions",
                "custom nodes",
                "counterparts",
                "seconds",
            ]
            parts += [f"## {family}\n", as_table([header, *rows]), *_reasons(family, known, results)]
    missing = [
        [name, known[name].package, as_cell(of[Exporter.OURS].reason)]
        for name, of in results
        if name in known and Exporter.OURS in of and of[Exporter.OURS].status in (Status.MISSING, Status.UNUSABLE)
    ]
    if missing:
        parts += [
            "## Not measured\n",
            "The package cannot be installed with a torch without CUDA, or torch itself does not run the model.\n",
            as_table([["model", "package", "reason"], *missing]),
        ]
    return "\n".join(parts)


def _arguments() -> str:
    from tests.model_coverage.attempt import arguments

    return ", ".join(f"{name}={value!r}" for name, value in arguments().items()).replace("'", '"')


def _families(known: Mapping[str, Model]) -> Iterable[str]:
    return dict.fromkeys(item.family for item in known.values())


_Row = tuple[Model, Result | None, Result]


def _measured(family: str, known: Mapping[str, Model], results: Results) -> Iterable[_Row]:
    """Yield the models of a family that torch runs, with torch's result, None if there is none yet, and ours."""
    for item in known.values():
        theirs, ours = (results.get(item.name, exporter) for exporter in Exporter)
        if item.family == family and ours and ours.status in (*REPRODUCED, Status.FAILED):
            yield item, theirs, ours


def _summary_rows(known: Mapping[str, Model], results: Results) -> list[list[str]]:
    header = ["family", "models", "torch", "at another size too", "pyops", "at another size too", "without torch"]
    found = {family: list(_measured(family, known, results)) for family in _families(known)}
    rows = [[family, *_counts(measured)] for family, measured in found.items() if measured]
    return [header, *rows, ["all", *_counts([item for measured in found.values() for item in measured])]]


def _counts(measured: Sequence[_Row]) -> list[str]:
    def count(results: Sequence[Result], *statuses: Status) -> str:
        found = sum(result.status in statuses for result in results)
        return str(found) if len(results) == len(measured) else f"{found} of {len(results)}"

    theirs, ours = [item[1] for item in measured if item[1]], [item[2] for item in measured]
    without = sum(item.status in REPRODUCED and all(map(_is_torchless, item.custom_nodes)) for item in ours)
    reproduced = [count(of, *which) for of in (theirs, ours) for which in (REPRODUCED, [Status.DYNAMIC])]
    return [str(len(measured)), *reproduced, str(without)]


def _is_torchless(operator: str) -> bool:
    return operator.startswith("pyops::")


def _rows(family: str, known: Mapping[str, Model], results: Results) -> Iterable[list[str]]:
    for item, theirs, ours in _measured(family, known, results):
        domains: Counter[str] = Counter()
        for operator, count in ours.custom_nodes.items():
            domains[operator.partition("::")[0]] += count
        nodes = ", ".join(f"{count} {domain}" for domain, count in sorted(domains.items()))
        difference = "" if ours.difference is None else f"{ours.difference:.1g}"
        seconds = " / ".join(f"{one.seconds:.0f}" if one and one.seconds else "-" for one in (theirs, ours))
        decisions = str(ours.decisions or "")
        outcome = [_shown(theirs), _shown(ours), difference, decisions, nodes, as_cell(ours.counterparts), seconds]
        yield [item.name, item.package, *outcome]


def _median(known: Mapping[str, Model], results: Results) -> str:
    shown = [ours.counterparts for family in _families(known) for *_, ours in _measured(family, known, results)]
    parts = [float(item.removesuffix("%")) for item in shown if item.endswith("%")]
    return f"{statistics.median(parts):.0f}%" if parts else "not measured yet"


def _shown(result: Result | None) -> str:
    if result is None:
        return ""
    if result.status is Status.FAILED:
        return "no"
    return "yes" if result.status is Status.DYNAMIC else "fixed size"


def _reasons(family: str, known: Mapping[str, Model], results: Results) -> list[str]:
    rows = [
        [item.name, who, _shown(result), result.kind, as_cell(result.reason)]
        for item, theirs, ours in _measured(family, known, results)
        for who, result in (("pyops", ours), ("torch", theirs))
        if result and result.reason
    ]
    if not rows:
        return []
    listed = as_table([["model", "exporter", "reproduced", "what happened", "reason"], *rows])
    count = f"{len(rows)} reason{'' if len(rows) == 1 else 's'}"
    return [f"<details><summary>{count}</summary>\n\n{listed}\n</details>\n"]
