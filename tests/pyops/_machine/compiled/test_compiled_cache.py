"""Machine code on disk: which processes compile, which do not, and what makes them compile again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pyops._machine.cache_folder import is_trusted
from pyops.errors import CacheWarning
from tests.helpers.scripts import run_new_script

COUNT = """
import logging
from typing import TypeVar
from numpy.typing import NDArray

class Count(logging.Handler):
    def emit(self, record):
        if record.args[0].endswith("(entry)"):
            print(record.getMessage())

logging.getLogger("pyops").addHandler(Count())
logging.getLogger("pyops").setLevel("INFO")
T = TypeVar("T", np.float32, np.float64)
"""

KERNEL = """
SCALE = 2.0

def helper(x):
    return x + x

@onnx_op("cached::Scale", compile=True, parallel="()->()")
def scale(x: NDArray[T], *, k: int = 1) -> NDArray[T]:
    if x.size > 100:
        raise ValueError("too long")
    return helper(x) * x.dtype.type(SCALE * k)

@scale.register_shape_inference
def _(x, k=1):
    return x
"""

RUN = """
from numba.core import event
class Events(event.Listener):
    count = 0
    def on_start(self, event): Events.count += 1
    def on_end(self, event): pass
event.register("numba:compile", Events())
session = pyops.InferenceSession(chain("cached::Scale"))
attempt(lambda: session.run(None, {"x": np.ones(2, np.float32)}))
attempt(lambda: session.run(None, {"x": np.ones(2, np.float32)}))
attempt(lambda: session.run(None, {"x": np.ones(200, np.float32)}))
print(scale(np.ones(1, np.float32), k=2).tolist(), "compiled" if Events.count else "from disk")
"""


def run(kernel: str, expected: str) -> str:
    return run_new_script((COUNT, kernel, RUN), expected)


def results(scale: float, where: str) -> str:
    lines = [f"[[{scale}, {scale}]]"] * 2 + ["ValueError too long", f"[{2 * scale}] {where}"]
    first = ["compiling cached::Scale for sessions (entry)"] if where == "compiled" else []
    return "\n".join(first + lines)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first process leaves."""
    path = tmp_path_factory.mktemp("machine_code")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYOPS_CACHE_DIR", str(path))
        run(KERNEL, results(4.0, "compiled"))
    return path


@pytest.fixture(autouse=True)
def folder(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = shutil.copytree(filled, tmp_path / "cache")
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(copied))
    return copied


