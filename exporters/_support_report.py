"""Report of how each torch operator of a model is exported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from pyops._tables import html_paragraphs, html_table, text_table

By = Literal["torch", "registration", "kernel", "fallback", "nothing"]

_HEADER = ("operator", "calls", "exported by", "why", "called in")


@dataclass(frozen=True)
class OperatorSupport:
    """How the calls of one torch operator are exported.

    Attributes
    ----------
    operator : str
        Name as the model's code calls it: ``"aten::linalg_inv"``, with the overload unless it is the default one.
    calls : int
        Number of calls in the captured model.
    by : str
        What exports it: ``"torch"`` (its exporter), ``"registration"`` (`custom_op` or `register_translation`),
        ``"kernel"`` (an op of `pyops.kernels`), ``"fallback"`` (only ``fallback=True``) or ``"nothing"``.
    reason : str
        The registered op or function, why it falls back, or why it cannot.
    sources : tuple of str
        Lines of the model's code that call it: ``"model.py:12: return x.inverse()"``.

    Examples
    --------
    >>> import exporters, torch
    >>> first = exporters.explain(torch.nn.ReLU().eval(), (torch.ones(2),))[0]
    >>> first.operator, first.calls, first.by
    ('aten::relu', 1, 'torch')
    """

    operator: str
    calls: int
    by: By
    reason: str
    sources: tuple[str, ...]


class SupportReport(Sequence[OperatorSupport]):
    """The support of each operator of a model, shown as a table in a terminal and in a notebook.

    Attributes
    ----------
    problem : str
        Why the report is empty: ``torch.export`` cannot capture the model, or torch's exporter fails before it
        translates anything. Otherwise ``""``.

    Examples
    --------
    >>> import exporters, torch
    >>> explanation = exporters.explain(torch.nn.ReLU().eval(), (torch.ones(2),))
    >>> len(explanation), explanation.problem, explanation.by("fallback")
    (1, '', [])
    """

    def __init__(self, operators: Iterable[OperatorSupport], problem: str = "") -> None:
        self._operators = tuple(operators)
        self.problem = problem

    @overload
    def __getitem__(self, index: int) -> OperatorSupport: ...
    @overload
    def __getitem__(self, index: slice) -> SupportReport: ...
    def __getitem__(self, index: int | slice) -> OperatorSupport | SupportReport:
        if isinstance(index, slice):
            return SupportReport(self._operators[index], self.problem)
        return self._operators[index]

    def __len__(self) -> int:
        return len(self._operators)

    def by(self, who: By) -> list[str]:
        """Return the names of the operators that `who` exports."""
        return [item.operator for item in self._operators if item.by == who]

    @property
    def verdict(self) -> str:
        """Return one line that says what to call for the model to export."""
        if self.problem:
            return self.problem
        missing, impossible = self.by("fallback"), self.by("nothing")
        if impossible:
            return f"no export has {', '.join(impossible)}"
        if missing:
            return f"export(..., fallback=True) lets torch run {', '.join(missing)}"
        return "every operator has a translation"

    def __repr__(self) -> str:
        return "\n".join([*[text_table(self._rows())] * bool(self), self.verdict])

    def _repr_html_(self) -> str:
        table = html_table(self._rows()) if self else ""
        return table + html_paragraphs([self.verdict])

    def _rows(self) -> list[tuple[str, ...]]:
        return [_HEADER, *map(_row, self._operators)]


def _row(item: OperatorSupport) -> tuple[str, ...]:
    return item.operator, str(item.calls), item.by, item.reason, ", ".join(map(_place, item.sources))


def _place(source: str) -> str:
    """Return ``"model.py:12"`` for ``"/home/me/model.py:12: return x.inverse()"``."""
    return re.sub(r"^.*?([^/\\]+:\d+): .*$", r"\1", source)
