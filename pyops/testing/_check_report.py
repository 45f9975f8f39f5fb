"""The results of checks: one per check, and the report of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from .._support.text_tables import Displayable, Part
from ..errors import PyopsError

Status = Literal["passed", "failed", "not run"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes
    ----------
    name : str
        The name of the check.
    status : {"passed", "failed", "not run"}
    reason : str
        What is wrong, or why the check was not run. For a passed check, a note, or nothing.
    error : BaseException or None
        The exception of a failed check. A kernel's own exception is this one or its cause.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from pyops.kernels.reductions import cumprod
    >>> pyops.testing.check(cumprod, np.ones(3), dim=0, checks="outputs")["outputs"]
    CheckResult(name='outputs', status='passed', reason='', error=None)
    """

    name: str
    status: Status
    reason: str = ""
    error: BaseException | None = None

    @property
    def follows(self) -> bool:
        """Return whether the check was not run because another failed."""
        return self.status == "not run" and self.reason.endswith(" failed")


class CheckReport(Displayable, Sequence[CheckResult]):
    """The results of all checks, readable in a terminal and in a notebook.

    ``report["thread_safe"]`` is the result of one check.

    Attributes
    ----------
    subject : str
        The call that was checked.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from pyops.kernels.reductions import cumprod
    >>> report = pyops.testing.check(cumprod, np.ones(3), dim=0, checks=["outputs", "repeatable"])
    >>> report.ok, report.subject, [result.name for result in report]
    (True, 'Cumprod(float64[3], dim=0)', ['outputs', 'repeatable'])
    """

    def __init__(self, subject: str, results: Iterable[CheckResult]) -> None:
        self.subject = subject
        self._results = tuple(results)

    @property
    def ok(self) -> bool:
        """Return whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """Return the results of the failed checks."""
        return tuple(result for result in self if result.status == "failed")

    @overload
    def __getitem__(self, key: int | str) -> CheckResult: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[CheckResult]: ...
    def __getitem__(self, key: int | str | slice) -> CheckResult | Sequence[CheckResult]:
        if not isinstance(key, str):
            return self._results[key]
        named: Mapping[str, CheckResult] = {result.name: result for result in self._results}
        if key not in named:
            raise KeyError(f"no check called {key!r} was requested; there are: {', '.join(named)}")
        return named[key]

    def __len__(self) -> int:
        return len(self._results)

    def parts(self) -> list[Part]:
        """Return the parts to display: how many checks passed and failed, and the table.

        The table has all checks, or those that failed and then those that were not run: one row for all whose reason is
        the same failed check.
        """
        counts = {status: sum(result.status == status for result in self) for status in ("failed", "passed", "not run")}
        counted = ", ".join(f"{count} {status}" for status, count in counts.items() if count or status != "failed")
        shown = [*self.failed, *(result for result in self if result.status == "not run")] if self.failed else self
        rows = [(result.name, _format(result), result.reason) for result in shown if not result.follows]
        following = Counter(result.reason for result in shown if result.follows)
        rows += [(f"{count} other{'s' * (count > 1)}", "not run", reason) for reason, count in following.items()]
        return [f"{self.subject}: {counted}", [("check", "result", "reason"), *rows]]


def _format(result: CheckResult) -> str:
    return "FAILED" if result.status == "failed" else result.status


class CheckError(PyopsError, AssertionError):
    """Raised when checks fail; the message lists them with their reasons.

    Attributes
    ----------
    report : CheckReport
        The results of all checks.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from pyops.kernels.reductions import cumprod
    >>> try:
    ...     pyops.testing.check(cumprod, np.array([2, 3]), dim=0, expected=[2, 5], checks="expected")
    ... except pyops.testing.CheckError as error:
    ...     print(error.report.failed[0].name)
    expected
    """

    __module__ = "pyops.testing"

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        lines = "".join(f"\n  {result.name}: {result.reason}" for result in report.failed)
        super().__init__(f"{report.subject}: {len(report.failed)} of {len(report)} checks failed{lines}")

    def __reduce__(self) -> tuple[type[CheckError], tuple[CheckReport]]:
        return CheckError, (self.report,)
