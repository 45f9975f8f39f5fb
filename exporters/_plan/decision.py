"""What exports a call, and why."""

from __future__ import annotations

from dataclasses import dataclass

from .._report import By, OutputComparison, describe_differences


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
