"""Random programs of torch's operators, and their exported models against torch, call by call.

``python -m tests.stress.torch_programs SEED COUNT`` prints what is wrong, shrunk, and the counts of each outcome. What
was wrong or refused once is shown once: a call that was refused is then left out of the programs that follow. An
exported model returns the value of every call, so that each call is compared with torch's on the values that ONNX
Runtime itself gave for its arguments: integers and booleans exactly, NaN and infinities at the same places, and other
numbers within ten times the difference between torch and the same call in float64. Every fourth program returns only
the values that no call takes, and is compared as a whole.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace

import torch

import pyops
from tests.stress.torch_generator import FILE, Generator, Program, Step, Tensors
from tests.stress.torch_oracle import difference, is_wrong, problem, size


@dataclass
class Outcome:
    """What came of a program: a word for it, and the call that is wrong, or the index of the one that is refused."""

    kind: str
    step: Step | None = None
    detail: str = ""
    sample: int = 0
    values: Tensors = field(default_factory=dict)
    line: int | None = None
    stops: bool = False


def outcomes(program: Program) -> list[Outcome]:
    """Return what is wrong with the exported model, by call; or that it is refused."""
    try:
        session = program.session()
    except Exception as error:
        kind = "refused" if isinstance(error, pyops.errors.PyopsError) else "unclear"
        return [Outcome(kind, detail=explained(error), line=line(program, error), stops=True)]
    found: dict[str, Outcome] = {}
    for index, sample in enumerate(program.samples):
        try:
            values = program.run(session, sample)
        except Exception as error:
            if same_sizes(sample, program.samples[0]):
                place = line(program, error)
                return [Outcome("does not run", detail=explained(error), sample=index, line=place, stops=True)]
            found.setdefault("", Outcome("refused at other sizes", detail=explained(error), sample=index))
            continue
        if program.whole:
            found |= {} if found else compared_whole(program, index, values)
            continue
        values = {**sample, **values}
        for step in (step for step in program.steps if step.name in values):
            detail = problem(step, values, values[step.name]) if step.name not in found else None
            if detail is not None and is_wrong(program, step, values, detail):
                found[step.name] = Outcome("wrong", step, detail, index, values)
    return list(found.values())


def line(program: Program, error: BaseException) -> int | None:
    """Return the index of the call that an error names, by its line or by a node."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    found = re.search(rf'{FILE}(?::|", line )(\d+)', "\n".join(texts))
    node = re.search(r"(?:node \(|name '|name:')([^')]+)", str(error), re.IGNORECASE)
    if not found and node and program.exported:
        nodes = (item for item in program.exported.model_proto.graph.node if item.name == node[1])
        traces = "".join(entry.value for item in nodes for entry in item.metadata_props)
        found = re.search(rf'{FILE}", line (\d+)', traces)
    place = int(found[1]) - 2 if found else -1
    return place if 0 <= place < len(program.steps) else None


def explained(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500].replace("\n", " ")


def same_sizes(sample: Tensors, other: Tensors) -> bool:
    return all(sample[name].shape == other[name].shape for name in sample)


def compared_whole(program: Program, index: int, values: Tensors) -> dict[str, Outcome]:
    """Compare the results of a program that does not return every value."""
    sample = program.samples[index]
    wanted = program.known[index]
    try:
        exact = program.computed({n: v.double() if v.is_floating_point() else v for n, v in sample.items()})
    except Exception:  # torch refuses some mixes of types
        exact = wanted
    for name, found in values.items():
        ancestors = {name}
        for step in reversed(program.steps):
            ancestors |= set(step.operands) if step.name in ancestors else set()
        exactly = not any(wanted[item].is_floating_point() or wanted[item].is_complex() for item in ancestors)
        detail = difference(found, wanted[name], exact[name], [size(wanted[item]) for item in ancestors], 2**12)
        if detail is not None and (exactly or "instead of torch." in detail):
            step = next(step for step in program.steps if step.name == name)
            return {name: Outcome("wrong", step, detail, index)}
    return {}


