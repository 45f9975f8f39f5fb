"""The exported program, which runs in a pyops session, and its records of the calls that fell back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pyops._files import whole_file

from ._arguments import input_values
from ._capture.decisions import CaptureDecision
from ._finishing.optimization import optimize
from ._plan.decision import Decision
from ._report import OutputComparison


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


class Program(torch.onnx.ONNXProgram):
    """A ``torch.onnx.ONNXProgram`` that runs its model in a `pyops.InferenceSession`; `export` returns it.

    Attributes
    ----------
    fallbacks : tuple of Fallback
        One entry per torch operator that falls back; empty without ``fallback=``.
    decisions : tuple of CaptureDecision
        What the capture fixed: conditions, numbers, sizes and values. With ``capture="export"``, only sizes that
        should be dynamic, and conditions on them.
    captured : torch.export.ExportedProgram or None
        The calls of the model's code, before torch decomposes them; None with ``dynamo=False``.
    unverified : str
        Why `captured` was not compared with the model for the example arguments; ``""`` if it was.

    Examples
    --------
    >>> import exporters, torch
    >>> program = exporters.export(torch.nn.ReLU().eval(), (torch.zeros(3),))
    >>> program(torch.tensor([-1.0, 0.0, 2.0]))
    (tensor([0., 0., 2.]),)
    >>> program.model_proto.graph.node[0].op_type
    'Relu'
    """

    fallbacks: tuple[Fallback, ...] = ()
    decisions: tuple[CaptureDecision, ...] = ()
    captured: torch.export.ExportedProgram | None = None
    unverified: str = ""

    def __repr__(self) -> str:
        unverified = [f"not compared with the model: {self.unverified}"] if self.unverified else []
        return "\n".join([super().__repr__(), *map(str, self.fallbacks), *unverified])

    def optimize(self) -> None:
        """Optimize the model in place, as `export` does by default (with ``dynamo=False``, only for ``optimize=True``).

        Values do not change, and every call of a declared op is kept.
        """
        optimize(self.model)

    def save(self, destination: str | os.PathLike[str], **options: Any) -> None:
        """Save the model; if that fails, an existing file is left unchanged.

        Parameters
        ----------
        destination : str or os.PathLike
            Path of the model; external data is written beside it.
        **options
            Options of ``torch.onnx.ONNXProgram.save``, for example ``external_data=True``.

        Raises
        ------
        OSError
            `destination` cannot be written.
        """
        with whole_file(destination) as part:
            super().save(part, **options)

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Create the session that calls of the program use.

        Parameters
        ----------
        initializer : callable, optional
            Creates a session from a path or bytes; `pyops.InferenceSession` by default.
        """
        from pyops._runtime.session import InferenceSession  # needs onnxruntime, which exporting does not

        super().initialize_inference_session(initializer or InferenceSession)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the model on arguments of the structure that it was exported with.

        Returns
        -------
        tuple of torch.Tensor
            One tensor per output of the model.

        Raises
        ------
        ExportError
            The number of tensors is not that of the model's inputs, or an argument that the export fixed as a
            constant has another value.
        BaseException
            Any exception of a kernel, unchanged.
        """
        return tuple(super().__call__(*input_values(self, args, kwargs).values()))
