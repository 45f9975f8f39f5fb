"""Random kernels that raise, in sessions and in a built library, against the same functions in Python and NumPy.

A kernel is compared in its numbers, and in the type and text of what it raises. What NumPy itself raises has another
text in compiled code; there the library is compared with the session, and the session's type with NumPy's.
"""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import pyops
from pyops import onnx_op
from pyops.testing import Sample
from tests.pyops._machine.libraries.plain import plain_results

DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint64", "float32", "float64", "bool")
EXCEPTIONS = (
    *("ValueError", "TypeError", "KeyError", "IndexError", "RuntimeError", "ZeroDivisionError", "OverflowError"),
    *("OwnError", "SpokenError", "LookupError", "NotImplementedError", "ArithmeticError", "AssertionError"),
)
TEXTS = (
    "plain",
    "it's",
    'say "no"',
    "both ' and \"",
    "back\\slash",
    "two\nlines",
    "\u00e9t\u00e9",
    "\u221e \U0001f600",
    "",
    "%s {} %d",
)
HEAD = """
import numpy as np
from numpy.typing import NDArray

GLOBAL = (3, "of", 2.5)


class OwnError(Exception):
    pass


class SpokenError(ValueError):
    def __str__(self):
        return " / ".join(map(str, self.args))


def require(good, size, text):
    if not good:
        raise ValueError("required", size, text)
    return size
"""


@dataclass
class Kernel:
    """The source of a kernel, and the calls that it is compared in."""

    number: int
    rng: random.Random
    source: str = ""
    samples: list[tuple[Any, Any, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        self.dtypes = [rng.choice(DTYPES) for _ in range(2)]
        self.ranks = [rng.choice([0, 1, 1, 2, 2, 3]), rng.choice([1, 2])]
        self.text = rng.choice(TEXTS)
        lines = [
            f"def kernel_{self.number}(",
            f"    x: NDArray[np.{self.dtypes[0]}], y: NDArray[np.{self.dtypes[1]}], *,",
            f"    count: int = 2, scale: float = 0.3, text: str = {self.text!r}, flag: bool = False,",
            "    most: int | None = None,",
            f") -> NDArray[np.{self.dtypes[0]}]:",
        ]
        for _ in range(rng.choice([1, 1, 2, 2])):
            lines += self.statement()
        lines.append(f"    return {self.result()}")
        self.source = "\n".join(lines) + "\n"
        for _ in range(7):
            arrays = [self.array(dtype, rank) for dtype, rank in zip(self.dtypes, self.ranks, strict=True)]
            values = {
                "count": rng.randint(-3, 9),
                "scale": rng.choice([0.3, -2.5, 1e20, 1e-7]),
                "flag": rng.random() < 0.5,
            }
            if self.has_most:
                values["most"] = rng.randint(-5, 5)
            self.samples.append((*arrays, values))

    @property
    def has_most(self) -> bool:
        return self.number % 2 == 0

    def array(self, dtype: str, rank: int) -> Any:
        shape = tuple(self.rng.choice([0, 1, 2, 3, 4, 5]) for _ in range(rank))
        return (np.arange(int(np.prod(shape))) * 7 % 5).astype(dtype).reshape(shape)

    def size(self) -> str:
        """Return an expression of an integer that is known only at run time: numba drops what constants rule out."""
        rng = self.rng
        choices = ["x.size", "y.size", "len(y)", "count", f"y.shape[{rng.randrange(self.ranks[1])}]"]
        choices += [f"x.shape[{rng.randrange(self.ranks[0])}]"] * 3 if self.ranks[0] else []
        return rng.choice(choices)

    def condition(self) -> str:
        rng, size = self.rng, self.size()
        return rng.choice(
            [
                f"{size} % 2",
                f"{size} > {rng.randint(0, 5)}",
                f"{size} == {rng.choice([0, 0, 1, 2])}",
                f"not {size}",
                f"flag and {size} < 3",
                f"flag or x.size > {rng.randint(0, 9)}",
                f"{size} != {self.size()}",
                "scale < 0",
                f"y.shape == ({'2, ' * self.ranks[1]})",
            ]
        )

    def value(self, depth: int = 0) -> str:
        rng = self.rng
        choices = [
            *(
                self.size(),
                self.size(),
                "x.shape",
                "y.shape",
                "x.ndim",
                "text",
                "scale",
                "flag",
                "most",
                "x.dtype",
                "GLOBAL",
            ),
            *(
                "None",
                "True",
                str(rng.randint(-(10**12), 10**12)),
                repr(rng.choice(TEXTS)),
                repr(rng.uniform(-1e3, 1e20)),
            ),
            *("-np.inf", "np.nan", "1e-7", "(1, 2.5)", "()", "2**63 - 1"),
            *(
                f"{self.size()} > {self.size()}",
                f"-{self.size()}",
                f"{self.size()} / 7",
                f"float(y.size) * 1e{rng.randint(-12, 25)}",
            ),
            *(
                f"text * {self.size()}",
                f"text + {rng.choice(TEXTS)!r}",
                f"str({self.size()})",
                f"len(text) * {self.size()}",
            ),
            *(f"f'{{{self.size()}}} of {{text}}'", f"f'{{{self.size()}}}'", f"complex({self.size()}, -{self.size()})"),
        ]
        if depth < 2:
            inner = [self.value(depth + 1) for _ in range(rng.choice([1, 2, 3]))]
            choices += [f"({', '.join(inner)},)"] * 4
            choices += [f"[{self.size()}, {self.size()}]"] if not depth else []
        return rng.choice(choices)

    def raised(self) -> str:
        rng = self.rng
        values = ", ".join(self.value() for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 5])))
        return f"{rng.choice(EXCEPTIONS)}({values})" if values or rng.random() < 0.5 else rng.choice(EXCEPTIONS)

    def statement(self) -> list[str]:
        kind = self.rng.random()
        if kind < 0.15:
            return [f"    require({self.size()} < {self.rng.randint(1, 5)}, {self.size()}, text)"]
        if kind < 0.25:
            what = self.raised().replace("count", "i")
            return [f"    for i in range({self.size()}):", "        if i == 2:", f"            raise {what}"]
        lines = [f"    if {self.condition()}:", f"        raise {self.raised()}"]
        if kind < 0.35:
            lines += [
                "    else:",
                f"        require({self.condition().replace('not ', '0 == ')}, {self.size()}, 'else')",
            ]
        return lines

    def result(self) -> str:
        """Return an expression whose numbers are the same in NumPy and in compiled code."""
        flat = ["x.reshape((x.size,))", "x.ravel()", "x.flatten()", "x.reshape(-1)"]
        choices = [*flat, f"np.concatenate(({self.rng.choice(flat)}, x.ravel()))", "x.copy()", "np.zeros_like(x)"]
        if self.ranks[0]:
            choices += ["x.reshape((1, x.size, 1))", "x[::2].copy()", "np.ascontiguousarray(x.T).reshape((x.size, 1))"]
            choices += [
                "np.full(1, np.max(x))",
                "np.full(1, np.min(x))",
                "x.reshape(x.shape[::-1])",
                "x.reshape((*x.shape, 1))",
            ]
        return self.rng.choice(choices)


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Return an array, or what is raised."""
    try:
        return np.asarray(function(*args, **kwargs))
    except Exception as error:
        return error


def spelled(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def is_raised_by(path: Path, error: Exception) -> bool:
    """Return whether a statement of the file raises the exception itself, rather than NumPy."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return frame.filename == str(path) and "raise" in (frame.line or "")


