"""The folder that ``pyops build --bundle`` writes: its C and C++ programs are compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import pyops
from tests.building.buildable_ops import rows, values
from tests.cli.commands import command

pytestmark = pytest.mark.exhaustive
MODEL = """
<ir_version: 8, opset_import: ["": 17, "built": 1]>
rows (float[batch, 3] x, int64 _unused) => (float[batch, 3] y, float[batch] z) { y, z = built.Rows <limit = 1000> (x) }
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    onnx.save(onnx.parser.parse_model(MODEL.replace(", int64 _unused", "")), folder / "rows.onnx")
    made = ["tests.building.buildable_ops", "--for", str(folder / "rows.onnx"), "--bundle", str(folder / "made")]
    assert rows.signature.qualified_name in command("build", *made).stdout
    wheel = Path(onnxruntime.__file__).parent / "capi" / f"libonnxruntime.so.{onnxruntime.__version__}"
    (folder / "made" / "libonnxruntime.so.1").symlink_to(wheel)
    return folder / "made"


def run(folder: Path, compiler: list[str], source: str, *given: str) -> str:
    program = folder / f"run_{source.replace('.', '_')}"
    flags = ["-Wall", "-Wextra", "-Werror", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*compiler, *flags, source, "-o", program, "./libonnxruntime.so.1"], cwd=folder, check=True)
    for file in (program, folder / "librows_ops.so"):
        linked = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        assert "python" not in linked
    done = subprocess.run(["env", "-i", program, *given], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_c_program_computes_what_pyops_does(bundle: Path) -> None:
    x = values(4, 3)
    x.tofile(bundle / "x.bin")
    y, z = pyops.InferenceSession(bundle / "rows.onnx").run(None, {"x": x})
    printed = run(bundle, ["cc", "-std=c11", "-D_GNU_SOURCE", "-DSIZE_batch=4"], "program.c", "2").splitlines()
    assert printed[0].startswith("y [4, 3]:")
    assert printed[0].endswith(" ...")
    np.testing.assert_array_equal(np.float32(printed[0].split(":")[1].split()[:-1]), y.reshape(-1)[:10])
    assert printed[1].startswith("z [4]:")
    np.testing.assert_array_equal(np.float32(printed[1].split(":")[1].split()), z)
    assert printed[2].endswith(" ms")
    for other in (b"short", values(2, 3).tobytes()):
        (bundle / "x.bin").write_bytes(other)
        with pytest.raises(AssertionError, match=r"x\.bin does not have 3 elements"):
            run(bundle, ["cc"], "program.c")
    (bundle / "x.bin").unlink()


def test_the_cpp_program_runs(bundle: Path) -> None:
    printed = run(bundle, ["c++", "-std=c++17", "-DSIZE_batch=5"], "program.cpp").splitlines()
    assert printed == ["y: 15 elements, sum 5", "z: 5 elements, sum 15"]


def test_the_other_files_name_the_model_and_the_library(bundle: Path) -> None:
    assert "librows_ops.so" in (bundle / "Program.cs").read_text()
    assert (
        'CreateFromTensor("x", new DenseTensor<float>(new int[] { 1 /* SIZE_batch */, 3 }))'
        in (bundle / "Program.cs").read_text()
    )
    config = (bundle / "triton" / "rows" / "config.pbtxt").read_text()
    assert 'name: "x", data_type: TYPE_FP32, dims: [ -1, 3 ]' in config
    assert 'op_library_filename: [ "/models/rows/1/librows_ops.so" ]' in config
    repository = bundle / "triton" / "rows" / "1"
    assert sorted(path.name for path in repository.iterdir()) == ["librows_ops.so", "model.onnx"]
    assert not [path for path in bundle.iterdir() if path.suffix in (".md", ".cs") and "@" in path.read_text()]
    for file in ("Program.cs", "triton/rows/config.pbtxt"):
        assert "ot run by the tests" in (bundle / file).read_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bundle", "made"], "--bundle needs exactly one model, given with --for; there are 0"),
        ([], "give the library to write (-o LIB), or a folder for it (--bundle DIR)"),
        (["--bundle", "made", "--for", "text.onnx"], "input 's' of the model is string"),
        (["--bundle", "made", "--for", "line.onnx"], "the name 'a\\nb' has characters that a program's source cannot"),
    ],
)
def test_what_makes_no_bundle_is_said(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = MODEL.replace("int64 _unused", "string s").replace("limit = 1000", "limit = 10")
    model = onnx.parser.parse_model(text)
    onnx.save(model, "text.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "a\nb"
    onnx.save(model, "line.onnx")
    done = command("build", "tests.building.buildable_ops", *options, code=2)
    assert words in " ".join(done.stderr.replace("│", " ").split())
