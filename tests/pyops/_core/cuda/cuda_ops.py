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


def on_the_host(cupy: Any, function: Any) -> Any:
    """A CUDA kernel that computes as `function` does, on the host; it takes the bits of what CuPy cannot copy."""

    def to_host(x: Any) -> Any:
        return x if x is None else cupy.asnumpy(x.view(bits_of(x))).view(x.dtype)

    def to_gpu(x: Any) -> Any:
        x = np.asarray(x)
        return cupy.asarray(x.view(bits_of(x))).view(x.dtype)

    def kernel(*inputs: Any, out: Any = None, **attributes: Any) -> Any:
        assert {type(x).__module__.partition(".")[0] for x in inputs if x is not None} <= {"cupy"}
        result = function(*map(to_host, inputs), **attributes)
        return tuple(map(to_gpu, result)) if isinstance(result, tuple) else to_gpu(result)

    return kernel


def bits_of(x: Any) -> np.dtype[Any]:
    """The dtype whose arrays CuPy copies in place of these."""
    return np.dtype(f"u{x.dtype.itemsize}") if x.dtype.isbuiltin == 2 else x.dtype


def lambda_of(what: str, seen: list[Any]) -> Any:
    def kernel(x: F32) -> F32:
        seen.append((what, type(x).__module__))
        return x + np.float32(1)

    return kernel