def differs(given: Any, expected: Any) -> bool:
    if isinstance(given, Exception) or isinstance(expected, Exception):
        return True
    return (given.dtype, given.shape, given.tobytes()) != (expected.dtype, expected.shape, expected.tobytes())


def session_differs(path: Path, given: Any, wanted: Any) -> bool:
    if not (isinstance(wanted, Exception) and isinstance(given, Exception)):
        return differs(given, wanted)
    if is_raised_by(path, wanted):
        return spelled(given) != spelled(wanted)
    return type(given) is not type(wanted)


def library_differs(name: str, answer: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Exception):
        return isinstance(answer, str) or differs(answer[0], wanted)
    # The colon before a text that is empty at run time stays; before one that is known to be empty, there is none.
    told = [f"{name}: {spelled(wanted)} (", *[f"{name}: {type(wanted).__name__} ("] * (not str(wanted))]
    return not isinstance(answer, str) or not any(text in answer for text in told)


def failures(seed: int, count: int, folder: Path) -> tuple[list[str], int, int]:
    """Return what went wrong in a number of kernels that a seed gives, and how many calls returned and raised."""
    rng = random.Random(seed)
    kernels = [Kernel(number, random.Random(rng.random())) for number in range(count)]
    path = folder / f"raising_{seed}.py"
    path.write_text("\n\n".join([HEAD, *(kernel.source for kernel in kernels)]))
    module: dict[str, Any] = {"__name__": path.stem}
    exec(compile(path.read_text(), path, "exec"), module)
    found, samples, expected = [], [], []
    for kernel in kernels:
        plain = module[f"kernel_{kernel.number}"]
        op = onnx_op(f"stress{seed}::Kernel{kernel.number}", compile=True)(plain)
        for x, y, values in kernel.samples:
            sample = Sample(op, x, y, text=kernel.text, **values)
            wanted = outcome(plain, x, y, **op.signature.convert_attributes(sample.attributes))
            given = outcome(lambda sample: pyops.InferenceSession(sample.model()).run(None, sample.feed)[0], sample)
            where = f"{op.name} of {x.shape}, {y.shape}, {values}\n{kernel.source}"
            if session_differs(path, given, wanted):
                found.append(f"{where}: session {given!r}, Python {wanted!r}")
            samples.append(sample)
            expected.append((given, where))
    report = pyops.build(folder / "lib.so", examples=samples, cpu="native", skip_unsupported=True)
    answers = plain_results(folder / "lib.so", samples)
    found += report.refused
    for sample, answer, (given, where) in zip(samples, answers, expected, strict=True):
        if library_differs(sample.op.signature.qualified_name, answer, given):
            found.append(f"{where}: library {answer!r}, session {given!r}")
    raised = sum(isinstance(given, Exception) for given, _ in expected)
    return found, len(samples) - raised, raised
