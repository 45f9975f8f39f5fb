"""Recording what falls back, call by call."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import torch

from .checking import Finding
from .record import Fallback
from .sources import source_line


@dataclass(frozen=True)
class _Call:
    operator: str
    source: str
    reason: str
    text: str
    finding: Finding | None


class Recording:
    """The calls of an export that torch's exporter does not translate."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, operator: str, node: torch.fx.Node, reason: str, text: str, finding: Finding | None = None) -> None:
        """Record a call of an operator, which `opaque.spell` writes as this text."""
        self._calls.append(_Call(operator, source_line(node), reason, text, finding))

    def fallbacks(self, left_to_torch: Set[str]) -> tuple[Fallback, ...]:
        """One for each operator whose calls are among these, in the order of their first."""
        calls: dict[str, list[_Call]] = {}
        for call in self._calls:
            if call.text in left_to_torch:
                calls.setdefault(call.operator, []).append(call)
        return tuple(_fallback(operator, found) for operator, found in calls.items())


def _fallback(operator: str, calls: list[_Call]) -> Fallback:
    findings = list(dict.fromkeys(call.finding for call in calls if call.finding is not None))
    return Fallback(
        operator,
        len(calls),
        tuple(dict.fromkeys(call.source for call in calls if call.source)),
        "; ".join(dict.fromkeys(call.reason for call in calls)),
        f'exporters.translate("{operator}", op), with an Op of yours or a function that emits nodes',
        tuple(report for finding in findings for report in finding.differences),
        next((finding.error for finding in findings if finding.error), ""),
    )