def shrunk(program: Program, outcome: Outcome) -> str:
    """Return the fewest lines that show what is wrong."""
    if outcome.step is None:
        return outcome.detail
    for candidate in (part(program, [outcome.step], outcome), part(program, closure(program.steps, outcome.step.name))):
        for now in outcomes(candidate):
            if now.kind == outcome.kind:
                given = ", ".join(f"{name}: {spelled(value)}" for name, value in candidate.samples[now.sample].items())
                sizes = " with dynamic sizes" if candidate.dynamic else ""
                lines = "\n    ".join(map(str, candidate.steps))
                return f"\n    {lines}  # {given}{sizes}\n    {now.detail}"
    return f"\n    {outcome.step} in the whole program\n{program}\n    sample {outcome.sample}: {outcome.detail}"


def spelled(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {value.flatten()[:6].tolist()}"


def first_failing(program: Program, steps: list[Step]) -> int:
    """Return how many of the first calls suffice to fail."""
    low, high = 0, len(steps)
    while high - low > 1:
        middle = (low + high) // 2
        first = steps[:middle]
        fails = any(item.stops for item in outcomes(replace(program, steps=first, results=[s.name for s in first])))
        low, high = (low, middle) if fails else (middle, high)
    return high


def closure(steps: list[Step], name: str) -> list[Step]:
    needed = {name}
    kept: list[Step] = []
    for step in reversed(steps):
        if step.name in needed:
            needed |= set(step.operands)
            kept.insert(0, step)
    return kept


def part(program: Program, steps: list[Step], outcome: Outcome | None = None) -> Program:
    """Return a program of some of the calls; what other calls compute is given to it."""
    made = {step.name for step in steps}
    needed = [name for name in dict.fromkeys(name for step in steps for name in step.operands) if name not in made]
    computed = list(program.known)
    if outcome is not None and outcome.values:
        computed[outcome.sample] = {**computed[outcome.sample], **outcome.values}
    samples = [{name: values[name].resolve_conj().contiguous() for name in needed} for values in computed]
    return replace(program, steps=steps, samples=samples, whole=False, results=[step.name for step in steps])


class Findings:
    """What was found wrong or refused: a text for each, and how many calls had which outcome."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.counts = Counter[str]()
        self.refused: set[str] = set()
        self.shown: set[str] = set()

    def add(self, seed: int) -> None:
        """Check a program; a call that is refused is left out of it, and of the ones that follow."""
        program = Generator(seed).program()
        self.counts += Counter(programs=1, calls=len(program.steps))
        program = self.without(program, set())
        refused = {step.name for step in program.steps if step.kind(program.known[0]) in self.refused}
        program = self.without(program, refused)
        while program.steps:
            found = outcomes(program)
            stopped = next((item for item in found if item.stops), None)
            if stopped is None:
                for item in found:
                    self.show(seed, program, item)
                self.counts["calls compared"] += 0 if program.whole else len(program.steps)
                return
            index = stopped.line if stopped.line is not None else first_failing(program, program.steps) - 1
            step = program.steps[index]
            self.show(seed, program, replace(stopped, step=step))
            self.refused.add(step.kind(program.known[0]))
            program = self.without(program, {step.name})

    def show(self, seed: int, program: Program, outcome: Outcome) -> None:
        """Count an outcome, and shrink it unless the like has been shown."""
        self.counts[outcome.kind] += 1
        message = re.sub(r"'[^']*'|\([^)]*\)|[\d.]+", "", outcome.detail)
        kind = message if outcome.kind != "wrong" else outcome.step.kind(program.known[0]) if outcome.step else ""
        known = f"{outcome.kind}: {kind}" in self.shown
        self.shown.add(f"{outcome.kind}: {kind}")
        text = f"{outcome.step or outcome.detail[:80]}  # as before" if known else shrunk(program, outcome)
        self.texts.append(f"{outcome.kind}, seed {seed}: {text}")

    def without(self, program: Program, names: set[str]) -> Program:
        """Return the program without calls, and without those that need them."""
        lost = set(names)
        for step in program.steps:
            lost |= {step.name} if lost & set(step.operands) else set()
        self.counts += Counter({"calls left out": len(lost)})
        steps = [step for step in program.steps if step.name not in lost]
        results = [name for name in program.results if name not in lost] or [item.name for item in steps[-1:]]
        left = replace(program, steps=steps, results=results)
        failing = left.failing()
        return left if failing is None else self.without(left, {failing})


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    findings = Findings()
    for seed in range(first, first + count):
        findings.add(seed)
        print(*findings.texts, sep="\n", end="\n" if findings.texts else "", flush=True)
        findings.texts.clear()
    print(", ".join(f"{number} {kind}" for kind, number in sorted(findings.counts.items())))


if __name__ == "__main__":
    main()
