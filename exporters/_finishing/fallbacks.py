"""What falls back in an export, and why; recorded call by call."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from .._report import OutputComparison


@dataclass(frozen=True)
class Fallback:
    """A torch operator whose calls became nodes that call torch.

    Attributes
    ----------
    operator : str
        ``"aten::linalg_inv"``, with the overload where it is not the default one.
    count : int
        How many nodes of the model call it.
    sources : tuple of str
        The lines of the model's code that call it: ``"model.py:12: return x.inverse()"``.
    reason : str
        Why it fell back: torch's exporter has no translation, or what the translation does wrong.
    replacement : str
        What to write for it not to fall back.
    differences : tuple of OutputComparison
        With ``fallback="verify"``: how far off torch's translation was, for each output that was not right.
    error : str
        With ``fallback="verify"``: what torch's exporter or ONNX Runtime said, where one of them refused it.

    Examples
    --------
    >>> import exporters, torch
    >>> class Gammas(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.lgamma(x)
    >>> program = exporters.export(Gammas().eval(), (torch.ones(2),), kernels=False, fallback=True, verbose=False)
    >>> [(found.operator, found.count) for found in program.fallbacks]
    [('aten::lgamma', 1)]
    """

    operator: str
    count: int
    sources: tuple[str, ...]
    reason: str
    replacement: str
    differences: tuple[OutputComparison, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        times = "1 node" if self.count == 1 else f"{self.count} nodes"
        lines = [f"{self.operator} ({times}): {self.reason}", *(f"  {line}" for line in self.sources)]
        return "\n".join([*lines, f"  instead: {self.replacement}"])


@dataclass(frozen=True)
class Finding:
    """What is wrong with torch's translation of a call: how far off it is, or what refused it."""

    differences: tuple[OutputComparison, ...] = ()
    error: str = ""

    @property
    def reason(self) -> str:
        """In one line."""
        if self.error:
            return f"its translation fails: {self.error}"
        problem = next((item.problem for item in self.differences if item.problem), "")
        return f"its translation is wrong: {problem or f'off by {max(d.absolute for d in self.differences):.3g}'}"


@dataclass(frozen=True)
class RecordedCall:
    """A call that torch's exporter does not translate, with the text that `opaque.spell` writes of it."""

    operator: str
    source: str
    reason: str
    text: str
    finding: Finding | None = None


def fallbacks(recorded: Iterable[RecordedCall], left_to_torch: Set[str]) -> tuple[Fallback, ...]:
    """One for each operator whose calls are left to torch, in the order of their first."""
    calls: dict[str, list[RecordedCall]] = {}
    for call in recorded:
        if call.text in left_to_torch:
            calls.setdefault(call.operator, []).append(call)
    return tuple(_fallback(operator, found) for operator, found in calls.items())


def _fallback(operator: str, calls: list[RecordedCall]) -> Fallback:
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
