"""Random modules with control flow in Python, and their exported models against torch, which runs the modules.

``python tests/stress/control_flow.py SEED COUNT`` prints what is wrong, and the counts of each outcome.
"""

from __future__ import annotations

import copy
import importlib.util
import random
import sys
import tempfile
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import exporters

_HEADER = """
import numpy as np
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed({seed})
        self.linear = torch.nn.Linear({columns}, {columns})
        self.register_buffer("limit", torch.tensor(0.25))
        self.scales = [torch.rand({columns}), torch.rand({columns})]  # not registered
        self.cache = None
        self.table = {{}}

    def decide(self, value):
        return value

    def forward(self, x):
"""


class Source:
    """The text of a random module's ``forward``, statement by statement.

    A condition or a number that depends on values is wrapped in ``self.decide``, which a test may replace.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.columns = rng.choice([2, 3, 4])
        self.lines: list[str] = ["y = self.linear(x)"]
        for _ in range(rng.randint(1, 3)):
            self.lines += rng.choice(_STATEMENTS)(self)
        self.lines.append(f"return {rng.choice(['y', 'y.sum(0)', 'y * 2, y.mean()', 'y + x.mean()'])}")

    def text(self) -> str:
        body = textwrap.indent("\n".join(self.lines), " " * 8)
        return _HEADER.format(seed=self.rng.randrange(1000), columns=self.columns) + body + "\n"

    def change(self, depth: int = 0) -> list[str]:
        """Return statements that change y and keep its shape."""
        simple = [
            "y = y + 1",
            "y = y * 0.5",
            "y = torch.tanh(y)",
            "y = y - y.mean()",
            "y = y + self.scales[0]",
            "y = torch.relu(y) + x",
            "y = y.flip(0)",
        ]
        if depth < 1 and self.rng.random() < 0.2:
            return self.branch(depth + 1)
        return [self.rng.choice(simple)]

    def on_values(self) -> str:
        asked = self.rng.choice(
            [
                "bool(y.sum() > 0)",
                "y.max().item() > 0.5",
                "bool((x > 0).any())",
                "float(x.mean()) < 0.1",
                "bool(y[0, 0] > self.limit)",
                "x.tolist()[0][0] > 0",
                "x.detach().numpy().sum() > 0",
                "torch.equal(x, x.abs())",
            ]
        )
        return f"self.decide({asked})"

    def on_sizes(self) -> str:
        number = self.rng.choice([1, 2, 3, 4, 6])
        return self.rng.choice(
            [
                f"x.shape[0] % 2 == {self.rng.choice([0, 1])}",
                f"x.shape[0] > {number}",
                f"x.size(0) == {number}",
                f"len(x) >= {number}",
                "x.shape[0] == x.shape[1]",
                "x.numel() % 3 == 0",
                f"x.shape[0] // 2 < {number}",
                "y.dim() == 2 and x.shape[0] > 2",
                f"x.shape[0] in (1, {number})",
            ]
        )

    def on_types(self) -> str:
        return self.rng.choice(
            ["x.dtype == torch.float32", "x.is_floating_point()", "isinstance(self.cache, torch.Tensor)", "x.dim() > 2"]
        )

    def on_state(self) -> str:
        return self.rng.choice(
            ["bool(self.limit > 0)", "self.scales[1].sum().item() > 1", "bool(self.linear.bias[0] > 0)"]
        )

    def branch(self, depth: int = 0) -> list[str]:
        condition = self.rng.choice([self.on_values, self.on_sizes, self.on_sizes, self.on_types, self.on_state])()
        return [f"if {condition}:", *_inner(self.change(depth)), "else:", *_inner(self.change(depth))]

    def expression(self) -> list[str]:
        condition = self.rng.choice([self.on_values, self.on_sizes])()
        return [f"y = y + (1 if {condition} else 2)"]

    def loop_over_size(self) -> list[str]:
        count = self.rng.choice(["x.shape[0]", "len(y)", "x.shape[0] // 2", "min(x.shape[0], 3)", "x.shape[1]"])
        body = self.rng.choice(["y = y + x[i % len(x)]", "y = y * 0.9 + i", "total = total + x[i % len(x)].sum()"])
        return ["total = x.sum() * 0", f"for i in range({count}):", *_inner([body]), "y = y + total"]

    def loop_over_rows(self) -> list[str]:
        return self.rng.choice(
            [
                ["rows = [row * 2 for row in x]", "y = y + torch.stack(rows)"],
                ["for row in x:", *_inner(["y = y + row.sum()"])],
                ["parts = [part.sum(0, keepdim=True) for part in x.split(2)]", "y = y + torch.cat(parts).sum(0)"],
                ["parts = x.chunk(2)", "y = y + parts[-1].sum(0) * len(parts)"],
                ["y = y + x.tensor_split(2)[-1].sum(0)"],
                ["y = y + x.split(2)[-1].mean(0)"],
            ]
        )

    def while_loop(self) -> list[str]:
        condition, step = self.rng.choice(
            [
                ("self.decide(bool(y.abs().max() > 0.3))", "y = y * 0.5"),
                ("count < x.shape[0]", "y = y + 0.1"),
                ("self.decide(count < int(x.abs().sum()))", "y = y - 0.1"),
            ]
        )
        return ["count = 0", f"while {condition} and count < 6:", *_inner([step, "count += 1"])]

    def number(self) -> list[str]:
        asked = self.rng.choice(
            ["int(x.abs().max().item() * 3)", "int((x > 0).sum())", "x.argmax().item() % 3", "round(float(x[0, 0]))"]
        )
        use = self.rng.choice(["y = y + k", "y = y + x[: max(k, 1)].mean()", "y = y.roll(k, 0)", "y = y * (k + 1)"])
        return [f"k = self.decide({asked})", use]

    def derived(self) -> list[str]:
        return self.rng.choice(
            [
                ["h = int(x.shape[0] / 2)", "y = y + x[: h + 1].sum(0)"],
                ["h = x.shape[0] // 2", "y = y + x[h:].mean(0)"],
                ["n = int(x.shape[0] * 1.5 / 1.5)", "y = y.reshape(n, -1) + n"],
                ["side = int(x.numel() ** 0.5)", "y = y + side"],
                ["y = y + float(x.shape[0])"],
                ["y = y + torch.arange(x.shape[0])[:, None]"],
                ["y = y.view(x.shape[0], -1) / x.shape[0]"],
                ["scale = 1 if x.shape[0] > 3 else 2", "y = y * scale"],
                ["y = y + torch.full((x.shape[0], 1), len(x) % 3)"],
                ["pad = -x.shape[0] % 4", "y = y + torch.nn.functional.pad(x, (0, 0, 0, pad)).sum(0)"],
            ]
        )

    def cached(self) -> list[str]:
        return self.rng.choice(
            [
                [
                    "if self.cache is None:",
                    "    self.cache = torch.arange(x.shape[0])[:, None] * 0.1",
                    "y = y + self.cache[: x.shape[0]].sum()",
                ],
                [
                    "n = x.shape[0]",
                    "if n not in self.table:",
                    "    self.table[n] = torch.linspace(0, 1, n)[:, None]",
                    "y = y + self.table[n]",
                ],
                [
                    "if self.cache is None or len(self.cache) < len(x):",
                    "    self.cache = x.new_ones(len(x), 1)",
                    "y = y + self.cache[: len(x)]",
                ],
            ]
        )

    def attempt(self) -> list[str]:
        asked = self.rng.choice(
            ["bool(y.min() < 0)", "y.sum().item() > 1", "int(x.sum()) % 2 == 0", "x.numpy()[0, 0] > 0"]
        )
        caught = self.rng.choice(["RuntimeError", "Exception"])
        return [
            "try:",
            *_inner([f"if self.decide({asked}):", *_inner(["y = y + 3"])]),
            f"except {caught}:",
            *_inner(["y = y - 3"]),
        ]

    def unregistered(self) -> list[str]:
        return self.rng.choice(
            [
                ["y = y * self.scales[1]"],
                [f"if {self.on_state()}:", *_inner(["y = y * self.scales[0]"])],
                ["weights = torch.tensor([0.5, 2.0])", "y = y * weights[0] + weights[1]"],
                ["if self.scales[0].max() > 0.5:", *_inner(["y = y + self.scales[0]"])],
            ]
        )

    def left_torch(self) -> list[str]:
        return self.rng.choice(
            [
                ["y = y + torch.from_numpy(self.decide(x.detach().numpy().copy())).mean()"],
                ["y = y + torch.tensor(self.decide(x.tolist())).sum()"],
                ["y = y + sum(self.decide(x[0].tolist()))"],
                ["y = y + float(self.decide(np.asarray(x.detach()).max()))"],
            ]
        )


def _inner(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


_STATEMENTS: tuple[Callable[[Source], list[str]], ...] = (
    Source.branch,
    Source.branch,
    Source.expression,
    Source.loop_over_size,
    Source.loop_over_rows,
    Source.while_loop,
    Source.number,
    Source.derived,
    Source.derived,
    Source.cached,
    Source.attempt,
    Source.unregistered,
    Source.left_torch,
)


@dataclass
class Case:
    """A module, how it is exported, and the inputs with which the exported model runs."""

    module: ModuleType
    source: Source
    rows: int
    arguments: dict[str, Any]
    inputs: list[torch.Tensor] = field(default_factory=list)

    def model(self) -> torch.nn.Module:
        return self.module.Model().eval()

    def expected(self, x: torch.Tensor) -> tuple[list[np.ndarray] | None, list[Any]]:
        """Return what torch computes, None if it raises, and what the module decided by values."""
        model, decided = self.model(), []

        def decide(value: Any) -> Any:
            decided.append(value.tolist() if isinstance(value, np.ndarray) else value)
            return value

        model.decide = decide
        try:
            with torch.no_grad():
                result = model(x.clone())
        except Exception:
            return None, decided
        return [item.numpy() for item in (result if isinstance(result, tuple) else (result,))], decided


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield the ways to export one random module."""
    rng = random.Random(seed)
    source = Source(rng)
    path = folder / f"model_{seed}.py"
    path.write_text(source.text())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = rng.choice([0, 1, 2, 3, 4, 5, 6])
    dynamic = rng.random() < 0.7
    for capture in ("export", "auto"):
        shapes = (
            {"dynamic_shapes": ({0: rng.choice([torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO])},)} if dynamic else {}
        )
        yield Case(module, source, rows, {"capture": capture, **shapes}, _inputs(rng, rows, source.columns))
    guarded = {"capture": rng.choice(["trace", "auto"]), "guards": True}
    yield Case(module, source, rows, guarded, _inputs(rng, rows, source.columns))


