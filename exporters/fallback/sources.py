"""Which line of the user's code a node comes from."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*\n\s*(?P<code>[^\n]*)')
_TORCH = Path(torch.__file__).parent


def source_line(node: torch.fx.Node) -> str:
    """``"model.py:12: return x.inverse()"``; empty where torch does not tell.

    It is the innermost line outside torch.
    """
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    # torch.cond compiles its branches from code that it wrote itself.
    own = [frame for frame in frames if not frame["file"].startswith("<") and _TORCH not in Path(frame["file"]).parents]
    return f"{own[-1]['file']}:{own[-1]['line']}: {own[-1]['code'].strip()}" if own else ""
