"""Random programs of torch's operators: values with names, each computed by a call that torch accepts."""

from __future__ import annotations

import linecache
import math
import random
import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import CodeType
from typing import Any

import numpy as np
import onnxruntime
import torch

import exporters
import pyops
from exporters._torch.tensors import as_onnx_array
from tests.stress.torch_calls import FLOATS, GROUPS, INTEGERS, KINDS, NUMBERS

NAMES: dict[str, Any] = {
    "torch": torch,
    "F": torch.nn.functional,
    "math": math,
    "I": torch.tensor([1, 0]),
    "NO_INDEX": torch.zeros(0, dtype=torch.int64),
    "NO_ROWS": torch.zeros(0, 3, dtype=torch.int64),
}
Tensors = dict[str, torch.Tensor]
FILE = "generated_program.py"


@dataclass(frozen=True)
class Step:
    """A call whose value has a name."""

    name: str
    text: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        statements = self.text if self.text.startswith("out = ") else f"out = {self.text}"
        return re.sub(r"\bout\b", self.name, statements)

    def apply(self, values: Tensors) -> Any:
        names = {**NAMES, **{name: values[name] for name in self.operands}}
        exec(compiled(str(self)), names)
        return names[self.name]

    def kind(self, values: Tensors) -> str:
        """Return the call with types in place of names, and without its numbers."""
        kinds = {name: f"{values[name].dtype}{'' if values[name].ndim else '()'}" for name in self.operands}
        return re.sub(r"\b[xv]\d+\b|\b\d[\d.]*(?:e-?\d+)?\b", lambda match: kinds.get(match[0], "#"), self.text)


@cache
def compiled(text: str) -> CodeType:
    return compile(text, "<call>", "exec", dont_inherit=True)


@dataclass
class Program:
    """Calls, and values for each input: those of the example, others of its sizes, and others of other sizes."""

    steps: list[Step]
    samples: list[Tensors]
    dynamic: bool
    whole: bool = False
    results: list[str] = field(default_factory=list)
    exported: exporters.Program | None = None

    def __str__(self) -> str:
        lines = [f"def forward(self, {', '.join(self.samples[0])}):"]
        lines += [f"    {step}" for step in self.steps]
        shown = [f"torch.view_as_real({name})" if self.is_complex(name) else name for name in self.results]
        return "\n".join([*lines, f"    return {', '.join(shown)},"])

    def is_complex(self, name: str) -> bool:
        return self.known[0][name].is_complex()

    @cached_property
    def known(self) -> list[Tensors]:
        """The values of all names, for each sample."""
        return [self.computed(sample) for sample in self.samples]

    def computed(self, given: Tensors) -> Tensors:
        values = {name: value.clone() for name, value in given.items()}
        for step in self.steps:
            values[step.name] = step.apply(values)
        return values

    def failing(self) -> str | None:
        """Return the first name that torch cannot compute; calls that write may change what later ones can do."""
        for sample in self.samples:
            values = {name: value.clone() for name, value in sample.items()}
            for step in self.steps:
                try:
                    values[step.name] = step.apply(values)
                except Exception:  # torch raises errors of many kinds
                    return step.name
        return None

    def session(self) -> Any:
        names = dict(NAMES)
        linecache.cache[FILE] = (len(str(self)), None, str(self).splitlines(keepends=True), FILE)
        exec(compile(str(self), FILE, "exec", dont_inherit=True), names)
        model = type("Generated", (torch.nn.Module,), {"forward": names["forward"]})()
        arguments: dict[str, Any] = {"verbose": False}
        if self.dynamic:
            arguments["dynamic_shapes"] = {name: self._dynamic(name) for name in self.samples[0]}
        example = tuple(value.clone() for value in self.samples[0].values())
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.exported = None
        self.exported = exporters.export(model.eval(), example, **arguments)
        return pyops.InferenceSession(self.exported, options)

    def _dynamic(self, name: str) -> dict[int, Any]:
        shapes = zip(*(sample[name].shape for sample in self.samples), strict=True)
        return {dim: torch.export.Dim.AUTO for dim, sizes in enumerate(shapes) if len(set(sizes)) > 1}

    def run(self, session: Any, sample: Tensors) -> Tensors:
        # By position, because torch renames the inputs that a program returns unchanged.
        feeds = {item.name: as_onnx_array(x) for item, x in zip(session.get_inputs(), sample.values(), strict=True)}
        found = dict(zip(self.results, map(torch.from_numpy, map(np.array, session.run(None, feeds))), strict=True))
        return {n: torch.complex(*v.unbind(-1)) if self.is_complex(n) else v for n, v in found.items()}


