"""What exports a call, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .._report import By, Fallback, OutputComparison, describe_differences


@dataclass(frozen=True)
class Finding:
    """What is wrong with torch's translation of a call: differences in its outputs, or an error."""

    differences: tuple[OutputComparison, ...] = ()
    error: str = ""

    @property
    def reason(self) -> str:
        """Return the finding in one line."""
        if self.error:
            return f"its translation fails: {self.error}"
        return f"its translation is wrong: {describe_differences(self.differences)}"


@dataclass(frozen=True)
class Decision:
    """What exports one call of the lowered graph, and why.

    Attributes
    ----------
    call : str
        The name of the captured call that it is, or that it is decomposed from.
    operator : str
        The operator of the lowered call.
    source : str
        The line of the model's code that calls it.
    finding : Finding, optional
        What was wrong with an earlier translation of the call.
    """

    call: str
    operator: str
    by: By
    reason: str
    source: str
    finding: Finding | None = None


def fallbacks(decisions: Iterable[Decision]) -> tuple[Fallback, ...]:
    """Return one Fallback for each operator with a call that falls back, in the order of the first calls."""
    calls: dict[str, list[Decision]] = {}
    for call in decisions:
        if call.by == "fallback":
            calls.setdefault(call.operator, []).append(call)
    return tuple(_fallback(operator, found) for operator, found in calls.items())


def _fallback(operator: str, calls: list[Decision]) -> Fallback:
    findings = list(dict.fromkeys(call.finding for call in calls if call.finding is not None))
    return Fallback(
        operator,
        len(calls),
        tuple(dict.fromkeys(call.source for call in calls if call.source)),
        "; ".join(dict.fromkeys(call.reason for call in calls)),
        f'exporters.register_translation("{operator}", op), with an Op of yours or a function that emits nodes',
        tuple(report for finding in findings for report in finding.differences),
        next((finding.error for finding in findings if finding.error), ""),
    )
