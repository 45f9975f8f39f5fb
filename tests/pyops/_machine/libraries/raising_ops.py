"""Operators that raise exceptions with values of all kinds; in no test module, because pytest rewrites assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops import Op, onnx_op

F64 = NDArray[np.float64]


class RefusalError(Exception):
    pass


class OfTwoError(ValueError):
    def __str__(self) -> str:
        return f"{self.args[0]} of {self.args[1]}"


@onnx_op("raising::Shapes", compile=True)
def shapes(x: F64, *, text: str = "it's") -> F64:
    if x.size:
        raise ValueError("too many", x.shape, (text, (x.size,), ()), None, [x.size, 2], x.dtype)
    return x


@onnx_op("raising::Numbers", compile=True)
def numbers(x: F64, *, limit: int | None = None) -> F64:
    if x.size:
        raise RefusalError(
            bool(x[0] > 1), True, limit, None, x.size - 7, int(x[0]), float(x[0]) * 1e30, complex(-0.0, x[0])
        )
    return x


@onnx_op("raising::Text", compile=True)
def text_alone(x: F64, *, text: str = 'say "it\'s"\n') -> F64:
    if x.size:
        raise RuntimeError(text)
    return x


@onnx_op("raising::Repeated", compile=True)
def repeated(x: F64) -> F64:
    if x.size:
        raise KeyError("\u00e9'" * x.size)
    return x


@onnx_op("raising::OfTwo", compile=True)
def of_two(x: F64, *, text: str = "\u221e") -> F64:
    if x.size:
        raise OfTwoError(x.size, text)
    return x


@onnx_op("raising::File", compile=True)
def missing_file(x: F64, *, text: str = "a.txt") -> F64:
    if x.size:
        raise OSError(2, text)
    return x


@onnx_op("raising::Asserting", compile=True)
def asserting(x: F64) -> F64:
    if x.size:
        assert x.size == 0, x.shape
    return x


@onnx_op("raising::Nothing", compile=True)
def nothing(x: F64) -> F64:
    if x.size:
        raise ZeroDivisionError
    return x


@onnx_op("raising::WholeArray", compile=True)
def whole_array(x: F64) -> F64:
    if x.size:
        raise ValueError(x)
    return x


OPS: list[Op[..., Any]] = [shapes, numbers, text_alone, repeated, of_two, missing_file, asserting, nothing]
