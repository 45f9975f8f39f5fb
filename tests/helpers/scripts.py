"""Scripts that run in processes of their own, for tests of what may end a process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyops
from tests.helpers.forks import ForkServer
from tests.helpers.systems import HAS_FORK

TIMEOUT = 120 if HAS_FORK else 600
"""Seconds after which a script counts as hung; a script ends in a few, on a busy emulated Windows in many."""
DIRTY = {"MALLOC_PERTURB_": "165"}
"""Environment in which glibc overwrites freed memory, so that a read of it does not succeed by luck."""
ENGINE = "native"
"""The engine by which the sessions of a script host the ops."""

WITHOUT_TORCH = """sys.modules["torch"] = None
"""
"""onnxruntime-extensions imports it if it is installed, which takes long."""
CHOICES = {
    "native": "",
    "extensions": f"""{WITHOUT_TORCH}
import onnxruntime_extensions
pyops.InferenceSession = functools.partial(pyops.InferenceSession, engine="extensions")
pyops.register_custom_ops = functools.partial(pyops.register_custom_ops, engine="extensions")
""",
}

# Without onnxruntime, which starts a thread and does not survive a fork.
IMPORTS = """
import functools, gc, os, signal, sys, threading, warnings
import numpy as np, onnx, pyops
from numpy.typing import NDArray
from pyops import onnx_op
from tests.helpers.models import chain, make_model
"""
PREAMBLE = f"""{IMPORTS}
import onnxruntime

F32, I64, Str = NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]
x = np.arange(3, dtype=np.float32)

def attempt(function, *args):
    try:
        result = function(*args)
        print([array.tolist() for array in result] if isinstance(result, list) else result)
    except BaseException as error:
        print(type(error).__name__, *str(error).splitlines()[:1])
"""


# Without onnxruntime too.
IMPORT_TORCH = """
import importlib.util
if importlib.util.find_spec("torch"):
    import exporters, torch._dynamo, torch.onnx._internal.exporter._core
    del exporters, torch
del importlib
"""

# Which sessions import, if it is there.
IMPORT_LLVM = """
with __import__("contextlib").suppress(ImportError):
    import llvmlite.binding
"""

_server: ForkServer | None = None
_torch_server: ForkServer | None = None


def run_script(script: str | tuple[str, ...], expected: str, code: int = 0) -> str:
    """Run a script, given in one or several pieces, after the preamble, in a fork of a process with the imports.

    Check its exit code, that it prints exactly what is expected, and that no exception left a callback. Return what
    it prints to stderr. Where processes cannot fork, it is a new process.
    """
    global _server
    if not HAS_FORK:
        return run_new_script(script, expected, code)
    _server = _server or ForkServer(_command(IMPORTS + IMPORT_LLVM), _environment())
    try:
        done = _server.run(_after_preamble(script), _environment(), TIMEOUT)
    except BaseException:
        _server.kill()
        _server = None
        raise
    return _checked(done, expected, code)


def run_beside_torch(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script that imports torch and exporters, in a folder, in a fork of a process that has imported them.

    It starts without any names of that process. Neither its exit code nor its output is checked.
    """
    global _torch_server
    _torch_server = _torch_server or ForkServer(_command(IMPORT_TORCH), _environment())
    start = f"import os, sys\nos.chdir({str(folder)!r})\nsys.path.insert(0, {str(folder)!r})\ndel os, sys\n"
    return _torch_server.run(start + script, _environment(), TIMEOUT)


def run_new_script(script: str | tuple[str, ...], expected: str, code: int = 0) -> str:
    """As `run_script`, in a new process."""
    return run_plain_script(_after_preamble(script), expected, code)


def run_plain_script(script: str, expected: str, code: int = 0) -> str:
    """As `run_script`, in a new process and without the preamble."""
    command = _command(f"exec({script!r})")
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT)
    return _checked(done, expected, code)


def _after_preamble(script: str | tuple[str, ...]) -> str:
    pieces = (script,) if isinstance(script, str) else script
    return "\n".join([PREAMBLE, CHOICES[ENGINE], *map(textwrap.dedent, pieces)])


def _command(script: str) -> list[str]:
    # A shell that runs the tests in the background ignores SIGINT, and its children inherit that.
    start = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    if not HAS_FORK:  # Windows, where os.kill ends the process
        start += "os.kill = lambda process, number: signal.raise_signal(number)\n"
    return [sys.executable, "-X", "faulthandler", "-c", start + script]


def _environment() -> dict[str, str]:
    paths = [str(Path(pyops.__file__).parents[1]), str(Path(__file__).parents[2])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | DIRTY


def _checked(done: subprocess.CompletedProcess[str], expected: str, code: int) -> str:
    story = f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    assert done.returncode == code, story
    assert done.stdout.splitlines() == textwrap.dedent(expected).strip().splitlines(), story
    assert "ctypes callback" not in done.stderr, story
    return done.stderr
