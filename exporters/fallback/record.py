"""What fell back in an export."""

from __future__ import annotations

from dataclasses import dataclass

from ..verifying.report import OutputReport


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
    differences : tuple of OutputReport
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
    differences: tuple[OutputReport, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        times = "1 node" if self.count == 1 else f"{self.count} nodes"
        lines = [f"{self.operator} ({times}): {self.reason}", *(f"  {line}" for line in self.sources)]
        return "\n".join([*lines, f"  instead: {self.replacement}"])
