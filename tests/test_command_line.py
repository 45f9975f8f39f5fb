"""The command line, mostly in this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

import pyops
from pyops.cli import machine as machine_commands
from pyops.cli.app import app
from pyops.doctor import Machine, Probe
from tests.models import chain
from tests.test_plugins import install

ROOT = Path(pyops.__file__).parents[1]
OPS = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

F32 = NDArray[np.float32]

@onnx_op("typed::Plus")
def plus(x: F32, *, by: float = 1.0) -> F32:
    return x + np.float32(by)

@onnx_op("typed::Wrong")
def wrong(x: F32) -> F32:
    return x.astype(np.float64)

@onnx_op("typed::Shout")
def shout(x: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.array([item.upper() for item in x], object)

@onnx_op("typed::Concatenate")
def concatenate(first: F32, *rest: F32) -> F32:
    return np.concatenate([first, *rest])

@onnx_op("typed::Options")
def options(x: F32, *, checks: str = "", generate: int = 1) -> F32:
    return x * np.float32(generate)

@onnx_op("typed::Ending")
def ending(x: F32) -> F32:
    print("the kernel prints")
    if not len(x):
        raise SystemExit(7)
    return x + np.float32(1)

print("the module prints")
not_an_op = 3
"""
PLUGIN = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

@onnx_op("typed.plugin::Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x.copy()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of ops, on a terminal of 80 columns that is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "typed_ops.py").write_text(OPS)
    yield tmp_path
    for name in ("typed_ops", "typed_plugin"):
        sys.modules.pop(name, None)


def command(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def parsed(*arguments: str, code: int = 0) -> Any:
    return json.loads(command(*arguments, "--json", code=code).stdout)


def save(model: onnx.ModelProto, name: str = "model.onnx") -> str:
    onnx.save(model, name)
    return name


def test_list_shows_what_modules_declare() -> None:
    assert "--import MODULE" in command("list").stdout or pyops.ops()
    text = command("list", "--import", "typed_ops").stdout
    assert "typed_ops.py:" in text
    listed = {(item["domain"], item["op type"]): item for item in parsed("list", "-i", "typed_ops")["ops"]}
    record = listed["typed", "Plus"]
    assert record["signature"] == "(x: float32, *, by: float = 1.0) -> float32"
    assert parsed("list", "--import", "typed_ops.py")["ops"]


def test_list_names_plug_ins_and_imports_them_only_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site"
    site.mkdir()
    install(site, "typed-plugin", "typed_plugin", PLUGIN, "typed.plugin")
    monkeypatch.syspath_prepend(str(site))
    before = parsed("list")
    assert {"domain": "typed.plugin", "package": "typed-plugin 2.5", "module": "typed_plugin"} in before["plugins"]
    assert "typed-plugin 2.5" in command("list").stdout
    model = save(chain("typed.plugin::Same"))
    (node,) = parsed("inspect", model)["nodes"]
    assert (node["kernel"], node["package"], node["problems"]) == (None, "typed-plugin 2.5", [])
    assert "not imported" in command("inspect", model).stdout
    assert "typed_plugin" not in sys.modules
    (node,) = parsed("inspect", model, "--plugins")["nodes"]
    assert "same" in node["kernel"]
    assert node["package"] == "typed-plugin 2.5"
    assert "typed_plugin" in sys.modules
    assert [item["domain"] for item in parsed("list", "--plugins")["ops"] if item["domain"] == "typed.plugin"]


def test_inspect_says_which_kernel_runs_each_custom_node() -> None:
    model = chain("typed::Plus", "Neg", "typed::Plus")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("by", 0.1))
    path = save(model)
    report = parsed("inspect", path, "--import", "typed_ops")
    assert report["ok"] is True
    assert report["builtin"] == {"Neg": 1}
    assert {"domain": "typed", "version": 1, "provider": "module typed_ops"} in report["imports"]
    first, second = report["nodes"]
    assert first["kernel"].startswith("plus (typed_ops.py:")
    assert (first["op_type"], first["attributes"], first["engine"]) == ("Plus", {"by": "0.100000001"}, "native")
    assert second["attributes"] == {}
    text = command("inspect", path, "--import", "typed_ops").stdout
    assert text.startswith(f"IR version {model.ir_version}\n")
    assert "typed::Plus" in text
    assert "Neg (1)" in text


def test_inspect_fails_where_a_node_would_not_run() -> None:
    model = chain("typed::Plus", "typed::Plsu")
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("to", 1))
    report = parsed("inspect", save(model), "--import", "typed_ops", code=1)
    assert [bool(node["problems"]) for node in report["nodes"]] == [True, True]
    assert "did you mean typed::Plus?" in report["problems"][1]
    text = command("inspect", save(model), code=1).stdout
    assert "not declared" in text


