"""What an export costs: ``python tests/benchmarks/export.py`` prints a Markdown table of ratios.

A transformer of four layers is exported as it is, with calls of operators that only the kernel library supports, and
with calls that fall back. Each figure is the median over rounds in which all contestants take turns, in seconds of
processor time, which other work on the machine changes less than the elapsed time. It is divided by that of
``torch.onnx.export`` of the plain model.
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version

import torch

import exporters
from pyops._support.progress import progress, track

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]

LIBRARY: tuple[Function, ...] = (torch.lgamma, torch.digamma, torch.special.i1, torch.erfinv, torch.special.ndtri)
FALLBACKS: tuple[Function, ...] = (
    torch.poisson,
    lambda x: torch.renorm(x, 2, 0, 1.0),
    lambda x: torch.binomial(x, torch.sigmoid(x)),
    lambda x: torch.linalg.eigh(x @ x.mT)[1] @ x,
)


class Layer(torch.nn.Module):
    """A layer of an encoder, with normalization first."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(size), torch.nn.LayerNorm(size)
        self.into, self.out = torch.nn.Linear(size, 3 * size), torch.nn.Linear(size, size)
        self.wider, self.narrower = torch.nn.Linear(size, 4 * size), torch.nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, length, size) for the same."""
        parts = self.into(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        changed: Tensor = self.narrower(torch.nn.functional.gelu(self.wider(self.norm2(x))))
        return x + changed


class Transformer(torch.nn.Module):
    """Four layers, and some calls after them."""

    def __init__(self, calls: tuple[Function, ...] = ()) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(Layer(64, 4) for _ in range(4)))
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, length, size) for the same."""
        x = self.layers(x)
        for call in self.calls:
            x = call(x)
        return x


ARGUMENTS = (torch.ones(2, 16, 64),)
MODELS = {
    "plain": (Transformer().eval(), False),
    f"{len(LIBRARY)} library calls": (Transformer(LIBRARY).eval(), False),
    f"{len(FALLBACKS)} fallbacks": (Transformer(FALLBACKS).eval(), True),
}


def contestants() -> dict[str, Callable[[], object]]:
    """Return torch's export of the plain model, and export and explain of each model."""
    plain = MODELS["plain"][0]
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.onnx.export(plain, ARGUMENTS, dynamo=True, verbose=False)
    }
    for name, (model, fallback) in MODELS.items():
        calls[f"export, {name}"] = functools.partial(exporters.export, model, ARGUMENTS, fallback=fallback)
        calls[f"explain, {name}"] = functools.partial(exporters.explain, model, ARGUMENTS)
    return calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/export.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="in which all contestants take turns")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # of torch's own export
    warnings.simplefilter("ignore", FutureWarning)
    calls = contestants()
    for call in calls.values():  # imports, and caches that outlive an export
        call()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    with progress("measuring"):
        for _ in track(range(arguments.rounds), "measuring"):
            for name, call in calls.items():
                gc.collect()
                before = time.process_time(), time.perf_counter()
                call()
                times[name].append((time.process_time() - before[0], time.perf_counter() - before[1]))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    packages = ", ".join(f"{p} {version(p)}" for p in ("torch", "onnxscript", "onnx-ir"))
    base = medians["torch"]
    print(f"Python {platform.python_version()}, {packages}, {platform.machine()}; torch.onnx.export: {base[0]:.2f} s\n")
    print("| model | export | elapsed time | explain, to its export | elapsed time |\n|---|---|---|---|---|")
    for name in MODELS:
        export, explain = medians[f"export, {name}"], medians[f"explain, {name}"]
        pairs = [*zip(export, base, strict=True), *zip(explain, export, strict=True)]
        print(f"| {name} | {' | '.join(f'{one / other:.2f}' for one, other in pairs)} |")


if __name__ == "__main__":
    main()
