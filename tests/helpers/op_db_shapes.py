"""Shape functions for the sample operators, for tests that need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyops.shapes import TensorSpec, broadcast, new_dim
from tests.helpers.op_db import SAMPLES


def register_all() -> None:
    """Register the shape function of each op of the table."""
    for op in {sample.op.name: sample.op for sample in SAMPLES}.values():
        op.register_shape_inference(SHAPE_FUNCTIONS[op.name])


def same(x: TensorSpec) -> TensorSpec:
    return x


def transpose(x: TensorSpec) -> TensorSpec:
    return x.like(shape=x.shape[::-1])


def corner(x: TensorSpec) -> TensorSpec:
    return x.like(shape=())


def tile(x: TensorSpec, *, times: int) -> TensorSpec:
    return x.like(shape=(times, *x.shape))


def add_round(x: TensorSpec, *, decimals: int) -> TensorSpec:
    return x


def subtract(x: TensorSpec, y: TensorSpec) -> TensorSpec:
    return x.like(shape=broadcast(x, y))


def scale(x: TensorSpec, factor: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return x.like(shape=broadcast(x, factor)), factor


def extremes(x: TensorSpec, *, axis: int) -> tuple[TensorSpec, TensorSpec]:
    kept = [dim for position, dim in enumerate(x.shape) if position != axis % x.ndim]
    return x.like(shape=kept), x.like(shape=kept, dtype=np.int64)


def floor(x: TensorSpec) -> TensorSpec:
    return x.like(dtype=np.int64)


def clip(x: TensorSpec, low: TensorSpec | None = None, high: TensorSpec | None = None) -> TensorSpec:
    return x.like(shape=broadcast(*[spec for spec in (x, low, high) if spec is not None]))


def total(*xs: TensorSpec) -> TensorSpec:
    return xs[0].like(shape=broadcast(*xs))


def ranks(first: TensorSpec, *rest: TensorSpec) -> TensorSpec:
    return first.like(shape=(1 + len(rest),), dtype=object)


def halves(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    half = x.like(shape=(x.shape[0] // 2, *x.shape[1:]))
    return half, half


def unique(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    count = new_dim()
    return x.like(shape=(count,)), x.like(shape=(count,), dtype=np.int64)


def lines(count: int) -> Callable[..., TensorSpec]:
    def given(x: TensorSpec, **attributes: Any) -> TensorSpec:
        return x.like(shape=(count,), dtype=object)

    return given


SHAPE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Same": same,
    "Reverse": same,
    "Turned": transpose,
    "Corner": corner,
    "Tile": tile,
    "AddRound": add_round,
    "Subtract": subtract,
    "Scale": scale,
    "Extremes": extremes,
    "Floor": floor,
    "Clip": clip,
    "Total": total,
    "Ranks": ranks,
    "Halves": halves,
    "Unique": unique,
    "Upper": same,
    "Required": lines(7),
    "Defaults": lines(7),
    "Nullable": lines(8),
    "Choice": lines(2),
    "Table": lines(4),
}
