"""The description that a library contains: a text in the file, which can be read without loading the library."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .report import BuildReport, BuiltOp
from .symbols import elf_symbols

_MARK = b"pyops library: "


def description(target: str, cpu: str, ops: Sequence[BuiltOp], oldest_onnxruntime: str) -> str:
    """Return the text to put into a library."""
    told = {"target": target, "cpu": cpu, "ops": list(map(dataclasses.asdict, ops)), "onnxruntime": oldest_onnxruntime}
    return _MARK.decode() + json.dumps(told)


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
        told = json.loads(data[begin + len(_MARK) : data.index(b"\0", begin)])
        ops = tuple(
            BuiltOp(op["name"], op["version"], tuple(op["types"]), tuple(op["ranks"]), op["functions"])
            for op in told["ops"]
        )
        target, cpu, oldest_onnxruntime = told["target"], told["cpu"], told["onnxruntime"]
        symbols = list(elf_symbols(path)) if data.startswith(b"\x7fELF") else []
    except (struct.error, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a library that pyops build made, but it is damaged; build it again") from error
    versions = {version for _, version, _ in symbols if version.startswith("GLIBC_2")}
    glibc = max((tuple(map(int, version[6:].split("."))) for version in versions), default=())
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
