"""The plan of a run: the calls, the kind of export and the tolerances."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch


class Mode(StrEnum):
    """How the calls are exported."""

    PLAIN = "plain"
    """As torch exports them."""
    KERNELS = "kernels"
    """With the ops of `pyops.kernels`, and run in a process that cannot import torch."""
    FALLBACK = "fallback"
    """With ``fallback=True``: unsupported calls run in torch."""
    REPAIR = "repair"
    """With ``fallback="verify"``: calls that are translated wrongly run in torch too."""


MODES: dict[Mode, tuple[str, dict[str, Any]]] = {
    Mode.PLAIN: ("plain export", {"kernels": False}),
    Mode.KERNELS: ("pyops.kernels, run without torch", {}),
    Mode.FALLBACK: ("fallback=True", {"fallback": True}),
    Mode.REPAIR: ('fallback="verify"', {"fallback": "verify"}),
}
"""The name of each mode in a table, and its arguments of ``exporters.export``."""

TOLERANCES = {
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.float32: (1e-3, 1e-4),
    torch.float64: (1e-5, 1e-6),
}
"""Relative and absolute tolerance by dtype; complex tensors use those of their parts, other dtypes must be equal."""


@dataclass(frozen=True)
class Plan:
    """The plan of one run."""

    mode: Mode = Mode.PLAIN
    # The samples' dtype; operators without it are skipped. "" means float32, or the first that an operator supports.
    dtype: str = ""
    samples: int = 1  # per operator
    dynamic: bool = False  # make every dimension dynamic, and run the exported model at another size
    ops: str = "*"  # a shell pattern of operator names
    database: str = ""  # "module:name" of a list of OpInfo objects; "" means torch's own

    @property
    def name(self) -> str:
        """Return the stem of the results file: ``fallback-complex64``."""
        parts = [self.mode, self.dtype, f"{self.samples} samples" * (self.samples > 1), "dynamic" * self.dynamic]
        return re.sub(r"[^\w.]+", "-", " ".join(filter(None, [*parts, self.ops, self.database]))).strip("-")

    @property
    def title(self) -> str:
        """Return a description of the run."""
        how, _ = MODES[self.mode]
        size = ", every dimension dynamic" if self.dynamic else ""
        count = f", {self.samples} samples each" if self.samples > 1 else ""
        which = f", only {self.ops}" if self.ops != "*" else ""
        source = f", from {self.database}" if self.database else ""
        return f"{how}, {self.dtype or 'float32'}{count}{size}{which}{source}"
