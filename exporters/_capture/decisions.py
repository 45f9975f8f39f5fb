"""What a capture specialized: branches, numbers, sizes and values that Python code read, each with its line.

They are found in `trace`, `capture_modes` (those of a draft export), `data_dependent` and `sizes`.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onnx_ir
import torch

from pyops.errors import warn

from .._torch.private.torch_export import is_fake
from ..errors import CaptureWarning

Kind = Literal["branch", "number", "size", "values"]
Source = Literal["inputs", "state", "random"]

_KEY = "pyops.decisions"
_SHOWN = 3
_SMALL = 8


@dataclass(frozen=True, repr=False)
class CaptureDecision:
    """A value that the model's Python code read, and that is the same in every run of the exported model.

    Attributes
    ----------
    kind : str
        ``"branch"``: a condition. ``"number"``: a number from a tensor, such as a loop count. ``"size"``: a size, or a
        condition on sizes. ``"values"``: all values of a tensor that left torch, as by ``x.numpy()``.
    value : str
        The value for the example arguments: ``"True"``, ``"3"``, ``"float32[2, 3]"``.
    file : str
        Path of the file with the line; ``""`` if torch knows no line.
    line : int
        Number of the line.
    code : str
        Text of the line.
    depends_on : str
        ``"inputs"``: it may differ for other arguments. ``"state"``: it follows from parameters and buffers.
        ``"random"``: it was drawn at random.
    guarded : bool
        Whether a run of the exported model in which the value would differ raises an error.
    expression : str
        For values that left torch, the code that reads them: ``"x.numpy()"``.

    Examples
    --------
    >>> import exporters, torch
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2 if x.sum() > 0 else -x
    >>> program = exporters.export(Model().eval(), (torch.ones(3),), capture="trace", verbose=False)  # doctest: +SKIP
    >>> program.decisions  # doctest: +SKIP
    (model.py:4: return x * 2 if x.sum() > 0 else -x (branch True, from inputs),)
    """

    kind: Kind
    value: str
    file: str
    line: int
    code: str
    depends_on: Source
    guarded: bool = False
    expression: str = ""

    @property
    def place(self) -> str:
        """Return the file's name and the line: ``"model.py:4"``."""
        return f"{Path(self.file).name}:{self.line}" if self.file else "?"

    def __repr__(self) -> str:
        guarded = ", guarded" if self.guarded else ""
        kind = f"{self.kind} of {self.expression}:" if self.expression else self.kind
        return f"{self.place}: {self.code} ({kind} {self.value}, from {self.depends_on}{guarded})"


def decision(
    kind: Kind, value: str, place: tuple[str, int], depends_on: Source, guarded: bool = False, expression: str = ""
) -> CaptureDecision:
    """Return the decision at a line of code."""
    return CaptureDecision(kind, value, *place, linecache.getline(*place).strip(), depends_on, guarded, expression)


def warn_of_decisions(decisions: Sequence[CaptureDecision]) -> None:
    """Warn of what a capture specialized: one line per decision, equal ones once, and only the first few of many."""
    counts = Counter(map(repr, decisions))
    lines = [f"  {text}" + (f" ({count} times)" if count > 1 else "") for text, count in counts.items()]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  and {len(lines) - _SHOWN} more in program.decisions"]
    guarded = sum(item.guarded for item in decisions)
    runs = f"; {guarded} guarded: a run in which one of these would differ is an error" if guarded else ""
    count = "1 value" if len(decisions) == 1 else f"{len(decisions)} values"
    warn(
        "\n".join(
            [
                f"the export specialized {count} that the model's Python code reads to those of the example arguments"
                f"{runs}",
                *lines,
            ]
        ),
        CaptureWarning,
    )


def warn_of_draws(calls: Sequence[str]) -> None:
    """Warn that an exported model draws random numbers, which are not those of torch."""
    lines = "\n  ".join(calls if len(calls) <= 2 else [calls[0], f"and {len(calls) - 1} more"])
    warn(
        "the exported model draws random numbers: different ones in each run, and not those of torch, whatever its "
        f"seed; to get the same ones, make them an input of the model\n  {lines}",
        CaptureWarning,
    )


def record(model: onnx_ir.Model, decisions: Iterable[CaptureDecision]) -> None:
    """Write decisions into the metadata of a model, each as a line of text."""
    model.metadata_props[_KEY] = "\n".join(map(repr, decisions))


def format_value(value: Any) -> str:
    """Return a number, the numbers of a small tensor, or the type and the shape of a larger one."""
    if not isinstance(value, torch.Tensor):
        return " and ".join(map(format_value, value)) if isinstance(value, (tuple, list)) else repr(value)
    if value.numel() <= _SMALL and not value.is_floating_point() and not is_fake(value):
        return repr(value.tolist())
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
