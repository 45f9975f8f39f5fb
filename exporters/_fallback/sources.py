"""Which line of the user's code a node comes from."""

from __future__ import annotations

import itertools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

import torch

LINE = "pyops_line"
"""Where a node's custom metadata has its `calling_line`."""

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
_TORCH = (f"{Path(torch.__file__).parent}/", "<")  # torch.cond compiles its branches from code that it wrote itself
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_HERE = f"{Path(__file__).parent}/"


def source_line(node: torch.fx.Node) -> str:
    """``"model.py:12: return x.inverse()"``; empty where torch does not tell.

    It is the innermost line of a file that is no library's, or else of one that is not torch's.
    """
    line: str = (node.meta.get("custom") or {}).get(LINE, "")
    if line:
        return line
    frames = [(item["file"], int(item["line"])) for item in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    return _innermost(reversed(frames))


def calling_line() -> str:
    """The line that is being run inside ``torch.export``, spelled as `source_line` does; empty where there is none."""
    stack = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None))
    frames = itertools.takewhile(lambda frame: frame[0] != f"{_HERE}capturing.py", stack)
    return _innermost(frames)


def _innermost(frames: Iterable[tuple[str, int]]) -> str:
    """The first line that is nobody's library, or else not torch's."""
    outside = [(file, line) for file, line in frames if not file.startswith((*_TORCH, _HERE))]
    users = [frame for frame in outside if not frame[0].startswith(_LIBRARIES)]
    chosen = next(iter(users or outside), None)
    return f"{chosen[0]}:{chosen[1]}: {linecache.getline(*chosen).strip()}" if chosen else ""
