"""What a run tries: which calls, by which export, how closely."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch


class Mode(StrEnum):
    """How the calls are exported."""

    PLAIN = "plain"
    """As torch does."""
    KERNELS = "kernels"
    """With the ops of `pyops.kernels`, and run in a process that cannot import torch."""
    FALLBACK = "fallback"
    """With ``fallback=True``: what cannot be translated runs in torch."""
    REPAIR = "repair"
    """With ``fallback="verify"``: what is translated wrongly, too."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What it adds to the arguments of ``exporters.export``."""
        added: dict[Mode, dict[str, Any]] = {
            Mode.PLAIN: {"kernels": False},
            Mode.KERNELS: {},
            Mode.FALLBACK: {"fallback": True},
            Mode.REPAIR: {"fallback": "verify"},
        }
        return added[self]


TOLERANCES = {
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.float32: (1e-3, 1e-4),
    torch.float64: (1e-5, 1e-6),
}
"""Relative and absolute tolerance by dtype; complex numbers have those of their parts, others must be equal."""


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes
    ----------
    mode : Mode
    dtype : str
        Of the samples, as torch names it; operators without it are left out. Empty is float32, and for
        operators that lack it the first that they have.
    samples : int
        How many per operator.
    dynamic : bool
        Whether every dimension is dynamic, and the exported model is run at another size.
    ops : str
        Only operators whose name matches, as in a shell.
    database : str
        ``module:name`` of a list of OpInfo objects; empty for torch's own.
    """

    mode: Mode = Mode.PLAIN
    dtype: str = ""
    samples: int = 1
    dynamic: bool = False
    ops: str = "*"
    database: str = ""

    @property
    def name(self) -> str:
        """Names its file of results: ``fallback-complex64``."""
        parts = [self.mode, self.dtype, f"{self.samples} samples" * (self.samples > 1), "dynamic" * self.dynamic]
        return re.sub(r"[^\w.]+", "-", " ".join(filter(None, [*parts, self.ops, self.database]))).strip("-")

    @property
    def title(self) -> str:
        """Says it in words."""
        how = {
            Mode.PLAIN: "plain export",
            Mode.KERNELS: "pyops.kernels, run without torch",
            Mode.FALLBACK: "fallback=True",
            Mode.REPAIR: 'fallback="verify"',
        }[self.mode]
        size = ", every dimension dynamic" if self.dynamic else ""
        count = f", {self.samples} samples each" if self.samples > 1 else ""
        which = f", only {self.ops}" if self.ops != "*" else ""
        source = f", from {self.database}" if self.database else ""
        return f"{how}, {self.dtype or 'float32'}{count}{size}{which}{source}"
