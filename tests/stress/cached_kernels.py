"""Random kernels of which one thing changes: the machine code on disk is that of the kernel as it is now.

A kernel is a sum of terms, each of which depends on something else: a constant, a closure, an overload of numba's.
The oracle is the same source with an empty cache.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from tests.helpers.forks import ForkServer

HEAD = """
import enum, functools, math, operator, typing
from collections import namedtuple
import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numpy.typing import NDArray
from pyops import onnx_op
F = NDArray[np.float64]
def add(x): return x + 1
def scale(x): return x * 10
def twice(f):
    return lambda x: f(f(x))
def once(f):
    @functools.wraps(f)
    def called(x): return f(x) + 0.5
    return called
def maker(c):
    def made(x): return x + c
    return made
one, two = maker(1), maker(2)
"""

# Compiling once, before the forks, loads what every compilation needs.
START = f"""{HEAD}
def warm(x: F) -> F: return x * 1.5 + add(x)
onnx_op("stress::Warm", compile=True)(warm)(np.ones(1))
"""
RUN = """
import logging, sys, warnings
sys.dont_write_bytecode = True
warnings.simplefilter("ignore")
sys.path.insert(0, FOLDER)
logging.getLogger("pyops").addHandler(logging.StreamHandler())
logging.getLogger("pyops").setLevel("INFO")
import numpy as np
import kernel_of_test
for values in ([4.5], [2.0, -3.0]):
    try:
        print(kernel_of_test.op(np.array(values)).tolist())
    except Exception as error:
        text = str(error) if type(error).__name__ != "CompileError" else str(error).splitlines()[:4]
        print(type(error).__name__, text)
