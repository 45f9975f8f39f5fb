"""Libraries beside pyops, and beside each other."""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._machine.libraries.build_report import read_library
from tests.helpers.scripts import run_plain_script
from tests.pyops._cli.commands import command, parsed
from tests.pyops._machine.libraries.buildable_ops import PAIRS, pair_sums
from tests.pyops._machine.libraries.conftest import Library

pytestmark = pytest.mark.exhaustive
F64 = NDArray[np.float64]
MODEL = """
<ir_version: 10, opset_import: ["": 20, "built": 1, "other": 1, "mine": 1]>
main (double[n,k] x) => (double[m,k] y) {
    a = built.PairSums <scale = 2> (x)
    b = built.Beside (a)
    c = other.Twice (b)
    y = mine.Less (c)
}
"""


@onnx_op("other::Twice", compile=True)
def twice(x: F64) -> F64:
    return x * 2


def holding(*libraries: Path) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    for library in libraries:
        options.register_custom_ops_library(str(library))
    return options


def share_a_model(library: Path, other: Path, engine: Any) -> None:
    """Run a model with ops of two libraries and of pyops, which one declares in the domain of a library."""
    pyops.build(other, twice, ranks=[2])

    @onnx_op("built::Beside")  # in the domain of a library that has no such op
    def beside(x: F64) -> F64:
        return x + 1

    @onnx_op("mine::Less")
    def less(x: F64) -> F64:
        return x - 1

    model, x = onnx.parser.parse_model(MODEL), np.arange(8.0).reshape(4, 2)
    expected = (2 * (x[0::2] + x[1::2]) + 1) * 2 - 1
    for _ in range(2):
        with warnings.catch_warnings(action="error"):
            session = pyops.InferenceSession(model, holding(library, other), engine=engine)
        assert session.run(None, {"x": x})[0].tolist() == expected.tolist()
        assert {op.name for _, op in session._nodes} == {"Beside", "Less"}
    alone = pyops.InferenceSession(model, engine=engine)
    assert len(list(alone._nodes)) == 4
    assert alone.run(None, {"x": x})[0].tolist() == expected.tolist()


# In a process of its own: another test may have had onnxruntime-extensions host an op of the library, for ever.
@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_two_libraries_and_pyops_share_a_model(built: Library, tmp_path: Path, engine: str) -> None:
    paths = f"Path({str(built[0])!r}), Path({str(tmp_path / 'libother.so')!r})"
    imports = "from pathlib import Path; from tests.pyops._machine.libraries.test_beside import share_a_model"
    run_plain_script(f"{imports}; share_a_model({paths}, {engine!r})", "")


def test_a_library_needs_no_declaration_of_its_ops(built: Library) -> None:
    model, domain = PAIRS.model(), pair_sums.domain
    with pyops.testing.isolated_declarations():
        for version in pyops._core.ops.op_registry.op_versions(domain, "PairSums"):
            del pyops._core.ops.op_registry._ops[domain, "PairSums"][version]
        session = pyops.InferenceSession(model, holding(built[0]))
    assert len(session.run(None, PAIRS.feed)) == 1


def test_options_get_no_op_in_a_library_s_domain(built: Library) -> None:
    options = holding(built[0])
    with warnings.catch_warnings(record=True, action="always") as caught:  # of other declared ops, too
        pyops.register_custom_ops(options, engine="native")
    told = "\n".join(str(item.message) for item in caught)
    assert re.search("skipped ops: .*built::.*because a library in the session options has their", told)
    model = PAIRS.model()
    assert len(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, PAIRS.feed)) == 1


def test_a_session_with_a_library_says_what_pickling_it_needs(built: Library) -> None:
    import pickle

    with pytest.raises(pyops.errors.PickleError, match="custom-op library with built::PairSums"):
        pickle.dumps(pyops.InferenceSession(PAIRS.model(), holding(built[0])))


