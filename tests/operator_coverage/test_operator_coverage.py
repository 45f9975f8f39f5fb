"""The coverage command over planted operators, and over torch's own."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exporters import ExportError
from tests.helpers.disks import full_disk
from tests.operator_coverage import command, without_torch
from tests.operator_coverage.__main__ import main
from tests.operator_coverage.attempt import attempt, dynamic_shapes
from tests.operator_coverage.chance import chance
from tests.operator_coverage.plan import Mode, Plan
from tests.operator_coverage.pool import attempts
from tests.operator_coverage.results import Result, ResultFile, Status
from tests.operator_coverage.samples import Database
from tests.operator_coverage.table import as_json, as_markdown

ROOT = Path(__file__).parents[2]
PLANTED = "tests.operator_coverage.planted_ops:ops"


def coverage(*arguments, cwd=ROOT):
    command = [sys.executable, "-m", "tests.operator_coverage", "--database", PLANTED, *map(str, arguments)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(command, cwd=cwd, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def planted():
    return Database(PLANTED)


def results(folder):
    (path,) = folder.glob("*.jsonl")
    return {result.op: result for result in ResultFile.read(path)}


@pytest.mark.exhaustive
def test_a_run_survives_what_its_calls_do_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    some = "[tmcn]*"
    done = coverage("--ops", some, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    assert not folder.name.isidentifier(), "from the working directory, python -m imports first of all"
    found = results(folder)
    assert {name: str(result.status) for name, result in found.items()} == {
        "twice": "reproduced",
        "crash": "failed",
        "missing": "failed",
        "number": "unusable",
    }
    assert (found["crash"].kind, found["crash"].reason) == ("crash", "the process ended with exit code 11")
    assert found["missing"].kind == "no translation"
    assert "aten::lgamma" in found["missing"].reason
    table = (folder / "coverage.md").read_text()
    assert "| 3 | 1 | 0 | 0 | 0 | 2 |" in table
    assert "| crash | crash | the process ended with exit code 11 |" in table
    (written,) = json.loads((folder / "coverage.json").read_text())
    assert written["counts"] == {"failed": 2, "reproduced": 1}

    # As if it had been killed while it wrote the last result.
    (path,) = folder.glob("*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[-1][:20]]))
    tried = []

    def attempts_here(plan, calls, workers, timeout):
        tried.extend(calls)
        return (attempt(Database(plan.database), plan, *call) for call in calls)

    monkeypatch.setattr(command, "attempts", attempts_here)
    command.coverage(database=PLANTED, ops=some, results=folder)
    assert tried == [("number", 0)]
    assert {name: result.status for name, result in results(folder).items()} == {
        name: result.status for name, result in found.items()
    }


@pytest.mark.exhaustive
def test_a_call_that_hangs():
    (result,) = attempts(Plan(database=PLANTED), [("hang", 0)], workers=1, timeout=1)
    assert (result.kind, result.reason) == ("time-out", "took more than 1 s")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("random", "random"),
        ("uninitialised", "uninitialised"),
        ("kept", ""),
        ("filled", ""),
        ("randomised", ""),
        ("twice", ""),
        ("beside", ""),
        ("drawn", "random"),
    ],
)
def test_what_has_no_one_result(planted, name, expected):
    assert chance(planted.sample(name)) == expected


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("wrong", "failed"), ("random", "random"), ("uninitialised", "uninitialised"), ("kept", "reproduced"),
        ("filled", "reproduced"), ("number", "unusable"), ("error", "unusable"), ("integer", "reproduced"),
        ("untouched", "unusable"),
    ],
)  # fmt: skip
def test_what_comes_of_a_call(planted, name, status):
    assert attempt(planted, Plan(), name, 0).status == status


@pytest.mark.parametrize(
    ("name", "mode", "kind", "reason"),
    [
        ("branching", Mode.PLAIN, "torch.export stops", "the model's Python code depends on values"),
        ("generated", Mode.PLAIN, "exporter fails", "the model passes aten::bernoulli a torch.Generator"),
        ("places", Mode.PLAIN, "wrong shape or dtype", "output nonzero of int64[1, 0]: ONNX Runtime gives int64[1, 1]"),
        ("declared", Mode.KERNELS, "ONNX Runtime refuses", "without torch: ModelError: "),
    ],
)
def test_what_stops_a_call(planted, name, mode, kind, reason):
    result = attempt(planted, Plan(mode), name, 0)
    assert (result.status, result.kind) == (Status.FAILED, kind)
    assert result.reason.startswith(reason)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "custom_nodes"), [("twice", 0), ("missing", 1), ("rounded", 1)])
def test_kernels_run_without_torch(planted, name, custom_nodes):
    result = attempt(planted, Plan(Mode.KERNELS), name, 0)
    assert (str(result.status), len(result.custom_nodes), result.reason) == ("reproduced", custom_nodes, "")


@pytest.mark.exhaustive
def test_the_process_without_torch_is_started_again(planted):
    without_torch._process().kill()
    result = attempt(planted, Plan(Mode.KERNELS), "twice", 0)
    assert result.reason == "the process without torch ended with exit code -9"
    assert attempt(planted, Plan(Mode.KERNELS), "twice", 0).status is Status.REPRODUCED


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("twice", [(3, 2)]), ("gathered", [(5, 4), (4,)]), ("factor", [(3, 3)]), ("rows", [(4, 2)]), ("scalar", None)],
)
def test_another_size(planted, name, shapes):
    sample = planted.sample(name)
    program = torch.export.export(sample, sample.tensors, dynamic_shapes=dynamic_shapes(sample))
    found = sample.resized(program)
    assert (found if found is None else [tuple(tensor.shape) for tensor in found]) == shapes


@pytest.mark.exhaustive
def test_dynamic_dimensions(planted):
    plan = Plan(dynamic=True, database=PLANTED)
    assert attempt(planted, plan, "gathered", 0).status is Status.REPRODUCED
    assert attempt(planted, plan, "scalar", 0).status is Status.FIXED
    constant = attempt(planted, plan, "specialised", 0)
    assert (constant.status, constant.kind) == (Status.FAILED, "one size only")
    assert attempt(planted, plan, "sparse", 0).status is Status.FAILED  # which torch cannot cut


@pytest.mark.exhaustive
def test_with_dynamic_dimensions_samples_are_those_that_torch_takes_at_another_size(planted):
    plan = Plan(dynamic=True, database=PLANTED)
    assert attempt(planted, plan, "grown", 0).status is Status.REPRODUCED
    assert attempt(planted, plan, "grown", 1).status is Status.ABSENT


def test_samples_are_those_without_empty_tensors(planted):
    assert planted.sample("twice").tensors[0].shape == (4, 3)
    assert planted.sample("twice", index=1).tensors[0].max() == -1
    assert planted.sample("twice", index=2) is None
    assert attempt(planted, Plan(samples=3), "twice", 2).status is Status.ABSENT


def test_dtypes(planted):
    assert planted.names("int64") == ["integer"]
    assert "integer" in planted.names()
    assert planted.sample("integer").tensors[0].dtype is torch.int64


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "dtype", "status"),
    [("linalg.cross", "", "reproduced"), ("digamma", "", "failed"), ("bernoulli", "", "random"),
     ("add", "int64", "reproduced"), ("item", "", "unusable")],
)  # fmt: skip
def test_torchs_own_samples(name, dtype, status):
    database = Database()
    assert name in database.names(dtype)
    result = attempt(database, Plan(dtype=dtype), name, 0)
    assert result.status == status, result


@pytest.mark.parametrize("where", ["no.such:ops", "tests.operator_coverage.planted_ops:none", "tests"])
def test_no_database(where):
    with pytest.raises(ExportError, match=f"'{where}' is not a list of samples: .*write module:name"):
        Database(where)


def test_no_operator_of_that_name(tmp_path):
    message = r"no operator has a name like 'nothing' and samples of int64; choose some, as by --ops 'linalg"
    with pytest.raises(ExportError, match=message):
        command.coverage(database=PLANTED, ops="nothing", dtype="int64", results=tmp_path)


def test_results_of_another_run_are_not_mixed_in(tmp_path):
    path = tmp_path / "plain.jsonl"
    ResultFile.resume(path, Plan(), 1).add(Result("a", 0, Status.REPRODUCED))
    assert ResultFile.resume(path, Plan(), 1).complete
    with pytest.raises(ExportError, match=r"plain.jsonl holds a run with another plan .*choose another folder"):
        ResultFile.resume(path, Plan(Mode.FALLBACK), 1)
    with pytest.raises(ExportError, match=r"another total \(1, now 2\)"):
        ResultFile.resume(path, Plan(), 2)
    path.write_text("{}\n")
    with pytest.raises(ExportError, match=r"plain.jsonl is not a file of coverage results .*move it away"):
        ResultFile.resume(path, Plan(), 1)


def test_mistakes_are_said_in_a_line(tmp_path, monkeypatch, capsys):
    arguments = ["--database", PLANTED, "--ops", "nothing", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["operator_coverage", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.splitlines() + ([ended.value.code] if isinstance(ended.value.code, str) else [])
    assert ended.value.code
    assert len(said) == 1


@pytest.mark.parametrize("package", ["typer", "pebble"])
def test_without_the_extra_the_command_names_it(monkeypatch, package):
    for name in [
        name for name in sys.modules if name.startswith("tests.operator_coverage.") and not name.endswith("__main__")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", ["operator_coverage"])
    with pytest.raises(
        SystemExit, match=rf'needs {package}, which is not installed: pip install "onnx-pyops\[coverage'
    ):
        main()


def test_the_tables_have_what_fell_back(tmp_path):
    file = ResultFile.resume(tmp_path / "a.jsonl", Plan(Mode.FALLBACK), 4)
    for number, status in enumerate([Status.REPRODUCED, Status.REPRODUCED, Status.FAILED, Status.ABSENT]):
        file.add(
            Result(
                f"op{number}",
                0,
                status,
                reason="a|b <c> [d](e)" * (status is Status.FAILED),
                custom_nodes={"aten::a": 1},
            )
        )
    text = as_markdown([file])
    assert "| fallback=True, float32 | 3 | 2 | 0 | 0 | 0 | 1 | 2 of 3 |" in text
    assert "a\\|b &lt;c> [d] (e)" in text
    (written,) = json.loads(as_json([file]))
    assert written["plan"] == dataclasses.asdict(Plan(Mode.FALLBACK))
    assert written["reproduced"] == ["op0", "op1"]
    assert [item["op"] for item in written["others"]] == ["op2"]
    assert written["custom nodes"]["op1"] == {"aten::a": 1}


def test_the_table_names_what_has_no_one_result(tmp_path):
    file = ResultFile.resume(tmp_path / "a.jsonl", Plan(), 2)
    for name in ("bernoulli", "dropout"):
        file.add(Result(name, 0, Status.RANDOM))
    assert "Random: `bernoulli`, `dropout`." in as_markdown([file])


def test_what_a_run_has_found_outlives_a_full_disk_and_a_kill(tmp_path):
    path, plan = tmp_path / "run.jsonl", Plan(Mode.PLAIN, "", 1, False, "*", PLANTED)
    file = ResultFile.resume(path, plan, 50)
    for number in range(8):
        file.add(Result(f"op{number}", 0, Status.FAILED, reason="größer " * 4))
    whole = path.read_bytes()
    with full_disk(len(whole) - 100), pytest.raises(OSError, match=r"run\.jsonl"):
        ResultFile.resume(path, plan, 50)
    with full_disk(len(whole) + 40), pytest.raises(ExportError, match=r"cannot write to .*run\.jsonl .*has 8 results"):
        file.add(Result("op8", 0, Status.REPRODUCED, reason="é" * 100))
    assert path.read_bytes().startswith(whole)
    assert len(ResultFile.resume(path, plan, 50)) == 8
    # Killed within a letter.
    path.write_bytes(whole[: whole.rindex("ß".encode()) + 1])
    assert len(ResultFile.resume(path, plan, 50)) == 7
    assert [item.name for item in tmp_path.iterdir()] == ["run.jsonl"]
