"""What differs between systems: caches, owners, names of files, and structures that callbacks get."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, addressof, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops._core.runtime.native import ort_custom_op
from pyops._core.runtime.native.c_api import PROTOTYPES
from pyops._machine.cache_folder import cache_folder, read_code, write_code
from pyops._support import system
from pyops._support.atomic_files import write_text
from tests.helpers.models import chain
from tests.helpers.systems import HAS_FORK

windows_only = pytest.mark.skipif(HAS_FORK, reason="only Windows refuses this")


@pytest.mark.parametrize(
    ("windows", "macos", "expected"),
    [(False, False, ".cache"), (False, True, "Library/Caches"), (True, False, "given")],
)
def test_caches_are_in_the_folder_of_the_system(
    windows: bool, macos: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "IS_WINDOWS", windows)
    monkeypatch.setattr(system, "IS_MACOS", macos)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "given"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("PYOPS_CACHE_DIR")
    assert cache_folder() == tmp_path / expected / "pyops"


def test_what_this_process_makes_belongs_to_nobody_else(tmp_path: Path) -> None:
    assert system.foreign_owner(tmp_path) == ""
    with pytest.raises(FileNotFoundError):
        system.foreign_owner(tmp_path / "none")


@windows_only
def test_another_owner_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_USER_AND_OWNER", ())  # nobody is this user
    monkeypatch.setattr(system, "_TRUSTED", ())
    assert system.foreign_owner(tmp_path).startswith("S-1-5-")


def test_long_paths_and_names_that_are_not_ascii_are_files_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So begins a long path on Windows, unless the system's settings permit others.
    start = tmp_path if HAS_FORK else Path(rf"\\?\{tmp_path}")
    folder = start.joinpath(*["Ordner-mit-Ümläuten-и-的" * 2] * 6)
    folder.mkdir(parents=True)
    assert len(str(folder)) > 260
    monkeypatch.setenv("PYOPS_CACHE_DIR", str(folder / "cache"))
    write_code("code", b"data")
    assert read_code("code") == b"data"
    write_text(folder / "é.txt", "é")
    assert (folder / "é.txt").read_text(encoding="utf-8") == "é"

    @pyops.onnx_op("systems::Twice")
    def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + x

    onnx.save(chain("systems::Twice"), folder / "modèle.onnx")
    session = pyops.InferenceSession(folder / "modèle.onnx")
    assert session.run(None, {"x": np.ones(3, np.float32)})[0].tolist() == [2, 2, 2]


@windows_only
def test_a_file_that_is_in_use_is_not_replaced_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with path.open() as file, pytest.raises(PermissionError, match="close it"):
        write_text(path, "new")
    del file
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_callbacks_get_two_arguments_as_one_structure() -> None:
    seen = []

    def compute(pair: ctypes.Structure) -> int:
        seen.append((pair.first, pair.second))
        return pair.first + pair.second

    address = ort_custom_op.immortal(PROTOTYPES["KernelComputeV2"](compute))
    call = CFUNCTYPE(c_void_p, c_void_p, c_void_p)(address)
    assert [call(2**40, 7), call(3, 2**50)] == [2**40 + 7, 2**50 + 3]
    assert seen == [(2**40, 7), (3, 2**50)]


def test_the_pairs_that_may_share_memory_are_told_by_c_code_alone() -> None:
    address = ort_custom_op._in_place_callbacks(((1, 0), (3, 2)))["GetMayInplace"]
    inputs, outputs = POINTER(c_int)(), POINTER(c_int)()
    call = CFUNCTYPE(c_size_t, c_void_p, c_void_p)(address)
    assert call(addressof(inputs), addressof(outputs)) == 2
    assert (inputs[:2], outputs[:2]) == ([0, 2], [1, 3])
