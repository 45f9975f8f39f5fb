"""Libraries of compiled kernels, in ONNX Runtime's own sessions and without pyops and numba."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import pyops
from pyops import Op, onnx_op
from pyops._cli import app
from pyops._machine.libraries import build, target_machines
from pyops.errors import CompileError, InputError, MissingDependencyError
from pyops.testing import Sample
from tests.helpers.scripts import run_new_script
from tests.pyops._machine.libraries.buildable_ops import (
    F32,
    LOOPS,
    PAIRS,
    RAISING,
    REFUSED,
    add_scaled,
    divided,
    prints,
)
from tests.pyops._machine.libraries.conftest import Library
from tests.pyops._machine.libraries.plain import assert_identical, by_pyops, plain_results


@pytest.mark.exhaustive
def test_a_library_computes_without_pyops_and_numba(built: Library) -> None:
    samples = [*LOOPS, PAIRS]
    for sample, given in zip(samples, plain_results(built[0], samples), strict=True):
        assert not isinstance(given, str), f"{sample.id}: {given}"
        expected = sample.op.kernels["cpu"].plain(*sample.inputs, **sample.attributes)
        for a, b in zip(given, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_library_gives_bit_for_bit_what_sessions_of_pyops_give(built: Library) -> None:
    samples = [LOOPS[5], LOOPS[7], PAIRS]
    assert_identical(samples, plain_results(built[0], samples), by_pyops(samples))


@pytest.mark.exhaustive
def test_a_library_divides_integers_as_numpy_does(tmp_path: Path) -> None:
    x, y = np.array([-(2**63), -7, 7, 5], np.int64), np.array([-1, 3, -3, 0], np.int64)
    sample = Sample(divided, x, y)
    pyops.build(tmp_path / "libdivided.so", [divided], examples=[sample], cpu="native")
    with np.errstate(all="ignore"):
        expected = [x // y, x % y, np.fmod(x, y)]
    assert [array.tolist() for array in plain_results(tmp_path / "libdivided.so", [sample])[0]] == [
        array.tolist() for array in expected
    ]


@onnx_op("built::Flat", compile=True)
def flat(x: F32) -> F32:
    return x.reshape((x.size,)) + x.ravel()


@onnx_op("built::Turned", compile=True)
def turned(x: F32) -> F32:
    return np.ascontiguousarray(x.T).reshape((x.shape[1], 1, x.shape[0]))


@onnx_op("built::Largest", compile=True)
def largest(x: F32) -> F32:
    return np.max(x) + np.min(x) + np.zeros(1, np.float32)


@pytest.mark.exhaustive
def test_a_library_reshapes_tensors_without_elements(tmp_path: Path) -> None:
    shapes = [(2, 3), (0, 3), (2, 0), (0, 0)]
    samples = [Sample(op, np.ones(shape, np.float32)) for op in (flat, turned) for shape in shapes]
    maxima = [Sample(largest, np.ones(shape, np.float32)) for shape in shapes[:2]]
    pyops.build(tmp_path / "lib.so", examples=[samples[0], samples[4], maxima[0]], cpu="native")
    *results, one, none = plain_results(tmp_path / "lib.so", [*samples, *maxima])
    expected = [sample.op.kernels["cpu"].plain(*sample.inputs) for sample in samples]
    assert_identical(samples, results, [[array] for array in expected])
    assert one[0].tolist() == [2]
    assert "built::Largest: ValueError: zero-size array to reduction operation" in none


@pytest.mark.exhaustive
def test_what_a_kernel_raises_is_a_status_with_its_line(built: Library) -> None:
    given = plain_results(built[0], [sample for sample, _ in RAISING])
    for text, (_, expected) in zip(given, RAISING, strict=True):
        assert expected in text


@pytest.mark.exhaustive
def test_the_report_tells_what_is_in_the_library(built: Library) -> None:
    path, report = built
    assert [(op.name, op.types, op.ranks) for op in report.ops] == [
        ("built::AddScaled", ("float16", "float32"), ("any",)),
        ("built::Rows", ("float32",), ("any",)),
        ("built::PairSums", ("float64",), ("2",)),
    ]
    assert report.warnings == ()
    assert report.size == path.stat().st_size
    assert set(report.undefined_symbols) <= ALLOWED_SYMBOLS
    assert report.oldest_onnxruntime == "1.16"
    assert "built::Rows" in str(report)
    assert "<td>built::Rows</td>" in report._repr_html_()


ALLOWED_SYMBOLS = {
    *("calloc", "free", "malloc", "realloc", "memcpy", "memmove", "memset"),
    *(
        "strcat",
        "strchr",
        "strcmp",
        "strlen",
        "strncmp",
        "strpbrk",
        "strstr",
        "strtod",
        "sscanf",
        "snprintf",
        "vsnprintf",
    ),
    *("log10", "pow"),
}


def test_the_place_of_a_kernel_that_cannot_be_built_is_that_of_the_compiled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find_linker", lambda linker, target: ["no compiler is needed"])

    @onnx_op("built::Told")
    def told(x: F32) -> F32:
        return x

    @told.register_kernel("cpu", compile=True)
    def compiled(x: Any) -> Any:
        print("hello")
        return x

    with pytest.raises(CompileError) as caught:
        pyops.build(tmp_path / "lib.so", told, ranks=[1])
    assert f"{__file__}:{compiled.__code__.co_firstlineno})" in str(caught.value)


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in REFUSED])
@pytest.mark.exhaustive
def test_what_cannot_be_built_is_refused_with_its_line(op: Op[..., Any], tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        pyops.build(tmp_path / "lib.so", op, ranks=[1 if op.name != "Product" else 2])
    text = str(raised.value)
    assert text.startswith(f"{op.signature.qualified_name} ({Path(__file__).with_name('buildable_ops.py')}:")
    assert REFUSED[op] in text
    assert not list(tmp_path.iterdir())


@onnx_op("built::Channels", compile=True)
def channels(x: F32, weight: F32, bias: F32) -> F32:
    count, depth, height, width = x.shape
    result = np.empty((count, depth, height, width), np.float32)
    for i in range(count):
        for j in range(depth):
            for k in range(height):
                for m in range(width):
                    result[i, j, k, m] = x[i, j, k, m] * weight[j, 0] + bias[0, j]
    return result


@pytest.mark.exhaustive
def test_ranks_that_nobody_gave_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        pyops.build(tmp_path / "lib.so", channels)
    text = str(raised.value)
    assert "as in --ranks 4,2,2 or ranks=[[4, 2, 2]], a model (--for) or an example" in text
    assert "(x, weight, bias)" in text
    assert f"'expected 4, got 3') ({__file__}:{channels.kernels['cpu'].plain.__code__.co_firstlineno + 2})" in text
    assert len(text.splitlines()) == 1
    assert pyops.build(tmp_path / "lib.so", channels, ranks=[[4, 2, 2]]).ops[0].ranks == ("4,2,2",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "there is nothing to build"),
        ({"ops": ["ns::Name"]}, r"ops has 'ns::Name'; expected ops themselves, as in ops=\[my_ops\.twice\]"),
        ({"ops": "ns::Name"}, "ops has 'ns::Name'"),
        ({"ops": prints, "target": "amiga"}, "there is no target 'amiga'; the targets are linux-x86-64"),
        ({"ops": prints, "cpu": "z80"}, "cannot tell at run time whether a CPU is 'z80'"),
        ({"ops": prints, "linker": "ld"}, "linker='ld' is unknown"),
        (
            {"ops": prints, "linker": "cc", "target": "macos-arm64"},
            "cc makes libraries for this machine, not for macos",
        ),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        pyops.build(tmp_path / "lib.so", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, f"linking for {target_machines.HOST} needs zig: pip install"),
        (
            {"linker": "cc"},
            'linker="cc" needs the C compiler cc, which is not installed; install it, or use linker="zig": pip install',
        ),
        ({"target": "windows-x86-64"}, "linking for windows-x86-64 needs zig: pip install"),
    ],
)
def test_a_missing_compiler_is_named(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_machines.shutil, "which", lambda name: None)
    monkeypatch.setattr(target_machines.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=re.escape(words)):
        pyops.build(tmp_path / "lib.so", prints, **options)


def test_a_kernel_is_machine_code_for_each_target() -> None:
    """Where LLVM cannot, it ends the process."""
    run_new_script(
        """
        from pyops._machine.libraries import build, target_machines as targets

        @onnx_op("built::Exp", compile=True)
        def exp(x: F32) -> F32:
            return np.exp(x)

        def link(compiler, target, code, *rest):
            raise AssertionError(f"{target.name} {len(code) > 1000}")

        build.find_linker, build.link = lambda linker, target: [], link
        for target in targets.TARGETS:
            attempt(lambda: pyops.build("library", exp, ranks=[1], target=target))
        """,
        "\n".join(f"AssertionError {name} True" for name in target_machines.TARGETS),
    )


@pytest.mark.exhaustive
def test_an_example_of_an_op_with_loops_serves_all_ranks(built: Library, tmp_path: Path) -> None:
    samples = [sample for sample in LOOPS if sample.op is add_scaled]
    report = pyops.build(tmp_path / "lib.so", examples=samples[:1], cpu="native")
    assert report.ops[0].ranks == ("any",)
    assert_identical(samples, plain_results(tmp_path / "lib.so", samples), plain_results(built[0], samples))


@pytest.mark.exhaustive
def test_the_command_builds_what_a_model_needs_and_leaves_out_what_it_cannot(tmp_path: Path) -> None:
    onnx.save(PAIRS.model(), tmp_path / "model.onnx")
    library = tmp_path / "lib.so"
    made = ["tests.pyops._machine.libraries.buildable_ops", "-o", str(library), "--cpu", "native"]
    done = CliRunner().invoke(app, ["build", *made, "--for", str(tmp_path / "model.onnx")])
    assert done.exit_code == 0, done.output
    assert "built::PairSums" in done.output
    assert_identical([PAIRS], plain_results(library, [PAIRS]), by_pyops([PAIRS]))
    some = ["--op", "built::Prints", "--op", "built::PairSums", "--ranks", "2"]
    done = CliRunner().invoke(app, ["build", *made, *some])
    assert done.exit_code == 1
    assert "leave these out" in done.output
    done = CliRunner().invoke(app, ["build", *made, *some, "--skip-unsupported"])
    assert done.exit_code == 0, done.output
    assert "not built: built::Prints" in done.output
    assert_identical([PAIRS], plain_results(library, [PAIRS]), by_pyops([PAIRS]))


def test_a_build_without_numba_names_the_extra() -> None:
    run_new_script(
        """
        sys.modules["numba"] = sys.modules["llvmlite"] = None
        for attempt in range(2):
            try:
                pyops.build("lib.so", [])
            except pyops.errors.MissingDependencyError as error:
                print(str(error).rpartition("; ")[2])
        """,
        """
        building needs numba: pip install "onnx-pyops[compiled]"
        building needs numba: pip install "onnx-pyops[compiled]"
        """,
    )
