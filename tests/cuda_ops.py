"""Ops with CUDA kernels, for the tests of sessions of them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray

from pyops import onnx_op

T = TypeVar("T", np.float32, np.float64)
F32, I64 = NDArray[np.float32], NDArray[np.int64]
X = np.arange(3, dtype=np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20, "cuda": 1]> main {text}')


def plus_one(x: F32) -> F32:
    return x + np.float32(1)


def declare(function: Any = plus_one, name: str = "Op", device_types: Any = ("cpu", "cuda"), **options: Any) -> Any:
    return onnx_op(f"cuda::{name}", device_types=device_types, **options)(function)


def lambda_of(what: str, seen: list[Any]) -> Any:
    def kernel(x: F32) -> F32:
        seen.append((what, type(x).__module__))
        return x + np.float32(1)

    return kernel
