"""``run``."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from pyops._cli.output import plain
from pyops._support.element_types import ELEMENT_TYPES, STRING, dtype_name
from tests.helpers.disks import full_disk
from tests.helpers.models import chain
from tests.helpers.systems import needs_limits
from tests.pyops._cli.commands import command, parsed, save

pytestmark = pytest.mark.usefixtures("folder")


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
        "values": [2.0, 3.0],
        "file": str(Path("out") / "y.npy"),
    }
    assert np.load("out/y.npy").tolist() == [2, 3]


@pytest.mark.parametrize("name", ["run", "inspect"])
def test_an_op_that_is_not_declared_is_refused_with_the_option_that_imports_it(name: str) -> None:
    done = command(name, save(chain("typed::Unheard")), code=1)
    assert "typed::Unheard is not declared; --import MODULE imports the module" in done.output


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
    assert record["values"] == ["AB", "C"]
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


def test_modules_and_kernels_that_end_the_process_are_said(folder: Path) -> None:
    result = command("run", save(chain("typed::Ending")), "-x", "x=float32[0]", "-i", "typed_ops", code=1)
    assert "raise SystemExit(7)\nSystemExit: 7\nin node 'node0'" in result.stderr
    (folder / "script.py").write_text("import sys\nsys.exit(0)\n")
    assert "script.py" in command("list", "-i", "script.py", code=1).stderr


@pytest.mark.parametrize("dtype", ["int64", "bool", "string"])
def test_run_makes_up_inputs_of_every_kind(dtype: str) -> None:
    model = chain("Identity")
    for item in (model.graph.input[0], model.graph.output[0]):
        item.type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(dtype.upper())
    (record,) = parsed("run", save(model), "-x", f"x={dtype}[2]")
    assert (record["type"], record["shape"]) == (dtype, [2])


def test_a_module_that_lacks_another_one_says_so(folder: Path) -> None:
    (folder / "lacking.py").write_text("import no_such_module\n")
    assert "No module named 'no_such_module'" in command("list", "-i", "lacking", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--input 'x=float32[2]'"),
        (("-x", "y=float32[2]"), "no input 'y'; it has x"),
        (("-x", "x=float32[2]", "-x", "x=float32[2]"), "given twice"),
        (("-x", "x=float64[2]"), "expected float32: save the file in that type, or write --input 'x=float32[2]'"),
        (("-x", "x=none.npy"), "there is no file 'none.npy'"),
        (("-x", "x=several.npz"), "'several.npz' contains several arrays"),
        (("-x", "x=flaot32[2]"), "did you mean 'float32'?"),
        (("-x", "x"), "expected NAME=FILE.npy"),
        (("-x", "x=float32[2]", "--engine", "natve"), "'natve'"),
        (("-x", "x=float32[2]", "--save", "typed_ops.py"), "cannot create the folder"),
        (("--import", "no_such_module"), "there is no module 'no_such_module'"),
        (("--import", "no_such_file.py"), "there is no file 'no_such_file.py'"),
        (
            ("-x", "x=float32[2,,3]"),
            "there is no file 'float32[2,,3]'; save the array with np.save, or write random ones",
        ),
        (("-x", "x=float32[99999999999,99999999999]"), "is too large for this machine"),
        (("-x", "x=float32[99999999999999999999]"), "is too large for this machine"),
        (("-x", "x=float32[2]", "--provider", "Typo"), "there is no execution provider 'Typo'; this onnxruntime has"),
    ],
)
def test_wrong_usage_is_said_with_the_fix(arguments: tuple[str, ...], message: str) -> None:
    model = chain("Neg")
    model.graph.input[0].type.tensor_type.shape.dim.add(dim_param="n")
    np.savez("several.npz", np.ones(2), np.ones(2))
    result = command("run", save(model), *arguments, code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


@needs_limits
def test_outputs_that_do_not_fit_the_disk_are_said(folder: Path) -> None:
    path = save(chain("Neg"))
    with full_disk():
        result = command("run", path, "-x", "x=float32[1000]", "--save", "out", code=1)
    assert result.stderr.startswith("error: ")
    assert "out/y.npy" in result.stderr
    assert "Traceback" not in result.stderr
    assert list((folder / "out").iterdir()) == []


def test_outputs_whose_names_no_file_can_have_are_saved(folder: Path) -> None:
    model = chain("Neg")
    for letter in "yé":
        model.graph.output.add().CopyFrom(model.graph.output[0])
        model.graph.output[-1].name = letter * 300
        model.graph.node.add(op_type="Identity", input=["y"], output=[letter * 300])
    records = parsed("run", save(model), "-x", "x=float32[]", "--save", "out")
    assert sorted(map(str, Path("out").iterdir())) == sorted(record["file"] for record in records)
    assert len(records) == 3


def test_json_has_every_number() -> None:
    x = np.random.default_rng(3).normal(size=(5, 7)).astype(np.float32)
    np.save("x.npy", x)
    (record,) = parsed("run", save(chain("typed::Plus")), "-x", "x=x.npy", "-i", "typed_ops")
    np.testing.assert_array_equal(np.array(record["values"], np.float32), x + 1)


@pytest.mark.parametrize("row", ELEMENT_TYPES, ids=lambda row: row.dtype.name)
def test_json_has_numbers_of_every_type(row) -> None:
    array = np.array([1, 1]).astype(str if row.dtype == STRING else row.dtype)
    told = json.loads(json.dumps(array, default=plain))
    assert (told["type"], told["shape"]) == (dtype_name(array.dtype), [2])
    one = {"c": [1.0, 0.0], "b": True, "U": "1"}.get(array.dtype.kind, 1)
    assert told["values"] == [one, one]


def test_json_has_the_arrays_of_a_sequence() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        main (float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x, x) }
    """)
    np.save("x.npy", np.arange(2, dtype=np.float32))
    (record,) = parsed("run", save(model), "-x", "x=x.npy")
    array = {"type": "float32", "shape": [2], "values": [0, 1]}
    assert record == {"name": "y", "type": "list", "values": [array, array]}


