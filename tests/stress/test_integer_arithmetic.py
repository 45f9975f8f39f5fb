"""Compiled kernels of integer arithmetic give NumPy's numbers for edge values, and do not end the process.

Left out is where numba differs, as the page on compiled kernels says: shifts by more bits than there are, quotients of
narrow integers in float32, and intermediate results that NumPy wraps around.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stress.integer_arithmetic import pairs

pytestmark = pytest.mark.stress

DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
BINARY = {
    "floor_divide": "//",
    "remainder": "%",
    "mod": "%",
    "divmod[0]": "divmod",
    "divmod[1]": "divmod",
    "fmod": None,
    "true_divide": "/",
    "divide": "/",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "gcd": None,
    "lcm": None,
    "maximum": None,
    "minimum": None,
    "left_shift": "<<",
    "right_shift": ">>",
    "bitwise_and": "&",
    "bitwise_xor": "^",
    "less": "<",
    "equal": "==",
}
UNARY = ("absolute", "abs", "negative", "positive", "invert", "sign", "square")
FORMS = ("array", "operator", "in place", "out", "loop", "loop of ufuncs", "row", "constant", "nested", "parallel")
SEEDS = range(3)
CASES_PER_SEED = 60
BATCH = 20


def body(name: str, form: str, dtype: str, result: str, constant: int) -> tuple[str, bool] | None:
    """Return the lines of a kernel, and whether `y` is the constant in it; None if there is no such form."""
    name, bracket, index = name.partition("[")
    part = bracket + index
    symbol = BINARY.get(f"{name}{part}")

    def ufunc(x: str, y: str) -> str:
        return f"np.{name}({x}{'' if name in UNARY else f', {y}'}){part}"

    def operator(x: str, y: str) -> str | None:
        return f"divmod({x}, {y}){part}" if symbol == "divmod" else symbol and f"{x} {symbol} {y}"

    cast = f".astype(np.{result})"
    loop = f"z = np.empty(x.shape, np.{result})\nfor i in range(x.size):\n    z[i] = {{}}\nreturn z"
    row = f"z = np.empty(x.shape, np.{result})\nfor i in range(0, x.size, 2):\n    z[i:i + 2] = {{}}\nreturn z"
    fixed = f"np.{dtype}({constant})"
    made: str | None = None
    match form:
        case "array" | "parallel":
            made = f"return ({ufunc('x', 'y')}){cast}"
        case "operator" if symbol and symbol != "divmod":
            made = f"return ({operator('x', 'y')}){cast}"
        case "in place" if symbol and symbol not in ("divmod", "/", "<", "=="):
            made = f"z = x.copy()\nz {symbol}= y\nreturn z{cast}"
        case "out" if not part:
            made = f"z = np.empty(x.shape, np.{result})\n{ufunc('x', 'y')[:-1]}, z)\nreturn z"
        case "out":
            made = f"z = np.empty_like(x), np.empty_like(x)\nnp.divmod(x, y, z[0], z[1])\nreturn z{part}"
        case "loop" if symbol:
            made = loop.format(operator("x[i]", "y[i]"))
        case "loop of ufuncs":
            made = loop.format(ufunc("x[i]", "y[i]"))
        case "row":
            made = row.format(ufunc("x[i:i + 2]", "y[i]"))
        case "constant":
            made = f"return ({operator('x', fixed) if symbol and not part else ufunc('x', fixed)}){cast}"
        case "nested":
            made = f"return ({ufunc('(x | y)', '(y & x)')}){cast}"
    return made and (made, form == "constant")


def cases(seed: int) -> Iterator[dict[str, Any]]:
    """Return all cases, in an order that depends on the seed."""
    chosen = list(itertools.product([*BINARY, *UNARY], FORMS, DTYPES))
    source = random.Random(seed)
    source.shuffle(chosen)
    for name, form, dtype in chosen:
        if name in ("divide", "true_divide") and np.iinfo(dtype).bits < 32:
            continue
        limits, shifts = np.iinfo(dtype), name.endswith("shift")
        edges = [1, limits.max, limits.min, limits.bits, max(limits.min, -1)]
        constant = source.choice([0, *([1, limits.bits - 1] if shifts else edges)])
        x, y = pairs(dtype, shifts)
        if form == "row":
            y = np.repeat(y[::2], 2)[: x.size]
        if form == "constant":
            y = np.full_like(x, constant)
        if form == "nested":
            x, y = x | y, y & x
        with np.errstate(all="ignore"):
            outputs = getattr(np, name.partition("[")[0])(*([x] if name in UNARY else [x, y]))
        expected = outputs[int(name[-2])] if "[" in name else outputs
        made = body(name, form, dtype, str(expected.dtype), constant)
        if made is not None:
            code = "def kernel(x, y):\n" + "".join(f"    {line}\n" for line in made[0].splitlines())
            case = {"code": code, "dtype": dtype, "result": str(expected.dtype), "shifts": shifts}
            case |= {"name": f"{name}, {form}, {dtype}", "expected": expected.tolist(), "parallel": form == "parallel"}
            yield case


def failures(batch: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Run cases in processes, a new one after each that ends its process; return which are wrong, and how."""
    while batch:
        done = subprocess.run(
            [sys.executable, "-m", "tests.stress.integer_arithmetic"],
            input=json.dumps(batch),
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        results = [line for line in lines if line != "runs"]
        for case, result in zip(batch, results, strict=False):
            if isinstance(result, str):
                yield case["name"], result
                continue
            values = zip(*pairs(case["dtype"], case["shifts"]), result, case["expected"], strict=True)
            wrong = [(x, y, got, wanted) for x, y, got, wanted in values if repr(got) != repr(wanted)]  # NaN is NaN
            if wrong:
                x, y, got, wanted = wrong[0]
                text = f"{len(wrong)} of {len(result)}, the first for {x}, {y}: {got}, and NumPy {wanted}"
                yield case["name"], f"{text}\n{case['code']}"
        if len(results) < len(batch):
            yield batch[len(results)]["name"], f"exit code {done.returncode}\n{done.stderr[-1000:]}"
        batch = batch[len(results) + 1 :]


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_integer_arithmetic_is_numpys(seed: int) -> None:
    chosen = list(itertools.islice(cases(seed), CASES_PER_SEED))
    found = [item for at in range(0, len(chosen), BATCH) for item in failures(chosen[at : at + BATCH])]
    assert not found, "\n".join(f"{name}: {text}" for name, text in found)
