"""A library of the whole table of samples: here, in other ONNX Runtimes without pyops and numba, on other machines."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyops
from pyops._machine.libraries.build_report import read_library
from pyops.testing import Sample
from tests.pyops._machine.compiled.compiled_db import SAMPLES
from tests.pyops._machine.libraries.buildable_ops import LOOPS, PAIRS, RAISING, add_scaled, pair_sums, rows
from tests.pyops._machine.libraries.conftest import Library
from tests.pyops._machine.libraries.plain import assert_close, assert_identical, by_pyops, plain_results

pytestmark = pytest.mark.exhaustive
ALL = [*SAMPLES, *LOOPS, PAIRS]


def needs_strings(sample: Any) -> bool:
    return sample.op.name == "Attributes"  # which has an attribute that is a list of strings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of every compiled sample of the tests, and of `built`."""
    path = tmp_path_factory.mktemp("build") / "libwhole.so"
    pyops.build(path, [add_scaled, rows, pair_sums], examples=[*SAMPLES, PAIRS], cpu="native")
    return path


@pytest.fixture(scope="module")
def here(whole: Path) -> list[Any]:
    """What the samples give in this environment."""
    assert read_library(whole).oldest_onnxruntime == "1.25"
    return plain_results(whole, ALL)


def test_every_compiled_sample_is_bit_identical(whole: Path) -> None:
    assert_identical(SAMPLES, plain_results(whole, SAMPLES), by_pyops(SAMPLES))


@pytest.mark.parametrize("version", ["==1.16.3", "==1.17.3", "==1.20.1", ""])
def test_onnxruntimes_give_the_same_bit_for_bit(
    whole: Path, here: list[Any], onnxruntime_of: Callable[[str], Path], version: str
) -> None:
    python = [str(onnxruntime_of(f"onnxruntime{version}"))]
    given = plain_results(whole, ALL, python)
    known = [i for i, sample in enumerate(ALL) if not version or not needs_strings(sample)]
    assert_identical([ALL[i] for i in known], [given[i] for i in known], [here[i] for i in known])
    for i in set(range(len(ALL))) - set(known):
        assert "an attribute is a list of strings, which needs ONNX Runtime 1.25 or later" in given[i]
    for text, (_, expected) in zip(plain_results(whole, [item for item, _ in RAISING], python), RAISING, strict=True):
        assert expected in text


@pytest.mark.parametrize(
    ("target", "suffix", "magic"),
    [
        ("linux-aarch64", "so", b"\x7fELF"),
        ("windows-x86-64", "dll", b"MZ"),
        ("macos-arm64", "dylib", b"\xcf\xfa\xed\xfe"),
    ],
)
def test_libraries_for_other_machines_are_linked(tmp_path: Path, target: str, suffix: str, magic: bytes) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    path = tmp_path / f"lib.{suffix}"
    report = pyops.build(path, examples=[PAIRS], target=target)
    assert path.read_bytes().startswith(magic)
    assert report.target == target
    assert b"RegisterCustomOps" in path.read_bytes()


def test_a_library_for_macos_is_signed_and_runs_from_version_11_on(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    path = tmp_path / "lib.dylib"
    pyops.build(path, examples=[PAIRS], target="macos-arm64")
    data = path.read_bytes()
    kind, _, filetype, count = struct.unpack_from("<4I", data, 4)
    commands, offset = {}, 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, offset)
        commands[command & 0xFF] = data[offset : offset + size]
        offset += size
    assert (kind, filetype) == (0x0100000C, 6)  # CPU_TYPE_ARM64, MH_DYLIB
    assert 0x1D in commands  # LC_CODE_SIGNATURE
    assert struct.unpack_from("<2I", commands[0x32], 8) == (1, 11 << 16)  # LC_BUILD_VERSION: macOS, and the oldest


def test_zig_links_for_an_old_glibc(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    report = pyops.build(tmp_path / "lib.so", examples=[PAIRS], linker="zig", cpu="native")
    assert tuple(map(int, report.glibc.split("."))) <= (2, 17)
    assert_identical([PAIRS], plain_results(tmp_path / "lib.so", [PAIRS]), by_pyops([PAIRS]))


def test_an_onnxruntime_that_is_too_old_is_an_error(built: Library, onnxruntime_of: Callable[[str], Path]) -> None:
    (text,) = plain_results(built[0], [PAIRS], [str(onnxruntime_of("onnxruntime==1.15.1"))])
    assert "these operators need ONNX Runtime 1.16 or later; this is 1.15.1" in text


def test_a_library_exports_one_function(built: Library) -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", built[0]], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["RegisterCustomOps"]


@pytest.mark.parametrize("target", ["linux-aarch64", "windows-x86-64"])
def test_another_machine_computes_the_samples(
    here: list[Any], tmp_path: Path, target: str, elsewhere: tuple[list[str], dict[str, str]]
) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    library = tmp_path / "lib.so"
    report = pyops.build(
        library,
        [add_scaled, rows, pair_sums],
        examples=[*SAMPLES, PAIRS],
        target=target,
        skip_unsupported=True,
    )
    there = {op.name for op in report.ops}
    known = [i for i, sample in enumerate(ALL) if sample.op.signature.qualified_name in there]
    assert len(known) >= len(ALL) - 2, report.refused
    samples = [ALL[i] for i in known]
    assert_close(samples, plain_results(library, samples, *elsewhere), [here[i] for i in known])
    for text, (_, expected) in zip(
        plain_results(library, [item for item, _ in RAISING], *elsewhere), RAISING, strict=True
    ):
        assert expected in text


NEEDS_OTHERS = [
    (
        {"i": 1, "f": 1.0, "b": True, "ints": [1, 2, 3]},
        "this library has no code for the attributes i; f; b; ints[3]; ",
    ),
    ({"i": 1, "f": 1.0, "b": True, "ints": [1, 2], "mode": "minus"}, "mode='minus'; "),
]


@pytest.mark.parametrize(("attributes", "words"), NEEDS_OTHERS)
def test_attributes_without_code_are_named(whole: Path, attributes: dict[str, Any], words: str) -> None:
    (op,) = {sample.op for sample in SAMPLES if sample.op.name == "Attributes"}
    (text,) = plain_results(whole, [Sample(op, np.ones((2, 3), np.float32), **attributes)])
    assert words in text
    assert "build it with --for MODEL" in text


def test_an_int_that_is_no_bool_is_named(whole: Path) -> None:
    (sample,) = (sample for sample in SAMPLES if sample.id == "Attributes-defaults")
    model = sample.model()
    next(item for item in model.graph.node[0].attribute if item.name == "b").i = 2
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(whole))
    with pytest.raises(Exception, match=r"attribute 'b' is 2; expected one of \|0\|1\|"):
        onnxruntime.InferenceSession(model.SerializeToString(), options)