class Generator:
    """Makes a random program of calls that torch computes for every sample."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.dynamic = self.rng.random() < 0.6
        sizes = [{"n": 4, "m": 3}] * 3 + ([{"n": 7, "m": 3}, {"n": 3, "m": 5}] if self.dynamic else [])
        shapes = [("n", "m"), ("n", "m"), ("n",), ("m",), ("n", 1), (2, "n"), (), (0, 3), ("m", "m"), (2, "n", "m")]
        kinds = [self.rng.choice(shapes) for _ in range(6)]
        dtypes = [*self.rng.sample(FLOATS[:2] * 2 + FLOATS, 3), *self.rng.sample(INTEGERS, 2), torch.bool]
        self.samples: list[Tensors] = [
            {
                f"x{index}": self.values(dtype, [of.get(dim, dim) if isinstance(dim, str) else dim for dim in shape])
                for index, (dtype, shape) in enumerate(zip(dtypes, kinds, strict=True))
            }
            for of in sizes
        ]
        self.known: list[Tensors] = [dict(sample) for sample in self.samples]
        self.steps: list[Step] = []

    def values(self, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.noise) > 0.4
        x = torch.randn(shape, generator=self.noise, dtype=torch.float64) * self.rng.choice([1, 1, 3, 20])
        extremes = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e-30, 0.5, 1.5, 2.5]
        if not dtype.is_floating_point:
            x, limits = x.clamp(0 if dtype == torch.uint8 else -100, 120).round(), torch.iinfo(dtype)
            extremes = [limits.min, limits.max, 0, 1, 2**24 + 1, 2**53 + 1, -(2**31)]
        result = x.to(dtype)
        if self.rng.random() < 0.4:
            where = torch.rand(shape, generator=self.noise) < 0.3
            possible = [number for number in extremes if dtype.is_floating_point or limits.min <= number <= limits.max]
            chosen = [self.rng.choice(possible) for _ in range(result.numel())]
            result = torch.where(where, torch.tensor(chosen, dtype=dtype).reshape(shape), result)
        return result

    def program(self) -> Program:
        for _ in range(self.rng.randint(20, 40)):
            while not self.step():
                pass
        whole = self.rng.random() < 0.25
        used = {name for step in self.steps for name in step.operands}
        named = [step.name for step in self.steps]
        results = [name for name in named if not whole or name not in used]
        return Program(self.steps, self.samples, self.dynamic, whole, results)

    def step(self) -> bool:
        """Add a call, unless torch refuses it for some sample."""
        template = self.rng.choice(self.rng.choice(GROUPS))
        found: dict[str, str] = {}
        for letter in re.findall(r"\{(\w+)\}", template):
            if letter in found:
                continue
            is_other = letter[0] in KINDS and letter[0] in found and letter not in KINDS
            same = is_other and self.rng.random() < 0.25  # the same tensor twice
            text = found[letter[0]] if same else self.operand(letter[0], found)
            if text is None:
                return False
            found[letter] = text
        text = re.sub(r"\{(\w+)\}", lambda match: found[match[1]], template)
        step = Step(f"v{len(self.steps)}", text, tuple(dict.fromkeys(re.findall(r"\b[xv]\d+\b", text))))
        try:
            results = [step.apply(values) for values in self.known]
        except Exception:
            return False
        if not all(map(is_usable, results)) or any(
            len({getattr(r, key) for r in results}) > 1 for key in ("dtype", "ndim")
        ):
            return False
        if any(is_undefined(step, values, result) for values, result in zip(self.known, results, strict=True)):
            return False
        self.steps.append(step)
        for values, result in zip(self.known, results, strict=True):
            values[step.name] = result.clone()
        return True

    def operand(self, letter: str, found: dict[str, str]) -> str | None:
        if letter == "N":
            letter = self.rng.choice("KR")
        if letter in NUMBERS:
            return self.rng.choice(NUMBERS[letter])
        if letter == "S":
            of = self.operand("a", found)
            return None if of is None else f"{of}.shape[{self.rng.choice(['0', '-1'])}]"
        names = [name for name, value in self.known[0].items() if value.dtype in KINDS[letter]]
        if not names:
            return None
        return self.rng.choice(names if self.rng.random() < 0.5 else names[:4])


def is_usable(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.numel() <= 600 and result.ndim <= 4


def is_undefined(step: Step, values: Tensors, result: torch.Tensor) -> bool:
    """Return whether C leaves open what a call gives: a number beyond the type that it is cast to, or NaN, a median."""
    operands = [values[name] for name in step.operands]
    if ".median()" in step.text and not operands[0].numel():
        return not result.is_floating_point()
    if result.dtype not in INTEGERS and result.dtype != torch.bool:
        return False
    casts = re.search(r"\.(to|int|byte|long|type_as|copy_)\(|out\[", step.text) is not None
    limits = torch.iinfo(result.dtype) if result.dtype in INTEGERS else torch.iinfo(torch.int64)
    floats = [item.double() for item in operands if item.is_floating_point()]
    return casts and any(
        bool((~item.isfinite() | (item.trunc() < limits.min) | (item >= float(limits.max))).any()) for item in floats
    )