def _inputs(rng: random.Random, rows: int, columns: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    sizes = [rows, rows, rows, rows, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    return [
        torch.randn(size, columns, generator=generator) * rng.choice([0.5, 1, 3]) + rng.choice([0, 0.5, -1])
        for size in sizes
    ]


def outcome(case: Case) -> tuple[str, str]:
    """Return what came of a case, in a word and in detail; ``"wrong"`` or ``"unclear"`` if it is a defect."""
    example, *others = case.inputs
    wanted, decided = case.expected(example)
    if wanted is None:
        return "the module fails", ""
    if any(np.isnan(item).any() for item in wanted):  # a mean of nothing, which ONNX Runtime takes for 0
        return "NaN", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            program = exporters.export(case.model(), (example.clone(),), verbose=False, **case.arguments)
        except exporters.errors.ExportError as error:
            place = f"{Path(case.module.__file__ or '').name}:"
            return ("refused", str(error)) if place in str(error) else ("unclear", f"names no line: {error}")
        except Exception as error:
            return "unclear", f"{type(error).__name__}: {str(error)[:600]}"
    told = any(issubclass(item.category, exporters.errors.CaptureWarning) for item in caught)
    listed = [item for item in program.decisions if item.depends_on == "inputs"]
    try:
        session = _session(program)
    except Exception as error:
        return "unclear", f"the model does not load: {type(error).__name__}: {str(error)[:600]}"
    problem = _compare(session, example, wanted)
    if problem:
        return "wrong", f"at the example: {problem}"
    refused = 0
    for x in others:
        wanted, now = case.expected(x)
        if wanted is None or any(np.isnan(item).any() for item in wanted):
            continue
        problem = _compare(session, x, wanted)
        if problem is None:
            continue
        if problem.startswith("raised"):
            refused += 1
            continue
        loose = [item for item in listed if not item.guarded and item.kind != "size"]
        if repr(now) != repr(decided) and loose and told:
            continue  # it was listed and warned of
        return "wrong", f"at {list(x.shape)}, example {list(example.shape)}: {problem}; {program.decisions}"
    return ("right where it runs" if refused else "right"), ""


def _session(program: Any) -> Any:
    import onnxruntime

    import pyops

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return pyops.InferenceSession(program, options)


def _compare(session: Any, x: torch.Tensor, wanted: list[np.ndarray]) -> str | None:
    feed = {item.name: x.numpy() for item in session.get_inputs()}
    try:
        found = session.run(None, feed)
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:200]}"
    for got, want in zip(found, wanted, strict=True):
        if np.shape(got) != want.shape or not np.allclose(got, want, 1e-3, 1e-4, equal_nan=True):
            return f"{np.asarray(got).tolist()} instead of {want.tolist()}"[:400]
    return None


def failures(seeds: range) -> tuple[list[str], Counter[str]]:
    """Return what is wrong with the exports of random modules, and how many had which outcome."""
    found, counts = [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for case in cases(seed, Path(folder)):
                torch._dynamo.reset()
                kind, detail = outcome(copy.copy(case))
                counts[f"{case.arguments['capture']}{' guarded' if case.arguments.get('guards') else ''}: {kind}"] += 1
                if kind in ("wrong", "unclear"):
                    found.append(f"{seed} {case.arguments}: {kind}: {detail}\n" + "\n".join(case.source.lines))
    return found, counts


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    problems, numbers = failures(range(first, first + count))
    print("\n\n".join(problems))
    print(*(f"{number:5} {kind}" for kind, number in sorted(numbers.items())), sep="\n")
