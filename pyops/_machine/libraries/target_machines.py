"""Machines that libraries are built for, the CPU features that their code needs, and linking by a C compiler."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import llvmlite.binding as llvm

from ..._support.atomic_files import whole_file
from ..._support.system import HOST
from ...errors import InputError, MissingDependencyError, PyopsError
from .. import memory_layout as layout

Linker = Literal["cc", "zig"]


@dataclass(frozen=True)
class Target:
    """An operating system with a kind of CPU.

    Attributes
    ----------
    triple : str
        Its name in LLVM.
    zig : str
        Its name in ``zig cc``, for Linux with the oldest glibc.
    cpu : str
        The CPU whose instructions are used unless another one is given.
    """

    name: str
    triple: str
    zig: str
    cpu: str

    @property
    def is_host(self) -> bool:
        """Return whether libraries for it run on this machine."""
        return self.name == HOST

    def machine(self, cpu: str) -> Any:
        """Return LLVM's target machine for a CPU of this kind; ``"native"`` is that of this machine.

        Raises
        ------
        InputError
            `cpu` is ``"native"``, and this machine is not this target.
        """
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        features = ""
        if cpu == "native":
            if not self.is_host:
                raise InputError(f'cpu="native" is the CPU of this machine, which is not {self.name}; name a CPU')
            from numba.core.codegen import get_host_cpu_features

            cpu, features = llvm.get_host_cpu_name(), get_host_cpu_features()
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
        )


TARGETS = {
    target.name: target
    for target in (
        Target("linux-x86-64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu.2.17", "x86-64-v3"),
        Target("linux-aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu.2.17", "generic"),
        Target("windows-x86-64", "x86_64-w64-windows-gnu", "x86_64-windows-gnu", "x86-64-v3"),
        Target("macos-arm64", "arm64-apple-macosx11.0.0", "aarch64-macos.11.0", "apple-m1"),
    )
}


def find_target(name: str | None) -> Target:
    """Return a target by name; None is this machine.

    Raises
    ------
    InputError
        There is no such target.
    """
    if (name or HOST) not in TARGETS:
        raise InputError(f"there is no target {name or HOST!r}; the targets are {', '.join(TARGETS)}")
    return TARGETS[name or HOST]


# Where CPUID reports a feature: leaf, subleaf, register and bit (Intel's manual, volume 2A), by LLVM's name.
_CPUID = {
    **{name: (1, 0, "c", bit) for name, bit in [("sse3", 0), ("ssse3", 9), ("fma", 12), ("sse4.1", 19)]},
    **{
        name: (1, 0, "c", bit)
        for name, bit in [("sse4.2", 20), ("movbe", 22), ("popcnt", 23), ("avx", 28), ("f16c", 29)]
    },
    **{name: (7, 0, "b", bit) for name, bit in [("bmi", 3), ("avx2", 5), ("bmi2", 8), ("avx512f", 16)]},
    **{name: (7, 0, "b", bit) for name, bit in [("avx512dq", 17), ("avx512ifma", 21), ("avx512cd", 28)]},
    **{name: (7, 0, "b", bit) for name, bit in [("avx512bw", 30), ("avx512vl", 31)]},
    **{
        name: (7, 0, "c", bit) for name, bit in [("avx512vbmi", 1), ("avx512vbmi2", 6), ("gfni", 8), ("avx512vnni", 11)]
    },
    **{name: (7, 0, "c", bit) for name, bit in [("avx512bitalg", 12), ("avx512vpopcntdq", 14)]},
    "avx512fp16": (7, 0, "d", 23),
    "avx512bf16": (7, 1, "a", 5),
    "lzcnt": (0x80000001, 0, "c", 5),
}
_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS = {"x86-64": (), "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


def features(target: Target, cpu: str) -> list[tuple[str, tuple[int, int, str, int]]]:
    """Return the features of an x86-64 CPU that not all x86-64 CPUs have, and where CPUID reports each.

    Raises
    ------
    InputError
        A library could not tell whether it runs on such a CPU.
    """
    if not target.triple.startswith("x86_64"):
        return []
    if cpu == "native":
        enabled = [name for name, there in llvm.get_host_cpu_features().items() if there]
        return [(name, _CPUID[name]) for name in _CPUID if name in enabled]
    if cpu not in _LEVELS:
        raise InputError(
            f"a library cannot tell at run time whether a CPU is {cpu!r}; choose one of {', '.join(_LEVELS)}, native"
        )
    return [(name, _CPUID[name]) for name in _LEVELS[cpu]]


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
        Path(folder, "layout.h").write_text(_c_layout())
        flags = ["-O2", "-std=gnu11", "-shared", "-s", "-fvisibility=hidden", '-DTABLES="tables.h"']
        flags += ["-fPIC"] * (not target.name.startswith("windows"))
        flags += [f"-DMOST_TENSORS={most_tensors}", "-I", folder, "-I", str(sources)]
        with whole_file(path) as part:
            command = [*compiler, *flags, str(sources / "runtime.c"), f"{folder}/kernels.o", "-o", str(part), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PyopsError(f"{compiler[0]} cannot link {path}:\n{done.stdout}{done.stderr}")


def _c_layout() -> str:
    """Return the positions of words that ``runtime.c`` shares with the machine code of kernels, as C."""
    shared = "TENSOR_WORDS", "DIMS", "DATA", "GET_OUTPUT", "GET_DATA", "PARALLEL_FOR", "RECORD_ATTRIBUTES"
    places = (f"{name} = {getattr(layout, name)}" for name in (*shared, "JOB_STOPPED", "MISMATCH"))
    return f"enum {{ {', '.join(places)} }};\n"
