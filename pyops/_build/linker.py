"""Linking of an object file with ``runtime.c``, by the C compiler of this machine or by zig's."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from .._files import whole_file
from ..errors import InputError, MissingDependencyError, PyopsError
from .targets import Target

Linker = Literal["cc", "zig"]


def find_linker(linker: Linker | None, target: Target) -> list[str]:
    """Return the command of a C compiler for a target: by default ``cc`` for this machine if it is installed, or zig's.

    Raises
    ------
    InputError
        `linker` is unknown, or ``cc`` makes no libraries for the target.
    MissingDependencyError
        The compiler is not installed.
    """
    if linker not in (None, "cc", "zig"):
        raise InputError(f'linker={linker!r} is unknown; it must be "cc" or "zig"')
    if linker is None:
        linker = "cc" if target.is_host and shutil.which("cc") else "zig"
    if linker == "cc":
        if not target.is_host:
            raise InputError(f'cc makes libraries for this machine, not for {target.name}; use linker="zig"')
        if shutil.which("cc") is None:
            raise MissingDependencyError(
                'linker="cc" needs the C compiler cc, which is not installed; install it, or use linker="zig": '
                'pip install "onnx-pyops[cross]"'
            )
        return ["cc", "-Wl,--no-undefined"]
    if importlib.util.find_spec("ziglang") is None:
        raise MissingDependencyError(f'linking for {target.name} needs zig: pip install "onnx-pyops[cross]"')
    return [sys.executable, "-m", "ziglang", "cc", "-target", target.zig]


def link(compiler: list[str], target: Target, code: bytes, tables: str, most_tensors: int, path: Path) -> None:
    """Link an object file and the tables of its ops to a library.

    Raises
    ------
    OSError
        The library cannot be written.
    PyopsError
        The compiler fails.
    """
    with tempfile.TemporaryDirectory() as folder, as_file(files(__package__)) as sources:
        Path(folder, "kernels.o").write_bytes(code)
        Path(folder, "tables.h").write_text(tables)
        flags = ["-O2", "-std=gnu11", "-shared", "-s", "-fvisibility=hidden", '-DTABLES="tables.h"']
        flags += ["-fPIC"] * (not target.name.startswith("windows"))
        flags += [f"-DMOST_TENSORS={most_tensors}", "-I", folder, "-I", str(sources)]
        with whole_file(path) as part:
            command = [*compiler, *flags, str(sources / "runtime.c"), f"{folder}/kernels.o", "-o", str(part), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PyopsError(f"{compiler[0]} cannot link {path}:\n{done.stdout}{done.stderr}")
