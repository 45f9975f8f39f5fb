"""Four-bit types, of which ONNX Runtime packs two into a byte."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from pyops import errors, onnx_op
from tests.helpers.engines import ENGINES, make_session
from tests.helpers.models import make_model

VALUES = {
    ml_dtypes.int4: [-8, -1, 0, 7, 3],
    ml_dtypes.uint4: [0, 15, 8, 7, 1],
    ml_dtypes.float4_e2m1fn: [-6, -0.5, 0, 6, 1.5],
}


@pytest.mark.parametrize("shape", [(5,), (2, 2), (1,), (), (0, 3)])
@pytest.mark.parametrize("scalar", VALUES, ids=lambda scalar: scalar.__name__)
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "extensions"])
def test_they_go_in_and_out(engine: str, scalar: Any, shape: tuple[int, ...]) -> None:
    @onnx_op("packed::Reverse")
    def reverse(x: NDArray[scalar]) -> tuple[NDArray[scalar], NDArray[np.float32]]:
        assert not x.flags.writeable
        return x[::-1] if x.ndim else x, x.astype(np.float32)

    x = np.resize(np.array(VALUES[scalar], np.float32).astype(scalar), shape)
    model = make_model(
        [helper.make_node("Reverse", ["x"], ["y", "z"], domain="packed")],
        [("x", x.dtype, shape)],
        [("y", x.dtype, None), ("z", np.float32, None)],
        {"packed": 1},
    )
    model.ir_version = 11
    model.opset_import[0].version = 23
    y, z = make_session(model, engine).run(None, {"x": x})
    assert (y.dtype, y.shape) == (x.dtype, shape)
    assert y.astype(np.float32).tolist() == reverse(x)[0].astype(np.float32).tolist()
    assert z.tolist() == x.astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (np.dtype(ml_dtypes.int4), "int4; the native engine does"),
        (np.dtype(np.complex64), "complex64, and the native engine does not either"),
    ],
)
def test_onnxruntime_extensions_has_none_of_them(dtype: np.dtype[Any], message: str) -> None:
    @onnx_op("packed::Same")
    def same(x: NDArray[dtype.type]) -> NDArray[dtype.type]:
        return x

    model = make_model(
        [helper.make_node("Same", ["x"], ["y"], domain="packed")],
        [("x", dtype, (1,))],
        [("y", dtype, None)],
        {"packed": 1},
    )
    with pytest.raises(errors.EngineError, match=rf"packed::Same: .* its type {message}"):
        make_session(model, "extensions")