def test_what_a_model_says_does_not_command_the_terminal() -> None:
    model = chain("typed::Plus")
    model.graph.node[0].name = "[bold]name[/bold]\x1b[31m\x07"
    text = command("inspect", save(model), "--import", "typed_ops").stdout
    assert r"[bold]name[/bold]\x1b[31m\x07" in text


@pytest.mark.parametrize("arguments", [("inspect",), ("run",), ("bench",)])
def test_a_file_that_is_no_model_is_said(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "broken.onnx").write_bytes(b"\xff\xff no model")
    result = command(*arguments, "broken.onnx", code=1)
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_run_shows_and_saves_the_outputs(folder: Path) -> None:
    np.save("a.npy", np.array([1, 2], ">f4"))  # in another machine's byte order
    path = save(chain("typed::Plus"))
    text = command("run", path, "--input", "x=a.npy", "--import", "typed_ops").stdout
    assert "float32[2]" in text
    assert "[2. 3.]" in text
    (record,) = parsed("run", path, "-x", "x=a.npy", "-i", "typed_ops", "--save", "out")
    assert record == {
        "name": "y",
        "type": "float32",
        "shape": [2],
        "values": "[2. 3.]",
        "file": str(Path("out") / "y.npy"),
    }
    assert np.load("out/y.npy").tolist() == [2, 3]


@pytest.mark.parametrize("arguments", [("run", "model.onnx"), ("check", "typed::Ending"), ("bench", "typed::Ending")])
def test_json_is_alone_on_stdout_whatever_modules_and_kernels_print(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyops.cli.ops, "medians", quick_medians)
    save(chain("typed::Ending"))
    only = ("--only", "outputs") if arguments[0] == "check" else ()
    result = command(*arguments, *only, "-i", "typed_ops", "-x", "x=float32[2]", "--json")
    assert json.loads(result.stdout)
    assert result.stderr.startswith("the module prints\nthe kernel prints\n")


def test_modules_and_kernels_that_end_the_process_are_said(folder: Path) -> None:
    result = command("run", save(chain("typed::Ending")), "-x", "x=float32[0]", "-i", "typed_ops", code=1)
    assert "raise SystemExit(7)\nSystemExit: 7\nin node 'node0'" in result.stderr
    (folder / "script.py").write_text("import sys\nsys.exit(0)\n")
    assert "script.py" in command("list", "-i", "script.py", code=1).stderr


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_run_takes_random_inputs_and_an_engine(engine: str) -> None:
    path = save(chain("typed::Plus"))
    arguments = ("run", path, "-x", "x=float32[2, 3]", "-i", "typed_ops", "--engine", engine)
    (record,) = parsed(*arguments)
    assert record["shape"] == [2, 3]
    assert parsed(*arguments) == [record]


def test_strings_go_in_and_out() -> None:
    np.save("a.npy", np.array(["ab", "c"]))
    path = save(chain("typed::Shout", dtype=np.object_))
    (record,) = parsed("run", path, "-x", "x=a.npy", "-i", "typed_ops", "--save", ".")
    assert record["values"] == "['AB' 'C']"
    assert np.load("y.npy").tolist() == ["AB", "C"]


def test_the_model_s_names_lead_out_of_no_folder(folder: Path) -> None:
    model = chain("typed::Plus")
    for name in ("../../up", "a/b", "a?b"):
        model.graph.output.add().CopyFrom(model.graph.output[0])
        model.graph.output[-1].name = name
        model.graph.node.add(op_type="Identity", input=["y"], output=[name])
    records = parsed("run", save(model), "-x", "x=float32[]", "-i", "typed_ops", "--save", "out")
    files = [Path(record["file"]) for record in records]
    assert [file.parent for file in files] == [Path("out")] * 4
    assert len({file.resolve() for file in files}) == 4
    assert all(file.is_file() for file in files)
    made = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert made == {"model.onnx", "out", "typed_ops.py"}


