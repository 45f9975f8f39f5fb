"""What a build made: as a table, and as the text in a library, which can be read without loading the library."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..._support.text_tables import Displayable, Part
from ...errors import InputError
from .external_symbols import elf_symbols

_MARK = b"pyops library: "
T = TypeVar("T")


@dataclass(frozen=True)
class BuiltOp:
    """An op of a library.

    Attributes
    ----------
    types : tuple of str
        The element types of its inputs that it is built for.
    ranks : tuple of str
        The ranks of its inputs; ``"any"`` where leading dimensions are taken together.
    functions : int
        The number of specializations.
    """

    name: str
    version: int
    types: tuple[str, ...]
    ranks: tuple[str, ...]
    functions: int


@dataclass(frozen=True, repr=False)
class BuildReport(Displayable):
    """What `pyops.build` made.

    Attributes
    ----------
    path : str
        The path of the library.
    target, cpu : str
        What it is built for.
    ops : tuple of BuiltOp
        The ops in the library.
    size : int
        The size of the file in bytes.
    undefined_symbols : tuple of str
        The symbols that the library needs from the system; empty for files other than ELF.
    glibc : str
        The oldest glibc that it runs with, such as ``"2.17"``; empty if it needs none.
    oldest_onnxruntime : str
        The oldest ONNX Runtime that it runs in.
    warnings : tuple of str
        What is not in the library, or slower than it could be, and why.
    refused : tuple of str
        The ops that are not in the library, and why.
    """

    path: str
    target: str
    cpu: str
    ops: tuple[BuiltOp, ...]
    size: int
    undefined_symbols: tuple[str, ...]
    glibc: str
    oldest_onnxruntime: str
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def parts(self) -> list[Part]:
        """Return the lines and tables to display."""
        rows = [["op", "version", "types", "ranks", "functions"]]
        rows += [
            [op.name, str(op.version), ", ".join(op.types), " ".join(op.ranks), str(op.functions)] for op in self.ops
        ]
        glibc = f", glibc {self.glibc}" if self.glibc else ""
        return [
            f"{self.path}: {self.size:,} bytes for {self.target} ({self.cpu}), ONNX Runtime "
            f"{self.oldest_onnxruntime} or later{glibc}",
            rows,
            *(f"needs from the system: {' '.join(self.undefined_symbols)}" for _ in self.undefined_symbols[:1]),
            *(f"warning: {text}" for text in self.warnings),
            *(f"not built: {text}" for text in self.refused),
        ]


def description(target: str, cpu: str, ops: Sequence[BuiltOp], oldest_onnxruntime: str) -> str:
    """Return the text to put into a library."""
    known = {"target": target, "cpu": cpu, "ops": list(map(dataclasses.asdict, ops)), "onnxruntime": oldest_onnxruntime}
    return _MARK.decode() + json.dumps(known)


def read_library(path: Path, warnings: Sequence[str] = (), refused: Sequence[str] = ()) -> BuildReport:
    """Return the report on a library that `pyops.build` made.

    Parameters
    ----------
    warnings, refused : sequence of str
        What only the build itself knows.

    Raises
    ------
    InputError
        The file is not such a library, or is damaged.
    """
    data = path.read_bytes()
    begin = data.find(_MARK + b"{")
    if begin < 0:
        raise InputError(f"{path} is not a library that pyops build made")
    try:
        known = json.loads(data[begin + len(_MARK) : data.index(b"\0", begin)])
        ops = tuple(map(_built_op, _checked(list, known["ops"])))
        target, cpu, oldest_onnxruntime = (_text(known[name]) for name in ("target", "cpu", "onnxruntime"))
        symbols = list(elf_symbols(path)) if data.startswith(b"\x7fELF") else []
        versions = {version for _, version, _ in symbols if version.startswith("GLIBC_2")}
        glibc = max((tuple(map(int, version[6:].split("."))) for version in versions), default=())
    except (struct.error, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a library that pyops build made, but it is damaged; build it again") from error
    return BuildReport(
        str(path),
        target,
        cpu,
        ops,
        len(data),
        tuple(sorted(name for name, _, defined in symbols if not defined and not name.startswith("_"))),
        ".".join(map(str, glibc)),
        oldest_onnxruntime,
        tuple(warnings),
        tuple(refused),
    )


def _built_op(item: Any) -> BuiltOp:
    types, ranks = (tuple(map(_text, _checked(list, item[name]))) for name in ("types", "ranks"))
    return BuiltOp(_text(item["name"]), _checked(int, item["version"]), types, ranks, _checked(int, item["functions"]))


def _text(value: Any) -> str:
    if not _checked(str, value).isprintable():
        raise ValueError(f"{value!r} has characters that cannot be shown")
    return str(value)


def _checked(kind: type[T], value: Any) -> T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value