"""


@dataclass(frozen=True)
class Facet:
    """What a term of a kernel depends on; ``$n`` makes its names unique, and ``$v`` is what changes."""

    definitions: str
    term: str
    choices: tuple[str, ...]
    cached: bool = True
    """Whether such kernels are cached on disk."""
    module: str = ""


NUMBERS = ("1", "2", "2.5", "True", "-3")
FACETS = {
    "body": Facet("", "x * $v", NUMBERS),
    "nested function": Facet("", "inner$n(x)", NUMBERS, module="inner"),
    "global number": Facet("G$n = $v", "x + G$n", NUMBERS),
    "type of a global": Facet("G$n = $v", "np.full(1, 7 / 2 // G$n + G$n / 2)", ("1", "1.0", "np.float32(1.1)", "1.1")),
    "numpy scalar": Facet("G$n = np.$v(7.3)", "x / G$n", ("float32", "float64", "int8", "int64")),
    "zero": Facet("G$n = $v", "np.copysign(1.0, G$n) + x", ("0.0", "-0.0")),
    "global text": Facet('G$n = "$v"', 'x * (3 if G$n == "a" else 4)', ("a", "b")),
    "global function": Facet("f$n = $v", "f$n(x)", ("add", "scale", "one")),
    "function seen already": Facet("f$n = $v", "add(x) + 10 * scale(x) + f$n(x)", ("add", "scale")),
    "closure": Facet("f$n = maker($v)", "f$n(x)", NUMBERS),
    "closure seen already": Facet("f$n = $v", "one(x) + 10 * two(x) + f$n(x)", ("one", "two")),
    "closure of a function": Facet("f$n = twice($v)", "add(x) + 10 * scale(x) + f$n(x)", ("add", "scale")),
    "lambda": Facet("f$n = lambda x: x * $v", "f$n(x)", NUMBERS),
    "default": Facet("def f$n(x, c=$v): return x * c", "f$n(x)", NUMBERS),
    "two levels deep": Facet("def a$n(x): return x - $v\ndef b$n(x): return a$n(x) * 2", "b$n(x)", NUMBERS),
    "global two levels deep": Facet(
        "G$n = $v\ndef a$n(x): return x - G$n\ndef b$n(x): return a$n(x) * 2", "b$n(x)", NUMBERS
    ),
    "decorator": Facet("@$v\ndef f$n(x): return x * 3", "f$n(x)", ("once", "twice", "numba.njit")),
    "tuple": Facet("G$n = (1, ($v, 2.5))", "x * G$n[1][0]", NUMBERS),
    "array": Facet("G$n = np.array([1, $v])", "x * G$n[1]", NUMBERS),
    "dtype of an array": Facet('G$n = np.array([7.3], "$v")', "x / G$n[0]", ("f4", "f8", "i4")),
    "shape of an array": Facet("G$n = np.arange(6.0).reshape($v)", "x + len(G$n)", ("2, 3", "3, 2")),
    "strides of an array": Facet(
        'G$n = np.array([[1, 2], [3, 4]], order="$v")', "x + G$n.strides[0] + G$n[0, 1]", ("C", "F")
    ),
    "dtype": Facet("G$n = np.$v", "np.zeros(1, G$n) + x.astype(G$n)", ("float32", "float64", "int16")),
    "numba type": Facet("G$n = types.$v", "np.float64(G$n(x[0] * 1.1)) + x", ("float32", "float64", "int16")),
    "NumPy function": Facet("f$n = np.$v", "f$n(x)", ("sin", "cos", "exp", "abs")),
    "imported function": Facet("from math import $v as f$n", "f$n(x[0]) + x", ("sin", "cos", "exp")),
    "operator": Facet("f$n = operator.$v", "f$n(x, 2.0)", ("add", "mul", "sub")),
    "module": Facet("import $v as m$n", "m$n.sqrt(x[0] ** 2) + x", ("math", "numpy")),
    "helper module": Facet("from helper$n import f as f$n", "f$n(x)", NUMBERS, module="def f(x): return x * $v"),
    "attribute of a module": Facet("import helper$n", "x * helper$n.G", NUMBERS, False, module="G = $v"),
    "enum": Facet("class E$n(enum.IntEnum):\n    A = $v", "x * E$n.A.value", ("1", "2", "3")),
    "enum member": Facet(
        "class E$n(enum.Enum):\n    A = 2\n    B = 3\nG$n = E$n.$v", "x * (1 if G$n is E$n.A else 5)", ("A", "B")
    ),
    "order of fields": Facet("N$n = namedtuple('N', '$v')\nG$n = N$n(2, 3)", "x * G$n.a", ("a b", "b a")),
    "class with fields": Facet("N$n = namedtuple('N', '$v')", "x * N$n(4, 5).a", ("a b", "b a")),
    "text of an error": Facet(
        "def f$n(x):\n    if x[0] > 4:\n        raise ValueError('$v')\n    return x", "f$n(x)", ("one", "two", "three")
    ),
    "text of an assertion": Facet("def f$n(x):\n    assert x[0] < 4, '$v'\n    return x", "f$n(x)", ("one", "two")),
    "set": Facet("def f$n(x): return x * (1 if int(x[0]) in ($v,) else 2)", "f$n(x)", ("4", "3", "2")),
    "handler": Facet(
        "def f$n(x):\n    y = x * 2\n    try:\n        if x[0] > 4:\n            raise ValueError\n        y = x * 3\n"
        "    except Exception:\n        y = x * $v\n    return y",
        "f$n(x)",
        NUMBERS,
    ),
    "njit": Facet("@numba.njit\ndef f$n(x): return x * $v", "f$n(x)", NUMBERS),
    "signature of njit": Facet(
        "@numba.njit('$v')\ndef f$n(a): return a",
        "f$n(x[0]) / 2.0 + x",
        ("float64(float64)", "int64(int64)", "float32(float64)", "int8(int64)"),
    ),
    "order of signatures": Facet(
        "@numba.njit([$v])\ndef f$n(a): return a / 3",
        "f$n(int(x[0])) + x",
        ("'float32(float32)'", "'float32(float32)', 'float64(float64)'", "'float64(int8)', 'float64(int64)'"),
    ),
    "locals of njit": Facet(
        "@numba.njit(locals={'y': types.$v})\ndef f$n(a):\n    y = a * 1.23456789\n    return y + 0.0",
        "f$n(x[0]) + x",
        ("float32", "float64", "int64"),
    ),
    "error model": Facet(
        "@numba.njit(error_model='$v')\ndef f$n(a): return 1.0 / (a - a)", "f$n(x[0]) + x", ("python", "numpy")
    ),
    "fastmath": Facet(
        "@numba.njit(fastmath=$v)\ndef f$n(a):\n    return 1.0 if a != a else 2.0",
        "f$n(x[0] * np.inf * 0.0) + x",
        ("False", "True", "{'nnan', 'ninf'}", "{'contract', 'nsz'}"),
    ),
    "overload": Facet(
        "def f$n(x): pass\n@extending.overload(f$n)\ndef _(x): return lambda x: x * $v", "f$n(x)", NUMBERS
    ),
    "choice of an overload": Facet(
        "def f$n(x): pass\n@extending.overload(f$n)\ndef _(x):\n"
        "    if isinstance(x, types.$v): return lambda x: x + 2.0\n    return lambda x: np.float64(3)",
        "f$n(x) + x",
        ("Array", "Float"),
    ),
    "function of an overload": Facet(
        "def f$n(x): pass\n@numba.njit\ndef g$n(x): return x - $v\n@extending.overload(f$n)\n"
        "def _(x): return lambda x: g$n(x)",
        "f$n(x)",
        NUMBERS,
    ),
    "jit options of an overload": Facet(
        "def f$n(x): pass\n@extending.overload(f$n, jit_options={'error_model': '$v'})\n"
        "def _(x): return lambda x: 1.0 / (x - x)",
        "f$n(x[0]) + x",
        ("python", "numpy"),
    ),
    "overload in an overload": Facet(
        "def f$n(x): pass\ndef g$n(x): pass\n@extending.overload(g$n)\ndef _(x): return lambda x: x - $v\n"
        "@extending.overload(f$n)\ndef _(x): return lambda x: g$n(x) * 2",
        "f$n(x)",
        NUMBERS,
    ),
    "overload of NumPy's": Facet(
        "@extending.overload(np.gradient)\ndef _(x): return lambda x: x * $v", "np.gradient(x)", NUMBERS
    ),
    "overloaded method": Facet(
        "@extending.overload_method(types.Array, 'm$n')\ndef _(x): return lambda x: x * $v", "x.m$n()", NUMBERS
    ),
    "overloaded attribute": Facet(
        "@extending.overload_attribute(types.Array, 'm$n')\ndef _(x): return lambda x: x * $v", "x.m$n", NUMBERS
    ),
    "register_jitable": Facet("@extending.register_jitable\ndef f$n(x): return x * $v", "f$n(x)", NUMBERS),
    "options of register_jitable": Facet(
        "@extending.register_jitable(error_model='$v')\ndef f$n(x): return 1.0 / (x - x)",
        "f$n(x[0]) + x",
        ("python", "numpy"),
    ),
    "intrinsic": Facet(
        "@extending.intrinsic\ndef f$n(context, a):\n    def make(context, builder, signature, args):\n"
        "        return builder.fmul(args[0], ir.Constant(ir.DoubleType(), $v))\n    return a(a), make",
        "f$n(x[0]) + x",
        ("1.5", "2.5"),
        False,
    ),
    "vectorize": Facet("@numba.vectorize\ndef f$n(x): return x * $v", "f$n(x)", NUMBERS, False),
    "vectorize of types": Facet(
        "@numba.vectorize(['$v(float64)'])\ndef f$n(x): return x * 1.1", "f$n(x) + x", ("float64", "float32"), False
    ),
    "stencil": Facet("@numba.stencil\ndef f$n(x): return x[0] * $v", "f$n(x)", ("2", "3"), False),
    "class": Facet(
        "@numba.experimental.jitclass\nclass C$n:\n    def __init__(self): pass\n    def get(self): return $v",
        "x * C$n().get()",
        NUMBERS,
        False,
    ),
    "class of an error": Facet(
        "class E$n($v): pass\ndef f$n(x):\n    if x[0] > 4:\n        raise E$n('text')\n    return x",
        "f$n(x)",
        ("ValueError", "OSError"),
        False,
    ),
    "typing of a function": Facet(
        "def f$n(x): pass\n@extending.type_callable(f$n)\ndef _(context): return lambda x: types.float64\n"
        "@extending.lower_builtin(f$n, types.float64)\ndef _(context, builder, signature, args):\n"
        "    return builder.fmul(args[0], ir.Constant(ir.DoubleType(), $v))",
        "f$n(x[0]) + x",
        ("1.5", "2.5"),
        False,
    ),
}


class Program:
    """A kernel with some terms, of which a number are drawn from `FACETS`."""

    def __init__(self, rng: random.Random, names: list[str]) -> None:
        self.facets = {f"_{number}": FACETS[name] for number, name in enumerate(names)}
        self.names = dict(zip(self.facets, names, strict=True))
        self.values = {key: rng.choice(facet.choices) for key, facet in self.facets.items()}
        self.cached = all(facet.cached for facet in self.facets.values())

    def changed(self, rng: random.Random, key: str) -> dict[str, str]:
        others = [choice for choice in self.facets[key].choices if choice != self.values[key]]
        return self.values | {key: rng.choice(others)}

    def write(self, values: Mapping[str, str], folder: Path) -> None:
        source, inner, terms = [HEAD], [], []
        for key, facet in self.facets.items():
            definitions, term, module = (
                Template(text).substitute(n=key, v=values[key])
                for text in (facet.definitions, facet.term, facet.module)
            )
            source.append(definitions)
            terms.append(f"({term})")
            if module == "inner":
                inner.append(f"    def inner{key}(a): return a * {values[key]}\n")
            elif module:
                (folder / f"helper{key}.py").write_text(module + "\n")
        body = " + ".join(f"{7**number} * {term}" for number, term in enumerate(terms))
        source.append(f"def k(x: F) -> F:\n{''.join(inner)}    return np.float64(1) * ({body})")
        source.append('op = onnx_op("stress::Cached", compile=True)(k)\n')
        (folder / "kernel_of_test.py").write_text("\n".join(source))


class Runner:
    """Runs kernels in forks of a process that has imported numba."""

    def __init__(self) -> None:
        self.server = ForkServer([sys.executable, "-c", START], os.environ)

    def run(self, program: Program, values: Mapping[str, str], folder: Path, cache: str) -> tuple[str, bool]:
        """Return what a kernel prints, and whether it was compiled."""
        program.write(values, folder)
        environment = os.environ | {"PYOPS_CACHE_DIR": str(folder / cache)}
        done = self.server.run(f"FOLDER = {str(folder)!r}\n{RUN}", environment, 120)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, "compiling" in done.stderr


def changes(seed: int, names: list[str]) -> Iterator[tuple[str, bool, bool]]:
    """Yield what went wrong when each of these changed, whether the change matters, and whether code was reloaded."""
    rng, runner = random.Random(seed), Runner()
    for name in names:
        found = []
        program = Program(rng, [name, *rng.sample([other for other in FACETS if other != name], rng.randrange(3))])
        with TemporaryDirectory() as temporary:
            folder = Path(temporary)
            before, _ = runner.run(program, program.values, folder, "cache")
            again, compiled = runner.run(program, program.values, folder, "cache")
            values = program.changed(rng, "_0")
            after, _ = runner.run(program, values, folder, "cache")
            shutil.rmtree(folder / "cache", ignore_errors=True)
            expected, _ = runner.run(program, values, folder, "cache")
        what = f"seed {seed}: {list(program.names.values())}, {program.values} to {values}"
        if "CompileError" in before + expected:
            found.append(f"{what}: {before} {expected}")
        if again != before or compiled == program.cached:
            found.append(f"{what}: unchanged, {before!r} and then {again!r}{' compiled again' * compiled}")
        if after != expected:
            found.append(f"{what}: {before!r} became {after!r} rather than {expected!r}")
        yield "\n".join(found), expected != before, not compiled
    runner.server.kill()


def sample(seed: int, count: int) -> list[str]:
    return random.Random(seed).sample(sorted(FACETS), count)


if __name__ == "__main__":
    failed = False
    chosen = sys.argv[2:] or sample(int(sys.argv[1]), len(FACETS))
    for name, (problem, matters, reloaded) in zip(chosen, changes(int(sys.argv[1]), chosen), strict=True):
        print(
            f"{name}: {'' if matters else 'the same numbers, '}{'' if reloaded else 'not '}loaded", problem, flush=True
        )
        failed |= bool(problem)
    sys.exit(failed)
