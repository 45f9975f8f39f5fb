"""Shape functions for the sample operators, for tests that want them to have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyops.shapes import Spec, broadcast, new_dim
from tests.op_db import SAMPLES


def register_all() -> None:
    """Give each op of the table its shape function."""
    for op in {sample.op.name: sample.op for sample in SAMPLES}.values():
        op.register_shape_inference(SHAPE_FUNCTIONS[op.name])


def same(x: Spec) -> Spec:
    return x


def transpose(x: Spec) -> Spec:
    return x.like(shape=x.shape[::-1])


def corner(x: Spec) -> Spec:
    return x.like(shape=())


def tile(x: Spec, *, times: int) -> Spec:
    return x.like(shape=(times, *x.shape))


def add_round(x: Spec, *, decimals: int) -> Spec:
    return x


def subtract(x: Spec, y: Spec) -> Spec:
    return x.like(shape=broadcast(x, y))


def scale(x: Spec, factor: Spec) -> tuple[Spec, Spec]:
    return x.like(shape=broadcast(x, factor)), factor


def extremes(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    kept = [dim for position, dim in enumerate(x.shape) if position != axis % x.ndim]
    return x.like(shape=kept), x.like(shape=kept, dtype=np.int64)


def floor(x: Spec) -> Spec:
    return x.like(dtype=np.int64)


def clip(x: Spec, low: Spec | None = None, high: Spec | None = None) -> Spec:
    return x.like(shape=broadcast(*[spec for spec in (x, low, high) if spec is not None]))


def total(*xs: Spec) -> Spec:
    return xs[0].like(shape=broadcast(*xs))


def ranks(first: Spec, *rest: Spec) -> Spec:
    return first.like(shape=(1 + len(rest),), dtype=object)


def halves(x: Spec) -> tuple[Spec, Spec]:
    half = x.like(shape=(x.shape[0] // 2, *x.shape[1:]))
    return half, half


def unique(x: Spec) -> tuple[Spec, Spec]:
    count = new_dim()
    return x.like(shape=(count,)), x.like(shape=(count,), dtype=np.int64)


def lines(count: int) -> Callable[..., Spec]:
    def given(x: Spec, **attributes: Any) -> Spec:
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
