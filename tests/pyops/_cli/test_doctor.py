"""``doctor``."""

import json
import os
import platform
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import pyops
from pyops._cli.doctor import Machine, Probe
from pyops._core.runtime.native import borrowing
from pyops._support.tested_releases import SYSTEMS, TESTED
from tests.helpers.systems import HAS_FORK
from tests.pyops._cli.commands import command, parsed
from tests.pyops._core.ops.test_plugins import install

ROOT = Path(__file__).parents[3]
CRASH = "SIGSEGV" if HAS_FORK else "0xc0000005"
pytestmark = pytest.mark.usefixtures("folder")

WORKS = {
    "onnxruntime": Probe(["1.31.1", ["CPUExecutionProvider"]]),
    "native": Probe("runs"),
    "direct": Probe(""),
    "exchange": Probe(""),
    "extensions": Probe("runs"),
}


def machine(packages: list[str], of_cupy: list[str] | None = None, **probes: Probe) -> Machine:
    versions = dict.fromkeys([*packages, *(of_cupy or [])], "1.31.1")
    providers = {"onnxruntime": packages, "cupy": of_cupy or []}
    return Machine("CPython 3.11", "Linux on x86_64", versions, providers, WORKS | probes)


@pytest.mark.parametrize(
    ("made", "what", "found", "fix"),
    [
        (
            machine(["onnxruntime", "onnxruntime-gpu"]),
            "one ONNX Runtime",
            "overwritten each other's files",
            "pip uninstall -y onnxruntime onnxruntime-gpu",
        ),
        (
            machine([], onnxruntime=Probe(failure="No module named 'onnxruntime'")),
            "ONNX Runtime",
            "is not installed",
            "onnx-pyops[cpu]",
        ),
        (
            machine(["onnxruntime"], onnxruntime=Probe(failure="ends the process (SIGSEGV)")),
            "ONNX Runtime",
            "SIGSEGV",
            "--force-reinstall onnxruntime",
        ),
        (
            machine(["onnxruntime"], onnxruntime=Probe(["1.26.0", []])),
            "ONNX Runtime",
            "older than 1.27",
            "onnxruntime>=1.27",
        ),
        (
            machine(["onnxruntime-gpu"]),
            "ONNX Runtime",
            "no CUDAExecutionProvider",
            "--force-reinstall onnxruntime-gpu",
        ),
        (
            machine(["onnxruntime"], native=Probe(failure="EngineError: no"), extensions=Probe(failure="no")),
            "engine native",
            "EngineError: no",
            "",
        ),
        (
            machine(["onnxruntime"], ["cupy-cuda12x", "cupy-cuda13x"], cupy=Probe([1, 13000, 13000])),
            "one CuPy",
            "overwritten each other's files",
            "pip uninstall -y cupy-cuda12x cupy-cuda13x",
        ),
        (
            machine(["onnxruntime"], ["cupy-cuda13x"], cupy=Probe([1, 13000, 12080])),
            "CuPy",
            "CUDA 13.0, driver for CUDA 12.8: CuPy is newer than the driver",
            "update the driver",
        ),
        (
            machine(["onnxruntime"], ["cupy-cuda13x"], cupy=Probe(failure="cudaErrorInsufficientDriver")),
            "CuPy",
            "cudaErrorInsufficientDriver",
            "nvidia-smi",
        ),
        (
            machine(
                ["onnxruntime-gpu"],
                ["cupy-cuda13x"],
                onnxruntime=Probe(["1.31.1", ["CUDAExecutionProvider"]]),
                cupy=Probe([1, 13000, 13000]),
                cuda=Probe(failure="pyops.errors.DeviceError: CUDAExecutionProvider is asked for"),
            ),
            "CUDA kernels",
            "DeviceError: CUDAExecutionProvider is asked for",
            "CUDA and cuDNN",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_doctor_names_what_is_broken_and_the_fix(
    made: Machine, what: str, found: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    report = parsed("doctor", code=1)
    broken = {item["what"]: item for item in report["findings"] if item["state"] == "broken"}
    assert report["ok"] is False
    assert found in broken[what]["found"]
    assert fix in broken[what]["fix"]
    text = command("doctor", code=1).stdout
    assert found in text
    assert fix in text


@pytest.mark.parametrize(
    ("what", "probe", "state", "found", "fix"),
    [
        ("direct calls", Probe(""), "ok", "machine code calls plain kernels", ""),
        ("direct calls", Probe("llvmlite is not"), "absent", "Python calls plain kernels: llvmlite is not", ""),
        ("direct calls", Probe(failure="ends the process (SIGILL)"), "broken", "SIGILL", "set PYOPS_DIRECT_CALLS=0"),
        ("exchange", Probe(""), "ok", "takes over what plain kernels return; tested with onnxruntime 1.27.0, ", ""),
        ("exchange", Probe("not tested with onnxruntime 2.0"), "absent", ": not tested with onnxruntime 2.0", ""),
        ("exchange", Probe(failure="ends the process (SIGSEGV)"), "broken", "SIGSEGV", "set PYOPS_EXCHANGE=0"),
    ],
    ids=["calls", "no-calls", "broken-calls", "exchange", "no-exchange", "broken-exchange"],
)
def test_doctor_says_what_machine_code_does(
    what: str, probe: Probe, state: str, found: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = what.split()[0]
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: machine(["onnxruntime"], **{name: probe}))
    report = parsed("doctor", code=int(state == "broken"))
    (finding,) = [item for item in report["findings"] if item["what"] == what]
    assert finding["state"] == state
    assert found in finding["found"]
    assert finding["fix"] == fix or state == "ok"


def test_doctor_says_how_this_system_was_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "PROBES", {})
    rows = re.findall(r"^\| (Linux|Windows) \| (.*) \|$", (ROOT / "docs/platforms.md").read_text(), re.MULTILINE)
    assert [(system, *rest.split(" | ")) for system, rest in rows] == [*SYSTEMS]
    found = []
    for system, number in (("Linux", "3.14.1"), ("Linux", "3.99.0"), ("Plan 9", "3.14.1")):
        monkeypatch.setattr(platform, "system", lambda system=system: system)
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(platform, "python_version_tuple", lambda number=number: tuple(number.split(".")))
        found.append(pyops._cli.doctor.examine().system)
    assert found == [
        "Linux on x86_64, with Python 3.14: tested (native; machine; 2026-11-26)",
        "Linux on x86_64, with Python 3.99: not tested; pyops doctor --selftest tries it here",
        "Plan 9 on x86_64, with Python 3.14: not tested; pyops doctor --selftest tries it here",
    ]


def test_doctor_says_where_kernels_get_copies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(borrowing, "counts_references", lambda: False)
    exec(pyops._cli.doctor.PROBES["native"], {})
    assert json.loads(capsys.readouterr().out).startswith("runs; kernels get copies")


def test_doctor_says_what_exporting_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: machine(["onnxruntime"]))
    found = {item["what"]: item for item in parsed("doctor")["findings"]}
    assert found["exporters"]["state"] == "absent"
    assert "not installed: torch, onnxscript" in found["exporters"]["found"]


@pytest.mark.parametrize(
    ("torch", "imported", "expected"),
    [
        ("2.13.0+cpu", Probe([]), [("exporters", "ok", "works; torch 2.13 to 2.15 are tested", "")]),
        (
            "2.15.0",
            Probe(["aten::a", "aten::b"]),
            [
                ("exporters", "ok", "works; torch 2.13 to 2.15 are tested", ""),
                (
                    "kernel library",
                    "absent",
                    "without aten::a, aten::b, which torch 2.15.0 does not have",
                    "",
                ),
            ],
        ),
        (
            "2.16.0",
            Probe([]),
            [
                (
                    "exporters",
                    "warning",
                    "torch 2.16.0 is not tested; torch 2.13 to 2.15 are",
                    'if something fails, pip install "torch==2.15.*"',
                )
            ],
        ),
        (
            "2.16.0",
            Probe(failure="ExportError: gone"),
            [
                (
                    "exporters",
                    "broken",
                    "cannot be imported with torch 2.16.0: ExportError: gone",
                    'pip install "torch==2.15.*": torch 2.13 to 2.15 are tested',
                )
            ],
        ),
    ],
)
def test_doctor_imports_exporters_and_says_what_was_tested(torch, imported, expected, monkeypatch) -> None:
    made = machine(["onnxruntime"], exporters=imported)
    made = replace(made, versions={**made.versions, "torch": torch, "onnxscript": "0.7"})
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    found = parsed("doctor", code=int(bool(imported.failure)))["findings"]
    of_torch = [tuple(item.values()) for item in found if item["what"] in ("exporters", "kernel library")]
    assert of_torch == expected


@pytest.mark.parametrize(
    ("number", "state", "said"),
    [
        ("1.32.0", "ok", "works; onnxruntime 1.27 to 1.32 are tested"),
        ("1.33.0", "warning", "onnxruntime 1.33.0 is not tested; onnxruntime 1.27 to 1.32 are"),
    ],
)
def test_doctor_says_which_onnxruntime_was_tested(number, state, said, monkeypatch) -> None:
    made = machine(["onnxruntime"], onnxruntime=Probe([number, ["CPUExecutionProvider"]]))
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    (found,) = [item for item in parsed("doctor")["findings"] if item["what"] == "ONNX Runtime"]
    assert (found["state"], found["found"]) == (state, said)
    assert found["fix"] == ("" if state == "ok" else 'if something fails, pip install "onnxruntime==1.32.*"')


def test_the_oldest_tested_releases_are_those_that_are_admitted() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    admitted = {name: first for name, (first, _) in TESTED.items()}
    assert f"onnxruntime>={admitted['onnxruntime']}" in extras["cpu"]
    assert f"torch>={admitted['torch']}" in extras["torch"]


@pytest.mark.parametrize(
    "made",
    [
        machine(["onnxruntime"]),
        machine(["onnxruntime"], native=Probe(failure="this is darwin on arm64")),  # extensions takes over
        machine(["onnxruntime"], ["cupy-cuda12x"], cupy=Probe([1, 12080, 13000])),
        replace(machine(["onnxruntime"]), probes={name: WORKS[name] for name in WORKS.keys() - {"extensions"}}),
    ],
)
def test_doctor_succeeds_where_ops_run(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    assert parsed("doctor")["ok"] is True
    assert "nothing is broken" in command("doctor").stdout


@pytest.mark.parametrize(
    ("made", "state", "found"),
    [
        (machine(["onnxruntime"], ["cupy-cuda13x"], cupy=Probe([1, 13000, 13000])), "absent", "need onnxruntime-gpu"),
        (
            machine(
                ["onnxruntime-gpu"],
                ["cupy-cuda13x"],
                onnxruntime=Probe(["1.31.1", ["CUDAExecutionProvider"]]),
                cupy=Probe([1, 13000, 13000]),
                cuda=Probe("runs"),
            ),
            "ok",
            "run in sessions",
        ),
    ],
)
def test_doctor_says_whether_cuda_kernels_run_in_sessions(made, state, found, monkeypatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    (finding,) = [item for item in parsed("doctor")["findings"] if item["what"] == "CUDA kernels"]
    assert finding["state"] == state
    assert found in finding["found"]


def test_doctor_says_what_plug_ins_and_numba_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(["onnxruntime"], numba=Probe(failure="ends the process (SIGILL)"))
    monkeypatch.setattr(
        pyops._cli.doctor, "examine", lambda libraries: replace(made, plugins={"a 1.0, b": Probe(failure="no")})
    )
    found = {item["what"]: item for item in parsed("doctor", code=1)["findings"]}
    assert "SIGILL" in found["compiled kernels"]["found"]
    assert "PYOPS_PLUGINS=0" in found["plug-in a 1.0, b"]["fix"]


def test_doctor_does_not_blame_plug_ins_for_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(machine(["onnxruntime"]), plugins={"a 1.0, b": Probe(failure="no")})
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: made)
    monkeypatch.setenv("PYOPS_PLUGINS", "yes")
    found = {item["what"]: item for item in parsed("doctor", code=1)["findings"]}
    assert "PYOPS_PLUGINS is 'yes'; set it to 0" in found["plug-ins"]["found"]
    assert "plug-in a 1.0, b" not in found


def test_doctor_imports_plug_ins_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, "licensed-plugin", "licensed_plugin", "raise OSError('no licence')", "licensed.plugin")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    monkeypatch.setattr(pyops._cli.doctor, "PROBES", {})
    (result,) = pyops._cli.doctor.examine().plugins.values()
    assert "licensed_plugin: OSError: no licence" in result.failure


def test_doctor_looks_at_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(pyops._cli.doctor.PROBES, "numba")  # which takes long
    monkeypatch.setattr(pyops._cli.doctor, "PACKAGES", (*pyops._cli.doctor.PACKAGES, "not-installed-anywhere"))
    report = parsed("doctor")
    monkeypatch.setattr(
        pyops._cli.doctor,
        "examine",
        lambda libraries: Machine(
            "3.13",
            "Linux",
            {},
            {"onnxruntime": [], "cupy": []},
            {"onnxruntime": Probe(failure="absent"), "native": Probe(failure="absent")},
        ),
    )
    for line in command("doctor", code=1).stdout.splitlines():
        assert line == line.rstrip()
    states = {item["what"]: item["state"] for item in report["findings"]}
    assert states["engine native"] == states["engine extensions"] == states["numpy"] == "ok"
    assert "not-installed-anywhere" not in states


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import faulthandler; faulthandler._read_null()", f"ends the process ({CRASH})"),
        ("raise ValueError('broken')", "ValueError: broken"),
        ("print('no answer')", "prints no result"),
        ("import sys; sys.exit(3)", "fails without a message"),
    ],
)
def test_what_ends_a_process_does_not_end_the_doctor(code: str, failure: str) -> None:
    assert pyops._cli.doctor.probe(code) == Probe(failure=failure)


def test_what_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "_TIMEOUT", 0.2)
    assert pyops._cli.doctor.probe("while True: pass") == Probe(failure="does not finish within 0.2 seconds")


@pytest.mark.exhaustive
def test_doctor_tries_the_native_engine_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: machine(["onnxruntime"]))
    found = {item["what"]: item for item in parsed("doctor", "--selftest")["findings"]}
    for name in pyops._cli.doctor.SELFTESTS:
        assert found[f"selftest {name}"]["state"] == "ok", found[f"selftest {name}"]


def test_doctor_says_what_fails_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops._cli.doctor, "examine", lambda libraries: machine(["onnxruntime"]))
    monkeypatch.setattr(pyops._cli.doctor, "SELFTESTS", ("calls", "absent"))
    found = {item["what"]: item for item in parsed("doctor", "--selftest", code=1)["findings"]}
    assert found["selftest calls"]["state"] == "ok", found
    assert (found["selftest absent"]["state"], found["selftest absent"]["found"]) == ("broken", "KeyError: 'absent'")
