"""Random ops: an expression in torch, a kernel that computes it in NumPy, and kernels with one mistake in it."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import pyops
from pyops.testing import check

Float = TypeVar("Float", np.float32, np.float64)

UNARY = {
    "tanh": (torch.tanh, np.tanh),
    "exp": (lambda x: torch.exp(-x.abs()), lambda x: np.exp(-np.abs(x))),
    "root": (lambda x: (x.abs() + 1).sqrt(), lambda x: np.sqrt(np.abs(x) + 1)),
    "floor": (torch.floor, np.floor),
    "negative": (torch.neg, np.negative),
}
BINARY = {
    "add": (torch.add, np.add),
    "subtract": (torch.sub, np.subtract),
    "multiply": (torch.mul, np.multiply),
    "maximum": (torch.maximum, np.maximum),
}
REDUCED = {
    "mean": (lambda x, axis: x.mean(axis, keepdim=True), lambda x, axis: np.mean(x, axis, keepdims=True)),
    "sum": (lambda x, axis: x.sum(axis, keepdim=True), lambda x, axis: np.sum(x, axis, keepdims=True)),
    "largest": (lambda x, axis: x.amax(axis, keepdim=True), lambda x, axis: np.max(x, axis, keepdims=True)),
}


def expression(rng: random.Random, depth: int) -> Any:
    """A tree of ("x" or "w",), ("scale", tree), (unary, tree), (binary, tree, tree) and (reduction, tree, axis)."""
    if not depth:
        return rng.choice([("x",), ("w",)])
    kind = rng.choice(["unary", "binary", "binary", "reduced", "scale"])
    if kind == "binary":
        return rng.choice(list(BINARY)), expression(rng, depth - 1), expression(rng, rng.randrange(depth))
    inner = expression(rng, depth - 1)
    if kind == "reduced":
        return rng.choice(list(REDUCED)), inner, rng.choice([-1, 0])
    return ("scale", inner) if kind == "scale" else (rng.choice(list(UNARY)), inner)


def evaluate(tree: Any, values: dict[str, Any], column: int) -> Any:
    """Compute a tree: `column` is 0 in torch and 1 in NumPy."""
    name, *parts = tree
    if name in REDUCED:
        return REDUCED[name][column](evaluate(parts[0], values, column), parts[1])
    given = [evaluate(part, values, column) for part in parts]
    if name == "scale":
        return given[0] * values["scale"]
    return {**UNARY, **BINARY}[name][column](*given) if given else values[name]


def mistaken(rng: random.Random, tree: Any) -> Any:
    """The tree with another operator, axis or operand in one place."""
    name, *parts = tree
    nested = [index for index, part in enumerate(parts) if isinstance(part, tuple)]
    if nested and rng.random() < 0.6:
        index = rng.choice(nested)
        return (name, *parts[:index], mistaken(rng, parts[index]), *parts[index + 1 :])
    if name in REDUCED and rng.random() < 0.5:
        return name, parts[0], -1 - parts[1]
    for table in (UNARY, BINARY, REDUCED):
        if name in table:
            return (rng.choice([other for other in table if other != name]), *parts)
    return {"x": ("w",), "w": ("x",)}.get(name) or parts[0]


def declared(tree: Any, computed: Any) -> Any:
    """An op that is one tree, and whose kernel computes another one in float64."""

    @pyops.onnx_op("random::Expression")
    def op(x: NDArray[Float], w: NDArray[Float], *, scale: float = 0.75) -> NDArray[Float]:
        wide = {"x": x.astype(np.float64), "w": w.astype(np.float64), "scale": scale}
        return np.asarray(evaluate(computed, wide, 1)).astype(x.dtype)

    @op.register_decomposition
    def _(x, w, *, scale):
        return evaluate(tree, {"x": x, "w": w, "scale": scale}, 0).clone()

    return op


def differ(one: Any, other: Any) -> bool:
    """Whether two trees give different numbers for some inputs."""
    x, w = np.random.default_rng(1).normal(size=(2, 5, 3, 4)) * 2
    results = [np.asarray(evaluate(tree, {"x": x, "w": w, "scale": 0.75}, 1)) for tree in (one, other)]
    return results[0].shape != results[1].shape or not np.allclose(*results, atol=1e-3, rtol=1e-3)


def status(seed: int, name: str, is_mistaken: bool) -> str | None:
    """The result of one check of a random op; None if its mistake changes no number."""
    rng = random.Random(seed)
    tree = ("add", ("add", ("x",), ("w",)), expression(rng, 3))  # which takes both inputs, and has their shape
    computed = tree
    while is_mistaken and computed == tree:
        computed = ("add", tree[1], mistaken(rng, tree[2]))
    if is_mistaken and not differ(tree, computed):
        return None
    x, w = np.random.default_rng(seed).normal(size=(2, 3, 4)).astype(np.float32)
    return check(declared(tree, computed), x, w, checks=name, raise_exception=False)[name].status
