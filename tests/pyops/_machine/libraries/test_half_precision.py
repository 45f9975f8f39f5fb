"""Libraries of kernels of float16 and bfloat16: the numbers of sessions of pyops, with any CPU's instructions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.testing import Sample
from tests.pyops._machine.libraries.plain import plain_results

T = TypeVar("T", np.float16, ml_dtypes.bfloat16)
TYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
F32 = NDArray[np.float32]


@onnx_op("half::Third", compile=True)
def third(x: NDArray[T], *, table: np.ndarray) -> NDArray[T]:
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] / np.float32(3) + table[i % 2]
    return y


@onnx_op("half::Swish", compile=True, parallel="()->()")
def swish(x: NDArray[T], *, scale: float = 1.0, out: NDArray[T] | None = None) -> NDArray[T]:
    if out is None:
        out = np.empty_like(x)
    flat, result = x.ravel(), out.reshape(-1)
    for i in range(x.size):
        result[i] = flat[i] / (np.float32(1) + np.exp(-flat[i])) * scale
    return out


swish.register_shape_inference(lambda x, scale=1.0: x)


@dataclass
class Between:
    """A sample between two casts, since NumPy and plain ONNX Runtimes have no bfloat16."""

    sample: Sample

    @property
    def feed(self) -> dict[str, Any]:
        return {"x": self.sample.inputs[0].astype(np.float32)}

    def model(self) -> onnx.ModelProto:
        kind = onnx.helper.np_dtype_to_tensor_dtype(self.sample.inputs[0].dtype)
        node = self.sample.model().graph.node[0]
        node.input[0], node.output[0] = "a", "b"
        made = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17, "half" : 1]> g (float[n] x) => (float[m] y)
            {{ a = Cast<to={kind}>(x)  y = Cast<to=1>(b) }}"""
        )
        made.graph.node.insert(1, node)
        return made


def samples() -> list[Sample]:
    """Every value of each type."""
    made = []
    for dtype in TYPES:
        x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        made += [Sample(third, x, table=np.array([0.5, -3], dtype)), Sample(swish, x, scale=0.3)]
    return made


def assert_computed(results: list[Any], chosen: list[Sample], exact: bool) -> None:
    """What is not exact depends on the instructions that the CPU has for float32."""
    for sample, given in zip(chosen, results, strict=True):
        assert not isinstance(given, str), given
        with np.errstate(all="ignore"):
            x = sample.inputs[0]
            if sample.op is third:
                offsets = np.resize(sample.attributes["table"].astype(np.float32), x.shape)
                wanted = (x.astype(np.float32) / np.float32(3) + offsets).astype(x.dtype)
            else:
                wanted = swish(x, scale=0.3)
            wanted, result = wanted.astype(np.float32), given[0].astype(np.float32)
        if sample.op is third or exact:
            np.testing.assert_array_equal(result, wanted)
        else:
            np.testing.assert_allclose(result, wanted, rtol=2 * float(ml_dtypes.finfo(x.dtype).eps), atol=1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cpu", ["native", "x86-64", "x86-64-v3"])
def test_every_value_is_computed_as_in_sessions_of_pyops(tmp_path: Path, cpu: str) -> None:
    chosen = samples()
    assert_computed([[sample.op(*sample.inputs, **sample.attributes)] for sample in chosen], chosen, True)
    report = pyops.build(tmp_path / "lib.so", examples=chosen, cpu=cpu)
    assert [op.types for op in report.ops] == [("float16", "bfloat16")] * 2
    assert not [name for name in report.undefined_symbols if "hf" in name or "bf" in name], "of a compiler's runtime"
    assert_computed(plain_results(tmp_path / "lib.so", list(map(Between, chosen))), chosen, cpu == "native")


@pytest.mark.exhaustive
def test_a_declaration_is_built_for_both_types(tmp_path: Path) -> None:
    assert pyops.build(tmp_path / "lib.so", swish, cpu="native").ops[0].types == ("float16", "bfloat16")
    chosen = [sample for sample in samples() if sample.op is swish]
    assert_computed(plain_results(tmp_path / "lib.so", list(map(Between, chosen))), chosen, True)


@pytest.mark.exhaustive
def test_libraries_for_other_machines_are_linked(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    for target, suffix in (("linux-aarch64", "so"), ("windows-x86-64", "dll"), ("macos-arm64", "dylib")):
        report = pyops.build(tmp_path / f"lib.{suffix}", examples=samples(), target=target)
        assert len(report.ops) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["linux-aarch64"])
def test_another_machine_computes_every_value(
    tmp_path: Path, target: str, elsewhere: tuple[list[str], dict[str, str]]
) -> None:
    pytest.importorskip("ziglang", reason="tests of other machines are left out: the wheel ziglang is not installed")
    chosen = samples()
    pyops.build(tmp_path / "lib.so", examples=chosen, target=target)
    assert_computed(plain_results(tmp_path / "lib.so", list(map(Between, chosen)), *elsewhere), chosen, False)
