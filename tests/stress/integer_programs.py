"""Random integer programs, and their exported models against torch, which computes them without exporting.

ONNX Runtime computes in a process of its own, which an integer division may end.
"""

from __future__ import annotations

import io
import math
import operator
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import exporters

DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)  # torch divides no other integers


def truncated(x: Any, y: Any) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="trunc")


def floored(x: Any, y: Any) -> torch.Tensor:
    return torch.div(x, y, rounding_mode="floor")


DIVISIONS = (truncated, floored, torch.floor_divide, operator.floordiv, operator.mod, torch.remainder, torch.fmod)
SHIFTS = (operator.lshift, operator.rshift, torch.bitwise_left_shift, torch.bitwise_right_shift)
LINKS = (torch.add, torch.sub, torch.mul)
NUMBER_FIRST = (operator.floordiv, operator.mod, operator.lshift, operator.rshift, torch.remainder)
SHAPES = (
    ((6,), (6,)),
    ((2, 3), (3,)),
    ((4,), (3, 1)),
    ((), (5,)),
    ((5,), ()),
    ((), ()),
    ((0,), (0,)),
    ((3, 0), (1, 1)),
)

RUNNER = """
import pickle, sys
import numpy, onnxruntime
onnxruntime.set_default_logger_severity(4)
source, sink = sys.stdin.buffer, sys.stdout.buffer
while True:
    try:
        model, feeds = pickle.load(source)
    except EOFError:
        break
    try:
        session = onnxruntime.InferenceSession(model)
        names = [item.name for item in session.get_inputs()]
    except Exception as error:
        pickle.dump("not loaded: " + str(error), sink)
        sink.flush()
        continue
    answers = []
    for arrays in feeds:
        try:
            answer = session.run(None, {name: arrays[name] for name in names})[0]
        except Exception as error:
            answer = "raised: " + str(error)
        answers.append(answer)
    pickle.dump(answers, sink)
    sink.flush()
"""


@dataclass
class Step:
    """A call on what was computed so far and on an input, a tensor that the model holds, or a number."""

    function: Callable[..., Any]
    operand: str | int
    number_first: bool

    def __str__(self) -> str:
        left, right = ("...", self.operand)[:: -1 if self.number_first else 1]
        return f"{self.function.__name__}({left}, {right})"

    def apply(self, value: Any, tensors: dict[str, torch.Tensor], guarded: bool) -> Any:
        other: Any = tensors[self.operand] if isinstance(self.operand, str) else self.operand
        left, right = (other, value) if self.number_first else (value, other)
        if guarded and self.function is truncated:
            right = without_trap(left, right)
        return self.function(left, right)


def without_trap(x: Any, y: Any) -> Any:
    """Return the divisors with 1 for -1 of the smallest integer, whose truncated quotient ends torch's process too."""
    dtype = torch.result_type(x, y)
    if dtype == torch.uint8:
        return y
    x, y = torch.as_tensor(x).to(dtype), torch.as_tensor(y).to(dtype)
    return torch.where((x == torch.iinfo(dtype).min) & (y == -1), torch.ones((), dtype=dtype), y)