def test_the_second_process_does_not_compile() -> None:
    run(KERNEL, results(4.0, "from disk"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("old", "new", "scale"),
    [
        ("SCALE = 2.0", "SCALE = 3.0", 6.0),
        ("return x + x", "return x + x + x", 6.0),
        ("* x.dtype.type(SCALE * k)", "* x.dtype.type(SCALE * k * 2)", 8.0),
    ],
    ids=["a constant", "a function that it calls", "the kernel"],
)
def test_what_the_code_depends_on_has_it_compiled_again(old: str, new: str, scale: float) -> None:
    assert old in KERNEL
    run(KERNEL.replace(old, new), results(scale, "compiled"))


def test_the_cache_is_in_the_users_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYOPS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder.rename(tmp_path / "pyops")
    run(KERNEL, results(4.0, "from disk"))


VERSION = """
@onnx_op("cached::Edited", compile=True)
def edited(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return CODE
print(edited(np.array([-3, 2])).tolist())
"""


def test_versions_of_a_kernel_that_different_processes_compiled_are_not_confused() -> None:
    for codes, expected in (
        (["np.abs(x)"], "[3, 2]"),
        (["np.square(x)"], "[9, 4]"),
        (["np.square(x)", "np.abs(x)"], "[9, 4]\n[3, 2]"),
    ):
        run_new_script(f"for code in {codes}:\n    exec({VERSION!r}.replace('CODE', code))", expected)


@pytest.mark.exhaustive
def test_functions_of_numba_may_be_referred_to() -> None:
    kernel = KERNEL.replace("def helper(x):", "import numba\n\n@numba.njit\ndef helper(x):")
    run(kernel, results(4.0, "compiled"))
    run(kernel, results(4.0, "from disk"))


SETTINGS = """
import enum
from collections import namedtuple

import numba

VALUE = 2

class Mode(enum.IntEnum):
    FACTOR = 2

PAIR = namedtuple("Pair", "two three" if VALUE < 3 else "three two")(2, 3)

@numba.njit
def constant():
    return VALUE

@numba.experimental.jitclass
class Box:
    def __init__(self):
        pass

    def get(self):
        return VALUE
"""


@pytest.mark.parametrize(
    "value",
    [
        "settings.constant()",
        "getattr(settings, 'VALUE')",
        "settings.Mode.FACTOR.value",
        "Mode['FACTOR'].value",
        "FACTOR.value",
        "settings.PAIR.two",
        "settings.Box().get()",
    ],
)
def test_a_change_in_another_module_has_it_compiled_again(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = f"""
import numpy as np
import settings
from numpy.typing import NDArray
from pyops import onnx_op
from settings import Mode

FACTOR = Mode.FACTOR

@onnx_op("cached::Settings", compile=True)
def times(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return x * {value}
"""
    for text, result in ((SETTINGS, 2), (SETTINGS.replace("= 2", "= 3"), 3)):
        settings = ModuleType("settings")
        exec(text, settings.__dict__)
        monkeypatch.setitem(sys.modules, "settings", settings)
        names: dict[str, Any] = {"__name__": "kernels_of_settings"}
        exec(kernel, names)
        assert names["times"](np.ones(1, np.int64)).tolist() == [result]


VARIANTS = """
import numba
import numpy as np
from numba import extending, types
from numpy.typing import NDArray
from pyops import onnx_op

F64 = NDArray[np.float64]

def add(x): return x + 1

def scale(x): return x * 10

def maker(c):
    def made(x): return x + c
    return made

one, two = maker(1), maker(2)
"""


@pytest.mark.parametrize(
    ("code", "term", "results"),
    [
        ("f = {}", "f(scale(add(x)))", {"add": 56.0, "scale": 550.0}),
        ("f = {}", "one(x) * 100 + two(x) * 10 + f(x)", {"one": 620.5, "two": 621.5}),
        (
            "@numba.njit('{}')\ndef f(a): return a",
            "x + f(x[0]) / 2.0",
            {"float64(float64)": 6.75, "int64(int64)": 6.5},
        ),
        (
            "@numba.njit(locals={{'y': types.{}}})\ndef f(a):\n    y = a / 4\n    return y * 1.0",
            "x + f(x[0])",
            {"int64": 5.5, "float64": 5.625},
        ),
        (
            "def f(x): return x\n@extending.overload(f)\ndef _(x): return lambda x: x * {}",
            "f(x)",
            {"2": 9.0, "3": 13.5},
        ),
        (
            "@extending.overload_method(types.Array, 'times')\ndef _(x, by): return lambda x, by: x * by * {}",
            "x.times(2)",
            {"2": 18.0},
        ),
    ],
    ids=["seen already", "closures", "signature", "locals", "overload", "method"],
)
def test_a_change_of_what_a_kernel_refers_to_has_it_compiled_again(
    code: str, term: str, results: dict[str, float]
) -> None:
    for value, result in results.items():
        names: dict[str, Any] = {"__name__": "variants"}
        exec(
            VARIANTS
            + code.format(value)
            + f"\n@onnx_op('cached::Vary', compile=True)\ndef k(x: F64) -> F64: return {term}",
            names,
        )
        assert names["k"](np.array([4.5])).tolist() == [result]


METHOD = """
from numba import extending, types

@extending.overload_method(types.Array, "scaled")
def _(x):
    return lambda x: x * x.dtype.type(2)

@extending.overload_method(types.Array, "unused")
def _(x):
    return lambda x: undescribed(x)

undescribed = object()
"""


def test_methods_that_users_add_to_arrays_are_a_part_of_what_is_compiled() -> None:
    for method, scale, where in (
        (METHOD, 4.0, "compiled"),
        (METHOD, 4.0, "from disk"),
        (METHOD.replace("type(2)", "type(3)"), 6.0, "compiled"),
    ):
        run(method + KERNEL.replace("return x + x", "return x.scaled()"), results(scale, where))


def test_code_compiled_after_a_change_of_a_global_array_is_not_kept_for_the_array_before_it() -> None:
    kernel = """
WEIGHTS = np.ones(1)

@onnx_op("cached::Weigh", compile=True)
def weigh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x + WEIGHTS[0]
"""
    change = "print(weigh(np.zeros(1)))\nWEIGHTS[0] = 2\nprint(weigh(np.zeros((1, 1))))"
    run_new_script((COUNT, kernel, change), "[1.]\n[[2.]]")
    run_new_script((COUNT, kernel, "print(weigh(np.zeros((1, 1))))"), "[[1.]]")
    run_new_script((COUNT, kernel, change), "[1.]\n[[2.]]")


@pytest.mark.exhaustive
def test_damaged_files_are_compiled_again(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:50])
    run(KERNEL, results(4.0, "compiled"))


@pytest.mark.exhaustive
def test_where_nothing_can_be_kept_it_is_compiled_each_time(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")
    run(KERNEL, results(4.0, "compiled"))


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="modes of folders are POSIX's")
def test_code_from_a_folder_that_others_can_write_to_is_not_run(folder: Path) -> None:
    folder.chmod(0o777)
    told = run(KERNEL, results(4.0, "compiled"))
    assert told.count("CacheWarning") == 1
    assert f"{folder} can be written to by all users" in told
    folder.chmod(0o755)
    run(KERNEL, results(4.0, "from disk"))
    for file in folder.iterdir():
        file.chmod(0o666)
    told = run(KERNEL, results(4.0, "compiled"))
    assert ".nbc can be written to by all users" in told
    assert ".o can be written to by all users" in told
    assert "CacheWarning" not in run(KERNEL, results(4.0, "from disk"))


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_code_from_a_folder_of_another_user_is_not_run(folder: Path) -> None:
    os.chown(folder, 12345, -1)
    assert "belongs to another user (12345)" in run(KERNEL, results(4.0, "compiled"))


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX's")
def test_a_file_that_another_user_can_have_written_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "code"
    assert is_trusted(file)
    file.touch(0o600)
    assert is_trusted(file)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
    else:
        file.chmod(0o602)
    with pytest.warns(CacheWarning, match=rf"{file} (belongs to another user|can be written to by all).*delete it"):
        assert not is_trusted(file)


@pytest.mark.exhaustive
def test_a_user_without_a_home_has_it_compiled_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYOPS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    nobody = """
        import pwd

        def getpwuid(number):
            raise KeyError(number)

        pwd.getpwuid = getpwuid
    """
    run_new_script((nobody, COUNT, KERNEL, RUN), results(4.0, "compiled"))
