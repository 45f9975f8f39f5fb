"""The reports that `verify` and `explain` return, which display as tables, and the comparison of outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pyops._support.element_types import DType, describe, dtype_name
from pyops._support.text_tables import Displayable, Part
from pyops._tolerances import Array, Tolerances, difference
from pyops.testing._wrong_node import Location

By = Literal["torch", "registration", "kernel", "fallback", "unsupported"]

# With more samples, the table has only the worst one of each output.
_LISTED_SAMPLES = 10
_FIX = (
    'exporters.register_translation("{}", ...) with a translation of your own, kernels=True, or fallback="verify", '
    "which lets torch run the calls whose translations are wrong"
)


@dataclass(frozen=True)
class OutputComparison:
    """The comparison of one output of one sample.

    Attributes
    ----------
    sample : int
        Index of the sample.
    name : str
        The output's name in the model.
    dtype : numpy.dtype
        The dtype of torch's output.
    shape : tuple of int
        The shape of torch's output.
    absolute, relative : float
        The largest differences. NaN equals NaN; if only one of two elements is NaN, the difference is NaN.
    rtol, atol : float
        The allowed difference is ``atol + rtol * abs(expected)``, with torch's value as the expected one.
    ok : bool
        Whether dtype and shape are equal and every difference is allowed.
    problem : str
        What is wrong other than values: another dtype or shape, or a missing output. Otherwise ``""``.

    Examples
    --------
    >>> import exporters, torch
    >>> output = exporters.verify(torch.nn.ReLU(), (torch.ones(2, 3),)).outputs[0]
    >>> output.dtype, output.shape, output.absolute, output.ok
    (dtype('float32'), (2, 3), 0.0, True)
    """

    sample: int
    name: str
    dtype: DType
    shape: tuple[int, ...]
    absolute: float
    relative: float
    rtol: float
    atol: float
    ok: bool
    problem: str = ""


@dataclass(frozen=True, repr=False)
class VerificationReport(Displayable):
    """The comparison of torch with ONNX Runtime, output by output.

    Attributes
    ----------
    outputs : tuple of OutputComparison
        Ordered by sample, then by output.
    samples : int
        Number of samples compared.
    location : Location or None
        With ``locate=True``, the comparison of the values within the model, for the first sample for which outputs
        differ, or else for the first.

    Examples
    --------
    >>> import exporters, torch
    >>> print(exporters.verify(torch.nn.ReLU(), (torch.ones(2, 3),)))
    torch and ONNX Runtime agree
    output  dtype    shape   max abs  max rel  allowed              ok
    relu    float32  [2, 3]  0        0        1e-05 + 1.3e-06 rel  yes
    """

    outputs: tuple[OutputComparison, ...]
    samples: int = 1
    location: Location | None = None

    @property
    def ok(self) -> bool:
        """Return whether every output is within its tolerance."""
        return all(output.ok for output in self.outputs)

    def __repr__(self) -> str:
        count = f", {len(self.outputs)} output{'s' * (len(self.outputs) != 1)}" if self.ok else ""
        return f"<VerificationReport: {self._summary()}{count}>"

    def parts(self) -> list[Part]:
        """Return the parts to display: the verdict and the table of the outputs."""
        several = self.samples > 1
        header = ["output", "dtype", "shape", "max abs", "max rel", "allowed", "ok"]
        rows = [
            [*["sample"] * several, *header],
            *([*[str(item.sample)] * several, *_row(item)] for item in self._listed()),
        ]
        return [self._summary(), rows, *self._located()]

    def picture(self) -> str:
        """Return a picture of the differences along the model, if they were located."""
        return self.location.picture() if self.location else ""

    def _located(self) -> list[Part]:
        if self.location is not None:
            first = self.location.first
            fix = f"instead: {_FIX.format(first.call)}" if first and first.call else ""
            return [*filter(None, self.location.parts()), *filter(None, [fix])]
        wrong = not self.ok and not all(item.problem for item in self.outputs if not item.ok)
        return ["verify(..., locate=True) names the first wrong node"] if wrong else []

    def _summary(self) -> str:
        wrong = sum(not output.ok for output in self.outputs)
        verdict = "agree" if self.ok else f"differ in {wrong} of {len(self.outputs)} outputs"
        if self.samples > 1:
            verdict += f" ({self.samples} samples)"
        return f"torch and ONNX Runtime {verdict}"

    def _listed(self) -> Iterable[OutputComparison]:
        """Return all comparisons, or the worst sample of each output if there are many."""
        if self.samples <= _LISTED_SAMPLES:
            return self.outputs
        names = dict.fromkeys(item.name for item in self.outputs)
        return [max((item for item in self.outputs if item.name == name), key=_badness) for name in names]


def _badness(output: OutputComparison) -> tuple[bool, float]:
    return not output.ok, np.inf if np.isnan(output.absolute) else output.absolute


def _row(output: OutputComparison) -> list[str]:
    allowed = f"{output.atol:g} + {output.rtol:g} rel" if output.rtol or output.atol else "equal"
    return [
        output.name,
        dtype_name(output.dtype),
        str(list(output.shape)),
        f"{output.absolute:.3g}",
        f"{output.relative:.3g}",
        allowed,
        "yes" if output.ok else f"NO: {output.problem}" if output.problem else "NO",
    ]


def compare(
    sample: int,
    names: Sequence[str],
    expected: Sequence[Array],
    actual: Sequence[Array],
    tolerances: Tolerances | None = None,
    by: str = "ONNX Runtime",
) -> list[OutputComparison]:
    """Compare the outputs of one sample; an output that only one side has is not ok.

    Parameters
    ----------
    tolerances : mapping, optional
        ``(rtol, atol)`` by the name of the dtype; other dtypes use those of ``torch.testing.assert_close``.
    by : str
        What computed the actual outputs.
    """
    allowed = tolerances or {}
    names = [*names, *(f"output {index}" for index in range(len(names), max(len(expected), len(actual))))]
    reports = [_compare(sample, *item, allowed, by) for item in zip(names, expected, actual, strict=False)]
    for index in range(len(reports), len(names)):
        side, arrays = ("torch", expected) if index < len(expected) else (by, actual)
        reports.append(_failed(sample, names[index], arrays[index], f"only {side} has this output"))
    return reports


def describe_differences(reports: Sequence[OutputComparison]) -> str:
    """Return what is wrong with outputs, in a few words."""
    problem = next((item.problem for item in reports if item.problem), "")
    return problem or f"off by {max(item.absolute for item in reports):.3g}"


def _compare(sample: int, name: str, expected: Array, actual: Array, allowed: Tolerances, by: str) -> OutputComparison:
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return _failed(sample, name, expected, f"{by} gives {describe(actual)}")
    found = difference(expected, actual, *allowed.get(expected.dtype.name, (None, None)))
    largest = float(found.absolute.max(initial=0.0)), float(found.relative.max(initial=0.0))
    ok = not found.wrong.any()
    return OutputComparison(sample, name, expected.dtype, expected.shape, *largest, found.rtol, found.atol, ok)


def _failed(sample: int, name: str, array: Array, problem: str) -> OutputComparison:
    return OutputComparison(sample, name, array.dtype, array.shape, np.nan, np.nan, 0.0, 0.0, False, problem)


@dataclass(frozen=True)
class Fallback:
    """A torch operator whose calls were exported as nodes that call torch.

    Attributes
    ----------
    operator : str
        ``"aten::linalg_inv"``, with the overload unless it is the default one.
    count : int
        Number of nodes that call it.
    sources : tuple of str
        Lines of the model's code that call it: ``"model.py:12: return x.inverse()"``.
    reason : str
        Why it fell back: torch's exporter has no translation, or its translation is wrong.
    replacement : str
        What to write so that it no longer falls back.
    differences : tuple of OutputComparison
        With ``fallback="verify"``: the outputs for which torch's translation gave wrong values.
    error : str
        With ``fallback="verify"``: the error of torch's exporter or ONNX Runtime, if one of them failed.

    Examples
    --------
    >>> import exporters, torch
    >>> class Gammas(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.lgamma(x)
    >>> program = exporters.export(Gammas().eval(), (torch.ones(2),), kernels=False, fallback=True)
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
        ``"kernel"`` (an op of `pyops.kernels`), ``"fallback"`` (only ``fallback=True``) or ``"unsupported"``.
    reason : str
        What translates the calls, why they fall back, or why nothing exports them; ``""`` if torch translates them.
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


class SupportReport(Displayable, tuple[OperatorSupport, ...]):
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

    problem: str

    def __new__(cls, operators: Iterable[OperatorSupport], problem: str = "") -> SupportReport:
        """Create the tuple and store the problem."""
        self = super().__new__(cls, operators)
        self.problem = problem
        return self

    def by(self, who: By) -> list[str]:
        """Return the names of the operators that `who` exports."""
        return [item.operator for item in self if item.by == who]

    @property
    def verdict(self) -> str:
        """Return one line that says which call exports the model, or why none does."""
        if self.problem:
            return self.problem
        missing, impossible = self.by("fallback"), self.by("unsupported")
        if impossible:
            return f"unsupported: {', '.join(impossible)}"
        if missing:
            return f"export(..., fallback=True) lets torch run {', '.join(missing)}"
        return "every operator has a translation"

    def parts(self) -> list[Part]:
        """Return the parts to display: the table of the operators and the verdict."""
        rows = [
            (item.operator, str(item.calls), item.by, item.reason, ", ".join(map(_place, item.sources)))
            for item in self
        ]
        return [[("operator", "calls", "exported by", "reason", "called in"), *rows], self.verdict]


def _place(source: str) -> str:
    """Return ``"model.py:12"`` for ``"/home/me/model.py:12: return x.inverse()"``."""
    return re.sub(r"^.*?([^/\\]+:\d+): .*$", r"\1", source)