def test_inspect_and_doctor_tell_what_is_in_a_library(built: Library, tmp_path: Path) -> None:
    path, report = built
    assert command("inspect", str(path)).stdout == f"{report}\n"
    assert parsed("inspect", str(path))["ops"][0]["name"] == "built::AddScaled"
    (tmp_path / "none.so").write_bytes(b"\x7fELF")
    told = command("inspect", str(tmp_path / "none.so"), code=2).stderr.replace("│", " ")
    assert "is not a library that pyops build made" in " ".join(told.split())
    data = path.read_bytes()
    (tmp_path / "half.so").write_bytes(data[: data.index(b"\0", data.index(b"pyops library: ")) + 1])
    told = command("inspect", str(tmp_path / "half.so"), code=2).stderr.replace("│", " ")
    assert "but it is damaged" in " ".join(told.split())
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    nodes = parsed("inspect", str(tmp_path / "model.onnx"), "--library", str(path), code=1)["nodes"]
    assert [node["library"] for node in nodes[:2]] == [str(path), None]
    assert "in a library" in command("inspect", str(tmp_path / "model.onnx"), "--library", str(path), code=1).stdout


def test_models_are_compared_with_a_library_of_this_folder(
    built: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops.so").write_bytes(built[0].read_bytes())
    monkeypatch.chdir(tmp_path)
    onnx.save(PAIRS.model(), "model.onnx")
    files = []
    for name, array in PAIRS.feed.items():
        np.save(f"{name}.npy", array)
        files += ["--input", f"{name}={name}.npy"]
    assert pyops.compare_models("model.onnx", "model.onnx", PAIRS.feed, libraries=["ops.so"]).ok
    assert parsed("compare", "model.onnx", "model.onnx", *files, "--library", "ops.so")["ok"]


OP = b'{"name": "d::N", "version": 1, "types": ["int8"], "ranks": ["any"], "functions": 2}'
DESCRIPTION = b'{"target": "x", "cpu": "y", "ops": [%b], "onnxruntime": "1.16"}' % OP


def test_a_description_is_read_without_the_library(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"pyops library: " + DESCRIPTION + b"\0")
    assert [op.name for op in read_library(tmp_path / "text").ops] == ["d::N"]


def test_a_forged_table_of_symbols_ends(built: Library, tmp_path: Path) -> None:
    data = bytearray(built[0].read_bytes())
    (offset,), (count,) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<H", data, 0x3C)
    for section in range(offset, offset + 64 * count, 64):
        if struct.unpack_from("<I", data, section + 4)[0] == 0x6FFFFFFE:
            struct.pack_into("<I", data, section + 44, 2**32 - 1)
            struct.pack_into("<I", data, struct.unpack_from("<Q", data, section + 24)[0] + 12, 0)
    (tmp_path / "forged.so").write_bytes(data)
    assert read_library(tmp_path / "forged.so").ops == built[1].ops


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"target": "x"', b"{no JSON}\0", b"{}\0", b'{"\xff": 1}\0', b'{"ops": [1]}\0', b'{"a":' * 100_000 + b"\0"),
        *(
            DESCRIPTION.replace(one, other) + b"\0"
            for one, other in ((b'"d::N"', b"7"), (b'["int8"]', b'"int8"'), (b'"x"', b'"\\n"'), (b": 1", b': "1"'))
        ),
    ],
    ids=["no end", "no JSON", "no keys", "no UTF-8", "no ops", "deep", "name", "types", "target", "version"],
)
def test_a_damaged_description_is_said(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.so"
    path.write_bytes(b"pyops library: " + text)
    with pytest.raises(pyops.errors.InputError, match=r"damaged\.so is a library.* but it is damaged; build it again"):
        read_library(path)


def test_doctor_tries_libraries(built: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyops._cli import doctor

    for slow in ("numba", "extensions"):
        monkeypatch.delitem(doctor.PROBES, slow)
    made = {item["what"]: item for item in parsed("doctor", str(built[0]))["findings"]}[f"library {built[0]}"]
    assert made["state"] == "ok"
    assert made["found"].startswith("built::AddScaled, built::Rows, built::PairSums; for linux-")

    data = bytearray(built[0].read_bytes())
    data[18] ^= 0xFF  # its machine
    (tmp_path / "other.so").write_bytes(data)
    found = parsed("doctor", str(tmp_path / "other.so"), code=1)["findings"]
    (broken,) = [item for item in found if "other" in item["what"]]
    assert broken["state"] == "broken"
    assert broken["fix"] == "build it for this machine: pyops build"