def test_a_pickled_array_is_refused() -> None:
    np.save("a.npy", np.array([print], object), allow_pickle=True)
    result = command("run", save(chain("Neg")), "-x", "x=a.npy", code=2)
    assert "allow_pickle" in " ".join(result.stderr.split())


def test_a_kernel_s_exception_is_shown_with_the_user_s_frames_alone() -> None:
    result = command("run", save(chain("typed::Concatenate")), "-x", "x=float32[]", "-i", "typed_ops", code=1)
    assert "return np.concatenate([first, *rest])" in result.stderr
    assert "in node 'node0'" in result.stderr
    assert "session.py" not in result.stderr
    result = command("run", save(chain("typed::Wrong")), "-x", "x=float32[2]", "-i", "typed_ops", code=1)
    assert "float64[2]" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--input 'x=float32[2]'"),
        (("-x", "y=float32[2]"), "no input 'y'; it has x"),
        (("-x", "x=float32[2]", "-x", "x=float32[2]"), "given twice"),
        (("-x", "x=float64[2]"), "input 'x' is float64[2]; the model needs float32"),
        (("-x", "x=none.npy"), "there is no file 'none.npy'"),
        (("-x", "x=flaot32[2]"), "did you mean float32?"),
        (("-x", "x"), "expected NAME=FILE.npy"),
        (("-x", "x=float32[2]", "--provider", "NoProvider"), "no 'NoProvider'; it has"),
        (("-x", "x=float32[2]", "--engine", "natve"), "'natve'"),
        (("-x", "x=float32[2]", "--save", "typed_ops.py"), "the folder cannot be made"),
        (("--import", "no_such_module"), "there is no module 'no_such_module'"),
        (("--import", ".relative"), "expected a module"),
        (("--import", "no_such_file.py"), "there is no file 'no_such_file.py'"),
    ],
)
def test_wrong_usage_is_said_with_the_fix(arguments: tuple[str, ...], message: str) -> None:
    model = chain("Neg")
    model.graph.input[0].type.tensor_type.shape.dim.add(dim_param="n")
    result = command("run", save(model), *arguments, code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("plus", "expected module:op"),
        ("typed_ops:minus", "declares no op 'minus'"),
        ("typed_ops:not_an_op", "not_an_op is a int there"),
        ("typed::Plsu", "did you mean typed::Plus?"),
    ],
)
def test_an_op_that_is_none_is_said(spec: str, message: str) -> None:
    result = command("bench", spec, "-i", "typed_ops", "-x", "x=float32[2]", code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("spec", ["typed_ops:plus", "typed_ops.py:plus", "typed::Plus"])
def test_check_runs_the_checks_of_an_op(spec: str) -> None:
    result = parsed("check", spec, "-i", "typed_ops", "--only", "engine_native", "--attribute", "by=0.5")
    assert result["ok"] is True
    assert {"name": "engine_native", "status": "passed"}.items() <= result["checks"][0].items()
    text = command("check", spec, "-i", "typed_ops", "--only", "engine_*", "-x", "x=float32[2, 3]").stdout
    assert "float32[2, 3]" in text


def test_check_fails_where_a_check_does() -> None:
    result = parsed("check", "typed_ops:wrong", "--only", "outputs", code=1)
    assert (result["ok"], result["checks"][0]["status"]) == (False, "failed")
    assert "FAILED" in command("check", "typed_ops:wrong", "--only", "outputs", code=1).stdout
    assert "no check 'inputs'" in command("check", "typed_ops:wrong", "--only", "inputs", code=2).stderr


def test_attributes_may_be_called_like_options_of_check() -> None:
    arguments = ("typed_ops:options", "--only", "outputs", "-a", "checks=all", "-a", "generate=3")
    text = command("check", *arguments).stdout
    assert "Options(float32[2, 3], checks='all', generate=3), inputs made up: 1 passed" in text


def test_bench_gives_ratios_to_the_plain_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyops.cli.ops, "medians", quick_medians)
    arrays = ("-x", "first=float32[2]", "-x", "rest=float32[3]", "-x", "rest=float32[1]")
    result = parsed("bench", "typed_ops:concatenate", *arrays)
    assert result["base"] == "plain call"
    assert [item["name"] for item in result["results"]] == ["plain call", "native", "reference"]
    assert result["results"][0]["ratio"] == 1
    assert "variadic input 'rest'" in result["left out"]["extensions"]
    result = parsed("bench", save(chain("typed::Plus")), "-i", "typed_ops", "-x", "x=float32[2]")
    assert result["base"] == "native"
    text = command("bench", "typed_ops:plus", "-x", "x=float32[2]", "-a", "by=2").stdout
    assert "to plain call" in text