class Program(torch.nn.Module):
    """One to three steps, the first of which is a division or a shift."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.dtypes = {"x": rng.choice(DTYPES), "y": rng.choice(DTYPES)}
        if rng.random() < 0.6:
            self.dtypes["y"] = self.dtypes["x"]
        self.shapes = dict(zip("xy", rng.choice(SHAPES), strict=True))
        self.held = rng.random() < 0.15  # y is a tensor of the model
        self.dynamo, self.dynamic = rng.random() < 0.7, rng.random() < 0.4
        self.optimize = rng.random() < 0.8
        if self.held:
            self.register_buffer("y", self.draw("y", rng, zeros=rng.random() < 0.2))
        self.steps = [self.step(rng, DIVISIONS + SHIFTS)]
        # The TorchScript exporter promotes the operands of other calls otherwise than torch.
        while rng.random() < 0.4 and (self.dynamo or self.dtypes["x"] == self.dtypes["y"]):
            self.steps.append(self.step(rng, rng.choice([LINKS, DIVISIONS, SHIFTS])))

    def step(self, rng: random.Random, functions: Any) -> Step:
        function, operand = rng.choice(functions), "y"
        if function in LINKS or rng.random() < 0.6:
            return Step(function, operand, False)
        bits = torch.iinfo(self.dtypes["x"]).bits
        number = rng.choice([-1, -1, 1, 2, 3, -3, 7, 100, -128, 0] if function in DIVISIONS else [0, 1, bits - 1, bits])
        lowest = torch.iinfo(self.dtypes["x"]).min
        number_first = function in NUMBER_FIRST and rng.random() < 0.4
        if number_first and rng.random() < 0.3:
            number = lowest
        return Step(function, max(number, lowest), number_first)

    def draw(self, name: str, rng: random.Random, *, zeros: bool, size: int | None = None) -> torch.Tensor:
        info = torch.iinfo(self.dtypes[name])
        edges = [info.min, info.min, info.min + 1, info.max, 0, 1, 2, 7, info.bits - 1, info.bits, info.bits + 1]
        edges += [-1, -1, -1, -2, -info.bits] if info.min else []
        shape = self.shapes[name] if size is None else (size,)
        numbers = [
            rng.choice(edges) if rng.random() < 0.7 else rng.randint(info.min, info.max)
            for _ in range(math.prod(shape))
        ]
        if not zeros:
            numbers = [number or 5 for number in numbers]
        return torch.tensor(numbers, dtype=self.dtypes[name]).reshape(shape)

    def inputs(self, rng: random.Random) -> dict[str, torch.Tensor]:
        size = rng.choice([0, 1, 5]) if self.is_dynamic() else None
        drawn = {name: self.draw(name, rng, zeros=name == "x" or rng.random() < 0.15, size=size) for name in "xy"}
        return {"x": drawn["x"]} if self.held else drawn

    def is_dynamic(self) -> bool:
        return self.dynamic and not self.held and self.shapes == {"x": (6,), "y": (6,)}

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, guarded: bool = False) -> torch.Tensor:
        tensors = {"x": x, "y": self.y if y is None else y}
        value: Any = x
        for step in self.steps:
            value = step.apply(value, tensors, guarded)
        return value

    def __str__(self) -> str:
        kinds = ", ".join(f"{name}: {self.dtypes[name]}{list(self.shapes[name])}" for name in "xy")
        how = "".join(
            word
            for word, given in [
                (" held", self.held),
                (" dynamo", self.dynamo),
                (" dynamic", self.is_dynamic()),
                (" optimized", self.optimize),
            ]
            if given
        )
        return f"{' then '.join(map(str, self.steps))} of {kinds}{how}"

    def example(self) -> dict[str, torch.Tensor]:
        return {name: torch.ones(self.shapes[name], dtype=self.dtypes[name]) for name in ("x" if self.held else "xy")}

    def exported(self) -> bytes:
        example = self.example()
        arguments: dict[str, Any] = {"dynamo": self.dynamo, "optimize": self.optimize}
        if self.is_dynamic() and self.dynamo:
            arguments["dynamic_shapes"] = {name: {0: torch.export.Dim("n")} for name in example}
        if not self.dynamo:
            arguments["input_names"] = list(example)
            if self.is_dynamic():
                arguments["dynamic_axes"] = {name: {0: "n"} for name in example}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = exporters.export(self.eval(), tuple(example.values()), **arguments)
        return program.model_proto.SerializeToString()


def expected(program: Program, inputs: dict[str, torch.Tensor]) -> np.ndarray | str:
    try:
        return program(**inputs, guarded=True).numpy()
    except RuntimeError as error:
        return f"raised: {error}"


def is_right(answer: np.ndarray | str, wanted: np.ndarray | str) -> bool:
    if isinstance(answer, str) and "by zero" in answer:
        # ONNX Runtime also refuses a divisor of 0 that divides nothing.
        return isinstance(wanted, str) or not wanted.size
    if isinstance(answer, str) or isinstance(wanted, str):
        return False
    return answer.dtype == wanted.dtype and np.array_equal(answer, wanted)


def ran(interpreter: str, cases: list[tuple[bytes, list[Any]]]) -> Iterator[Any]:
    """Yield each model's answers, or the signal that ended the process."""
    while cases:
        given = b"".join(pickle.dumps(case) for case in cases)
        done = subprocess.run([interpreter, "-c", RUNNER], input=given, capture_output=True)
        answers, stream = [], io.BytesIO(done.stdout)
        while stream.tell() < len(done.stdout):
            answers.append(pickle.load(stream))
        yield from answers
        if done.returncode:
            assert done.returncode < 0, done.stderr.decode()
            yield f"killed by signal {-done.returncode}"
            answers.append(None)
        cases = cases[len(answers) :]


def failures(seed: int, count: int, interpreter: str = sys.executable) -> list[str]:
    """Return what went wrong in a number of programs that a seed gives."""
    rng = random.Random(seed)
    found, programs, cases = [], [], []
    for index in range(count):
        program = Program(random.Random(rng.random()))
        samples = [program.inputs(rng) for _ in range(8)]
        if isinstance(expected(program, program.example()), str):
            continue  # a constant 0 divides
        try:
            model = program.exported()
        except Exception as error:
            found.append(f"{seed}/{index} {program}: not exported: {type(error).__name__} {str(error)[:200]}")
            continue
        programs.append((index, program, samples))
        cases.append((model, [{name: item.numpy() for name, item in sample.items()} for sample in samples]))
    for (index, program, samples), answers in zip(programs, ran(interpreter, cases), strict=True):
        wanted = [expected(program, sample) for sample in samples]
        if isinstance(answers, str) and answers.startswith("not loaded"):
            answers = [answers] * len(samples)
        if isinstance(answers, str):
            found.append(f"{seed}/{index} {program}: {answers}")
            continue
        for sample, answer, want in zip(samples, answers, wanted, strict=True):
            if not is_right(answer, want):
                given = {name: item.tolist() for name, item in sample.items()}
                found.append(f"{seed}/{index} {program}: {given} gives {answer}, torch {want}")
                break
    return found
