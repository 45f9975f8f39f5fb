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


MODES: dict[Mode, tuple[str, dict[str, Any]]] = {
    Mode.PLAIN: ("plain export", {"kernels": False}),
    Mode.KERNELS: ("pyops.kernels, run without torch", {}),
    Mode.FALLBACK: ("fallback=True", {"fallback": True}),
    Mode.REPAIR: ('fallback="verify"', {"fallback": "verify"}),
}
"""How a table calls it, and what it adds to the arguments of ``exporters.export``."""

TOLERANCES = {
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.float32: (1e-3, 1e-4),
    torch.float64: (1e-5, 1e-6),
}
"""Relative and absolute tolerance by dtype; complex numbers have those of their parts, others must be equal."""


@dataclass(frozen=True)
class Plan:
    """One run."""

    mode: Mode = Mode.PLAIN
    # Of the samples; operators without it are left out. Empty is float32, or the first that an operator has.
    dtype: str = ""
    samples: int = 1  # for each operator
    dynamic: bool = False  # whether every dimension is, and the exported model is run at another size
    ops: str = "*"  # only operators whose name matches, as in a shell
    database: str = ""  # "module:name" of a list of OpInfo objects; empty for torch's own

    @property
    def name(self) -> str:
        """Names its file of results: ``fallback-complex64``."""
        parts = [self.mode, self.dtype, f"{self.samples} samples" * (self.samples > 1), "dynamic" * self.dynamic]
        return re.sub(r"[^\w.]+", "-", " ".join(filter(None, [*parts, self.ops, self.database]))).strip("-")

    @property
    def title(self) -> str:
        """Says it in words."""
        how, _ = MODES[self.mode]
        size = ", every dimension dynamic" if self.dynamic else ""
        count = f", {self.samples} samples each" if self.samples > 1 else ""
        which = f", only {self.ops}" if self.ops != "*" else ""
        source = f", from {self.database}" if self.database else ""
        return f"{how}, {self.dtype or 'float32'}{count}{size}{which}{source}"
