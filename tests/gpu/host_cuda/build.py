"""Compiles the CUDA runtime on host memory with the system's C compiler: `CC`, or ``cc``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
# What onnxruntime-gpu links against and CuPy opens, the file it is made of, and the options.
LIBRARIES = {
    "libcudart.so.13": ("runtime.c",),
    "libcublas.so.13": ("libraries.c", "-DCUBLAS"),
    "libcublasLt.so.13": ("libraries.c", "-DCUBLASLT"),
    "libcurand.so.10": ("libraries.c",),
    "libcuda.so.1": ("driver.c", "-L.", "-l:libcudart.so.13", "-ldl"),
    "libnvrtc.so.13": ("compiler.c",),
}
OPTIONS = ("-O1", "-g", "-shared", "-fPIC", "-Wall", "-pthread")


def compiler() -> str | None:
    """Return the path of the C compiler, or None."""
    return shutil.which(os.environ.get("CC", "cc"))


def build(cache: Path) -> Path:
    """Return the folder of the libraries, under `cache`; they are compiled if the sources have changed."""
    sources = sorted(path for path in SOURCES.rglob("*") if path.is_file())
    contents = b"".join(path.read_bytes() for path in sources) + Path(__file__).read_bytes()
    folder = cache / hashlib.sha256(contents).hexdigest()[:16]
    if not folder.exists():
        # Another process may build the same: the folder appears as a whole, and what was there first stays.
        with tempfile.TemporaryDirectory(dir=cache) as made:
            for name, (source, *options) in LIBRARIES.items():
                _compile(Path(made), name, SOURCES / source, options)
            shutil.copytree(made, f"{made}.whole")
        try:
            Path(f"{made}.whole").rename(folder)
        except OSError:
            shutil.rmtree(f"{made}.whole")
    return folder


def _compile(folder: Path, name: str, source: Path, options: list[str]) -> None:
    # onnxruntime-gpu asks for versioned symbols: libcudart.so.13@@libcudart.so.13.
    versions = folder / f"{name}.map"
    versions.write_text(f"{name} {{ global: *; }};")
    names = f"-Wl,-soname,{name},--version-script,{versions}"
    command = [compiler() or "cc", *OPTIONS, str(source), "-o", name, names, *options]
    subprocess.run(command, cwd=folder, check=True)
    versions.unlink()
