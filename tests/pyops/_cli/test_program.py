"""What all commands have in common, and the program itself."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import pyops
import pyops.__main__
from tests.helpers.models import chain
from tests.helpers.systems import HAS_FORK, needs_posix
from tests.pyops._cli.commands import command, quick_medians, save

pytestmark = pytest.mark.usefixtures("folder")

ROOT = Path(pyops.__file__).parents[1]


@pytest.mark.parametrize("arguments", [("inspect",), ("run",), ("bench",)])
def test_a_file_that_is_no_model_is_said(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "broken.onnx").write_bytes(b"\xff\xff no model")
    result = command(*arguments, "broken.onnx", code=1)
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("arguments", [("run", "model.onnx"), ("check", "typed::Ending"), ("bench", "typed::Ending")])
def test_json_is_alone_on_stdout_whatever_modules_and_kernels_print(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyops._cli.commands, "medians", quick_medians)
    save(chain("typed::Ending"))
    only = ("--only", "outputs") if arguments[0] == "check" else ()
    result = command(*arguments, *only, "-i", "typed_ops", "-x", "x=float32[2]", "--json")
    assert json.loads(result.stdout)
    assert result.stderr.startswith("the module prints\nthe kernel prints\n")


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
        assert "Plus" in [item["op_type"] for item in json.loads(done.stdout)["ops"]]
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


def test_a_broken_installation_of_ours_is_not_taken_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyops._cli", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyops\._cli"):
        pyops.__main__.main()


def started(*arguments: str, wanted: int, before: str = "", **environment: str) -> str:
    """What the program writes, in a process of its own, after some code."""
    code = f"{before}\nimport sys\nsys.argv = {['pyops', *arguments]!r}\nfrom pyops.__main__ import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == wanted, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_terminal_without_letters_gets_their_numbers() -> None:
    model = chain("Neg")
    model.graph.output[0].name = model.graph.node[0].output[0] = "µ"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    arguments = ("run", save(model), "-x", "x=float32[2]", "--save", ".")
    assert "\\xb5" in started(*arguments, wanted=0, **ascii_only)
    assert [file.name for file in Path().glob("*.npy")] == ["_.npy" if HAS_FORK else "µ.npy"]


@needs_posix
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_whoever_stops_reading_ends_it_in_silence(options: tuple[str, ...]) -> None:
    gone = "import os; end, start = os.pipe(); os.close(end); os.dup2(start, 1)"
    assert started("list", *options, before=gone, wanted=1) == ""


def test_a_closed_stderr_is_none_to_fail_at() -> None:
    assert "domain" in started("list", "-i", "typed_ops", before="import sys; sys.stderr = None", wanted=0)


@needs_posix
def test_ops_are_listed_in_a_deleted_working_folder() -> None:
    code = (
        "import os, typed_ops, pyops; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); print(pyops.list_ops())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(Path.cwd())])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "typed_ops.py" in done.stdout, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
@pytest.mark.parametrize("arguments", [("list",), ("list", "--json"), ("--help",)])
def test_an_output_that_cannot_be_written_is_said_in_a_line(arguments: tuple[str, ...]) -> None:
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    told = started(*arguments, before=full, wanted=1)
    assert told == "error: the output cannot be written: No space left on device\n"


def test_flags_are_shown_without_a_value() -> None:
    typers = ("--help", "-completion")
    for name in ((), "list", "inspect", "run", "check", "bench", "build", "doctor", "demo"):
        lines = command(*([name] if name else []), "--help").stdout.splitlines()
        assert not [line for line in lines if "bool" in line and not any(flag in line for flag in typers)]


WARNING = """
import warnings
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

kept = []

@onnx_op("typed.warning::Keep")
def keep(x: NDArray[np.float32]) -> NDArray[np.float32]:
    kept.append(x)
    warnings.warn("of the \x1b[31mkernel")
    return x + 1
"""


def test_warnings_are_lines_that_do_not_command_the_terminal(folder: Path) -> None:
    (folder / "warning_ops.py").write_text(WARNING)
    arguments = ("run", save(chain("typed.warning::Keep")), "-i", "warning_ops.py", "-x", "x=float32[2]", "--json")
    told = started(*arguments, wanted=0)
    *_, of_kernel, of_pyops = told.splitlines()
    assert of_kernel == "warning: warning_ops.py:12: UserWarning: of the \\x1b[31mkernel"
    assert of_pyops.startswith("warning: typed.warning::Keep kept an array")
