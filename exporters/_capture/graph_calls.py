"""The calls of a captured graph, each with a name and with the line of the user's code that it comes from.

When torch decomposes a node, the parts keep its custom metadata, so each call stores both there.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.fx.traceback import get_current_meta

import pyops

from .._torch.private.operators import OpOverload, is_random, schema_arguments
from .._torch.private.torch_export import graph_modules

_MARK = "pyops_call"

LINE = "pyops_line"
"""The key in a node's custom metadata for its `calling_line`."""

READ = "pyops_read"
"""The key in a node's custom metadata for the `calling_expression` that reads the values of a tensor."""

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in ')
# Other names in angle brackets are the user's: "<stdin>", "<ipython-input-1-...>".
_GENERATED = ("<eval_with_key>", "<frozen ", "<string>")
_TORCH = (f"{Path(torch.__file__).parent}/", *_GENERATED)  # torch.cond compiles its branches from generated code
_PACKAGES = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
_STANDARD = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OWN = (f"{Path(__file__).parents[1]}/", f"{Path(pyops.__file__).parent}/")
# The frames outside these belong to the code that called the export, not to the model.
TRACE = f"{Path(__file__).parent}/trace.py"
ENTRIES = (f"{Path(__file__).parents[1]}/_torch/private/onnx_exporter.py", TRACE)

Place = tuple[str, int]
"""A file and a line."""

NOWHERE: Place = ("", 0)


def call_nodes(program: torch.export.ExportedProgram) -> Iterator[tuple[str, Node]]:
    """Yield every call of a torch operator in the graph and its subgraphs (branches of ``torch.cond``), by name."""
    for name, module in graph_modules(program).items():
        for node in module.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, OpOverload):
                yield f"{name}/{node.name}", node


def mark_calls(program: torch.export.ExportedProgram) -> dict[str, Node]:
    """Write the name of every call into its metadata, and return the calls by name."""
    found = dict(call_nodes(program))
    for name, node in found.items():
        node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}
    return found


def mark_of(node: Node) -> str:
    """Return the name of the call that a node is, or is decomposed from; ``""`` for neither."""
    return str((node.meta.get("custom") or {}).get(_MARK, ""))


def source_line(node: Node) -> str:
    """Return the line that a node comes from, ``"model.py:12: return x.inverse()"``, or ``""`` if torch has none.

    It is the innermost line that is not in a library, or else the innermost in a package that is not torch.
    """
    line: str = (node.meta.get("custom") or {}).get(LINE, "")
    if line:
        return line
    frames = [(item["file"], int(item["line"])) for item in _FRAME.finditer(node.meta.get("stack_trace") or "")]
    return format_place(innermost(reversed(frames)))


def place_of(node: Node) -> Place:
    """Return the file and the line of `source_line`; ``("", 0)`` if torch has none."""
    return _read_place(source_line(node))


def random_calls(program: torch.export.ExportedProgram) -> list[str]:
    """Return the calls of a captured program that draw random numbers, each with its line of the user's code."""
    calls = [(str(node.target), source_line(node)) for _, node in call_nodes(program) if draws(node)]
    return [" at ".join(filter(None, call)) for call in dict.fromkeys(calls)]


def draws(node: Node) -> bool:
    """Return whether a call draws random numbers; dropout in evaluation mode, or of all or nothing, does not."""
    if not isinstance(node.target, OpOverload) or not is_random(node.target):
        return False
    given = arguments_of(node)
    trains = given.get("train", given.get("training")) is not False
    return trains and not any(given.get(name) in (0, 1) for name in ("p", "dropout", "dropout_p"))


def arguments_of(node: Node) -> dict[str, Any]:
    """Return the arguments of a call of an operator by name, defaults included."""
    assert isinstance(node.target, OpOverload)
    declared = schema_arguments(node.target)
    given = dict(zip((item.name for item in declared), node.args, strict=False))
    return {item.name: item.default for item in declared} | given | node.kwargs


def calling_place() -> Place:
    """Return the running line of the user's code in a capture, chosen as by `source_line`."""
    stack = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None))
    found = innermost(itertools.takewhile(lambda frame: frame[0] not in ENTRIES, stack))
    # Scripted modules run without frames; their calls are annotated.
    return found if found[0] else _read_place((get_current_meta().get("custom") or {}).get(LINE, ""))


def definition_place(function: Callable[..., Any]) -> Place:
    """Return where a function or method is defined."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else NOWHERE


def calling_expression() -> str:
    """Return the code of the call that runs at `calling_place`, ``"x.numpy()"``; ``""`` if it is not on one line."""
    place = calling_place()
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        if (frame.f_code.co_filename, line) == place:
            first, last, start, end = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
            return linecache.getline(*place).encode()[start:end].decode().strip() if first == last else ""
    return ""


def calling_line() -> str:
    """Return `calling_place` in the form of `source_line`."""
    return format_place(calling_place())


def format_place(place: Place) -> str:
    """Return ``"model.py:12: return x.inverse()"``, or ``""`` for no place."""
    return f"{place[0]}:{place[1]}: {linecache.getline(*place).strip()}" if place[0] else ""


def _read_place(line: str) -> Place:
    found = re.match(r"(.+?):(\d+): ", line)
    return (found[1], int(found[2])) if found else NOWHERE


def in_torch(file: str) -> bool:
    """Return whether a file is torch's."""
    return file.startswith(_TORCH)


def innermost(frames: Iterable[Place]) -> Place:
    """Return the innermost line in the user's code, or else in a package other than torch, or else `NOWHERE`.

    `frames` begins with the innermost line.
    """
    outside = [(file, line) for file, line in frames if not file.startswith((*_TORCH, *_OWN))]
    packages = [frame for frame in outside if frame[0].startswith(_PACKAGES)]
    users = [frame for frame in outside if not frame[0].startswith((*_PACKAGES, *_STANDARD))]
    return next(iter(users or packages), NOWHERE)
