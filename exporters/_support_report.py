"""What becomes of each torch operator of a model, as a table."""

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
    """What becomes of the calls of one torch operator.

    Attributes
    ----------
    operator : str
        As the model's code calls it: ``"aten::linalg_inv"``, with the overload where it is not the default one.
    calls : int
        How many the captured model has.
    by : str
        What exports it: ``"torch"`` its exporter, ``"registration"`` one of `custom_op` or `register_translation`,
        ``"kernel"`` an op of `pyops.kernels`, ``"fallback"`` only ``fallback=True``, ``"nothing"``.
    reason : str
        Which op or function is registered; or why it falls back; or why it cannot even do that.
    sources : tuple of str
        The lines of the model's code: ``"model.py:12: return x.inverse()"``.

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
    """The operators of a model, readable in a terminal and in a notebook.

    Attributes
    ----------
    problem : str
        Why there are none: ``torch.export`` cannot capture the model, or torch's exporter stops at it as a whole.
        Empty otherwise.

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
        """The names of the operators that something exports."""
        return [item.operator for item in self._operators if item.by == who]

    @property
    def verdict(self) -> str:
        """What to call, in a line."""
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
    """``"model.py:12"`` of ``"/home/me/model.py:12: return x.inverse()"``."""
    return re.sub(r"^.*?([^/\\]+:\d+): .*$", r"\1", source)
