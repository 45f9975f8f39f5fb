"""Recording what falls back, call by call."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .checking import Finding
from .record import Fallback
from .sources import source_line


class Recording:
    """The fallbacks of an export, call by call."""

    def __init__(self) -> None:
        self._calls: dict[str, _Calls] = {}

    def add(self, operator: str, node: torch.fx.Node, reason: str, finding: Finding | None = None) -> None:
        """Record a call of an operator."""
        calls = self._calls.setdefault(operator, _Calls())
        calls.count += 1
        calls.sources[source_line(node)] = None
        calls.reasons[reason] = None
        if finding is not None:
            calls.findings[finding] = None

    def fallbacks(self) -> tuple[Fallback, ...]:
        """One for each operator, in the order of their first calls."""
        return tuple(
            Fallback(
                operator,
                calls.count,
                tuple(filter(None, calls.sources)),
                "; ".join(calls.reasons),
                f'exporters.translate("{operator}", op), with an Op of yours or a function that emits nodes',
                tuple(report for finding in calls.findings for report in finding.differences),
                next((finding.error for finding in calls.findings if finding.error), ""),
            )
            for operator, calls in self._calls.items()
        )


@dataclass
class _Calls:
    """The calls of one operator; dicts are sets that keep their order."""

    count: int = 0
    sources: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    findings: dict[Finding, None] = field(default_factory=dict)