@needs_limits
def test_all_outputs_are_saved_in_one_file_under_the_model_s_names(folder: Path) -> None:
    model = chain("typed::Plus")
    for name in ("file", "../../up"):  # a parameter of numpy.savez, and a path out of the folder
        model.graph.output.add().CopyFrom(model.graph.output[0])
        model.graph.output[-1].name = name
        model.graph.node.add(op_type="Neg", input=["y"], output=[name])
    records = parsed("run", save(model), "-x", "x=float32[2]", "-i", "typed_ops", "--output", "all.npz")
    assert [record["file"] for record in records] == ["all.npz"] * 3
    with np.load("all.npz") as saved:
        for record in records:
            np.testing.assert_array_equal(saved[record["name"]], np.array(record["values"], np.float32))
    assert "ends in .npz" in " ".join(command("run", "model.onnx", "-o", "all.npy", code=2).stderr.split())
    with full_disk():
        result = command("run", save(chain("Neg")), "-x", "x=float32[1000]", "-o", "full.npz", code=1)
    assert "full.npz" in result.stderr
    assert not Path("full.npz").exists()


@pytest.mark.filterwarnings("ignore::pyops.errors.FilledNodeWarning")
def test_run_computes_what_onnxruntime_lacks_where_asked() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 22]>
        main (bfloat16[n] x) => (bfloat16[n] y) { y = Sinh(x) }
    """)
    arguments = ("run", save(model), "-x", "x=bfloat16[2]")
    assert "pyops run --fill-missing" in command(*arguments, code=1).stderr
    assert "pyops run --fill-missing computes them" in command("inspect", "model.onnx").stdout
    (record,) = parsed(*arguments, "--fill-missing")
    assert (record["type"], record["shape"]) == ("bfloat16", [2])
