"""The command that writes docs/corrections.md, and names the corrections that the installed torch does not need."""

from __future__ import annotations

import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import torch

from exporters._library.row_table import decompositions
from tests.corrections.trials import TABLES, Case, sampled, verdicts
from tests.exporters._library.test_library_rows import CALLS
from tests.exporters._library.test_wrong_translations import CASES, COMPLEX_CASES

PAGE = Path(__file__).parents[2] / "docs/corrections.md"

OF_KERNELS = {
    "negative zero": (torch.signbit, (torch.tensor([-0.0]),), None),
    "error functions of float64": (
        lambda x: (torch.special.erf(x), torch.special.erfc(x)),
        (torch.tensor([0.5, 3.0], dtype=torch.float64),),
        None,
    ),
}
"""Calls whose rows are ops of pyops."""

INTRODUCTION = """# What is corrected in torch's exporter

The rows of the kernel library that replace torch's own translation of an operator, the operators that torch decomposes
in place of it, and what is wrong without each: measured by `python -m tests.corrections` with torch {torch} and
onnxscript {onnxscript}, which most of torch's translations are part of. The command names what is no longer needed.
Each paragraph can be filed as a report; its call is in `tests/exporters/_library`.
"""


def replacing() -> list[str]:
    """Return the names of the operators whose translation is corrected."""
    return sorted({name for table in TABLES for name, item in table.items() if item.replaces})


def of_torch(name: str) -> dict[str, Case]:
    """Return torch's sample calls of an operator; some cannot be run outside an export."""
    with mock.patch.object(torch.onnx, "is_in_onnx_export", return_value=True):
        try:
            return sampled(name)
        except Exception as error:
            print(f"{name}: no samples: {type(error).__name__}: {str(error)[:200]}")
            return {}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    found = verdicts({**CASES, **COMPLEX_CASES, **OF_KERNELS, **{name: (*case, None) for name, case in CALLS.items()}})
    for name in replacing():
        if name not in found and name not in decompositions:
            found |= {key: item for key, item in verdicts(of_torch(name)).items() if key == name}
    needless = [name for name in replacing() if name in found and found[name][1] is None]
    untried = [name for name in replacing() if name not in found]
    releases = {name: version(name) for name in ("torch", "onnxscript")}
    lines = [INTRODUCTION.format(**releases)]
    for name in replacing():
        title, difference = found.get(name, ("", None))
        if difference is not None:
            exporter = f"`torch.onnx.export(..., dynamo=True)` of torch {releases['torch']}"
            lines.append(f"**`{name}`**: {exporter} translates it wrongly. In the call *{title}*, {difference}.\n")
    lines.append("## Corrections without a call that shows it\n")
    lines.append(", ".join(f"`{name}`" for name in sorted([*needless, *untried])) + "\n")
    PAGE.write_text("\n".join(lines))
    print(f"no longer needed, by every call that uses it: {', '.join(needless) or 'none'}")
    print(f"no call uses it: {', '.join(untried) or 'none'}")
    sys.exit(bool(needless))


if __name__ == "__main__":
    main()