def quick_medians(calls: Any, track: Any) -> Any:
    from pyops.benchmarking import medians

    return medians(calls, rounds=1, seconds=0, track=track)


def test_bench_needs_inputs_and_says_how() -> None:
    result = command("bench", "typed_ops:plus", code=2)
    assert "--input 'x=float32[2,3]'" in result.stderr
    result = command("bench", "typed_ops:plus", "-x", "x=float32[2]", "-a", "to=1", code=2)
    assert "(by)" in result.stderr


WORKS = {
    "onnxruntime": Probe(["1.31.1", ["CPUExecutionProvider"]]),
    "native": Probe("runs"),
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
            machine(["onnxruntime"], onnxruntime=Probe(["1.27.0", []])),
            "ONNX Runtime",
            "older than 1.28",
            "onnxruntime>=1.28",
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
    monkeypatch.setattr(machine_commands, "examine", lambda: made)
    report = parsed("doctor", code=1)
    broken = {item["what"]: item for item in report["findings"] if item["state"] == "broken"}
    assert report["ok"] is False
    assert found in broken[what]["found"]
    assert fix in broken[what]["fix"]
    text = command("doctor", code=1).stdout
    assert found in text
    assert fix in text


@pytest.mark.parametrize(
    "made",
    [
        machine(["onnxruntime"]),
        machine(["onnxruntime"], native=Probe(failure="this is darwin on arm64")),  # extensions takes over
        machine(["onnxruntime"], ["cupy-cuda12x"], cupy=Probe([1, 12080, 13000])),
    ],
)
def test_doctor_succeeds_where_ops_run(made: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_commands, "examine", lambda: made)
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
    monkeypatch.setattr(machine_commands, "examine", lambda: made)
    (finding,) = [item for item in parsed("doctor")["findings"] if item["what"] == "CUDA kernels"]
    assert finding["state"] == state
    assert found in finding["found"]


def test_doctor_looks_at_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(pyops.doctor.PROBES, "numba")  # which takes long
    report = parsed("doctor")
    states = {item["what"]: item["state"] for item in report["findings"]}
    assert states["engine native"] == states["engine extensions"] == "ok"


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ends the process (SIGSEGV)"),
        ("raise ValueError('broken')", "ValueError: broken"),
        ("print('no answer')", "gives no answer"),
        ("import sys; sys.exit(3)", "fails without a word"),
    ],
)
def test_what_ends_a_process_does_not_end_the_doctor(code: str, failure: str) -> None:
    assert pyops.doctor.probe(code) == Probe(failure=failure)


def test_version_and_help() -> None:
    assert command("--version").stdout.strip() == pyops.__version__
    for name in ("list", "inspect", "run", "check", "bench", "doctor", "demo"):
        assert "--help" in command(name, "--help").stdout


def test_the_script_that_is_installed(folder: Path) -> None:
    """The entry point of pyproject.toml, as pip's wrapper calls it; and the wrapper itself where there is one."""
    module, _, function = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["pyops"].partition(
        ":"
    )
    wrapper = f"import sys; from {module} import {function}; sys.exit({function}())"
    commands = [[sys.executable, "-c", wrapper]]
    installed = shutil.which("pyops", path=str(Path(sys.executable).parent))
    commands += [[installed]] if installed else []
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for start in commands:
        arguments = ["list", "--import", "typed_ops", "--json"]
        done = subprocess.run([*start, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Plus" in [item["op type"] for item in json.loads(done.stdout)["ops"]]
        done = subprocess.run([*start, "inspect"], env=environment, capture_output=True, text=True)
        assert done.returncode == 2


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_is_named(missing: str) -> None:
    code = textwrap.dedent(f"""
        import sys
        sys.modules[{missing!r}] = None
        from pyops.__main__ import main
        main()
    """)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f'error: the command line needs {missing}, which is not installed: pip install "onnx-pyops[cli]"\n'
    )


def test_progress_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False, write=print, flush=print))
    assert pyops.cli.output.progress_console().quiet
