"""Tables of what compiles, and its results for edge values in compiled kernels against NumPy's.

NumPy itself is the oracle: the plain function runs on the same values. For float16 and bfloat16 it runs on them in
float32, and each result is rounded once by the `astype` of NumPy or ml_dtypes. The kernel compiled for float32 is a
second oracle for these, whose rounded results are expected bit for bit.
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import CompileError
from pyops.testing import Sample
from tests.pyops._machine.libraries.plain import plain_results

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float32", "float64"]
HALVES = ["float16", "bfloat16"]
WHOLE = ["bool", *INTEGERS, *FLOATS]
DTYPES = [*WHOLE, *HALVES]
ULPS = 4
"""How far a function of floats that is no arithmetic may be from NumPy's, in units in the last place."""
SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33)
"""The sizes of vectors and their tails."""
REDUCED = 1e7
"""How far a reduction of floats up to 1e5 may be from NumPy's, which adds up in another order, in epsilons."""
BATCH = 12
"""The number of expressions that a kernel computes."""


@dataclass(frozen=True)
class Row:
    """An expression in `x` and `y`.

    Attributes
    ----------
    kinds : str
        NumPy's letters of the kinds of element types that it is for.
    exact : bool
        Whether NumPy's result is expected bit for bit.
    where : str
        The values of which something is expected; the page on compiled kernels names the others.
    """

    code: str
    kinds: str
    exact: bool = True
    where: str = ""


def _rows(kinds: str, *codes: str, exact: bool = True, where: str = "") -> list[Row]:
    return [Row(code, kinds, exact, where) for code in codes]


def _calls(names: str, arguments: str) -> list[str]:
    return [f"np.{name}({arguments})" for name in names.split()]


ARRAYS = [
    *_rows("iuf", "x + y", "x - y", "x * y", "x // y", "x % y", "-x", "x ** 2", "x == y", "x < y", "x >= y"),
    *_rows("iuf", *_calls("add subtract multiply floor_divide remainder mod fmod", "x, y")),
    *_rows("iuf", *_calls("maximum minimum fmax fmin", "x, y"), where="(x != 0) | (y != 0)"),  # which zero is open
    *_rows("iuf", "np.divmod(x, y)[0]", "np.divmod(x, y)[1]"),
    *_rows("iuf", *_calls("absolute negative positive sign square", "x")),
    *_rows("biuf", *_calls("equal not_equal less less_equal greater greater_equal", "x, y")),
    *_rows("biuf", *_calls("logical_and logical_or logical_xor", "x, y"), "np.logical_not(x)"),
    *_rows("biuf", "np.where(x > y, x, y)", "np.where(x, y, x)"),
    *_rows("biuf", *_calls("isnan isinf isfinite", "x")),
    *_rows("iu", *_calls("gcd lcm left_shift right_shift bitwise_and bitwise_or bitwise_xor", "x, y")),
    *_rows("iu", "x << y", "x >> y", "x & y", "x | y", "x ^ y", "~x", "np.invert(x)", "x ** 0", "x ** 3"),
    *_rows("iu", "np.power(x, y)", "x ** y", where="y >= 0"),
    *_rows("b", "x & y", "x | y", "x ^ y", "~x", "np.invert(x)", *_calls("bitwise_and bitwise_or bitwise_xor", "x, y")),
    *_rows("f", "x / y", *_calls("divide true_divide copysign nextafter", "x, y")),
    *_rows("f", *_calls("rint floor ceil trunc fabs reciprocal sqrt signbit nan_to_num", "x")),
    *_rows("f", "x ** -1", "x ** 0", "x ** 1", "np.round(x)", "np.clip(x, -1, 1)"),
    *_rows("f", *_calls("exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh arcsin", "x"), exact=False),
    *_rows("f", *_calls("arccos arctan arcsinh arccosh arctanh deg2rad rad2deg degrees radians", "x"), exact=False),
    *_rows("f", *_calls("arctan2 hypot logaddexp logaddexp2", "x, y"), "x ** 3", "x ** -2", "x ** -3", exact=False),
    *_rows("f", *_calls("power float_power", "x, y"), exact=False, where="x != -np.inf"),  # NumPy's own two differ
    *_rows("f", "x ** y", "x ** 0.5", "x ** -0.5", exact=False, where="x != -np.inf"),
    *_rows("iub", *_calls("sqrt exp log sin", "x"), exact=False),
    *_rows("iu", "x / y", "np.true_divide(x, y)", where="x.dtype.itemsize > 2"),
    *_rows("biuf", *[f"x.astype(np.{dtype})" for dtype in WHOLE if dtype != "uint32"]),
    *_rows("biu", "x.astype(np.uint32)"),
    *_rows("f", "x.astype(np.uint32)", where="np.abs(x) < 2.0**31"),  # of others, NumPy's own loops give two numbers
]

ELEMENTS = [
    *_rows("iuf", "x // y", "x % y", "x == y", "x < y", "x <= y", "-x", "abs(x)"),
    *_rows("iuf", "x + y", "x - y", "x * y", "x and y", "x or y", "not x", "x ** 2"),
    *_rows("iu", "x << y", "x >> y", "x & y", "x | y", "x ^ y", "~x", "x / y"),
    *_rows("iu", "np.power(x, y)", "x ** y", where="y >= 0"),
    *_rows("f", "divmod(x, y)[0]", "divmod(x, y)[1]", "x / y", "x ** -1", "x ** 0"),
    *_rows("f", "math.fabs(x)", "math.copysign(x, y)", "np.round(x)"),
    *_rows("f", "x ** -2", "x ** 3", exact=False),
    *_rows("f", "x ** y", "np.power(x, y)", "x ** 0.5", exact=False, where="x != -np.inf"),
    *_rows("iuf", *_calls("floor_divide remainder fmod", "x, y"), *_calls("sign square", "x")),
    *_rows("iuf", *_calls("maximum minimum", "x, y"), where="(x != 0) | (y != 0)"),
    *_rows("iu", *_calls("gcd lcm left_shift right_shift", "x, y")),
    *_rows("biuf", *[f"np.{dtype}(x)" for dtype in WHOLE[1:] if dtype != "uint32"]),
    *_rows("biuf", "bool(x)"),
    *_rows("iuf", "float(x)"),  # numba has none of bool
    *_rows("biu", "int(x)", "math.isnan(x)", "math.isfinite(x)"),
    *_rows("f", "math.isnan(x)", "math.isinf(x)", "math.isfinite(x)", *_calls("sqrt floor ceil trunc", "x")),
    *_rows("f", *_calls("exp log sin", "x"), "np.hypot(x, y)", exact=False),
    *_rows("iu", "math.sin(x)", "math.atan(x)", "math.erf(x)", "math.hypot(x, y)", exact=False),
    *_rows("biu", "math.exp(x)", exact=False, where="x < 700"),
]

REDUCTIONS = [
    *_rows("biuf", *_calls("argmax argmin any all", "x"), "np.count_nonzero(x)", "x.argmax()", "x.any()", "x.all()"),
    *_rows("iuf", *_calls("max min median sort unique cumsum diff flip nanmax nanmin", "x"), "x.max()", "x.min()"),
    *_rows("iu", *_calls("sum prod cumprod nansum", "x"), "x.sum()", "x.prod()"),
    *_rows("f", *_calls("nanmedian nancumsum", "x"), "np.searchsorted(np.sort(x), x)", "np.ptp(x)"),
    *_rows("f", *_calls("sum prod mean nansum nanmean nanprod", "x"), "x.sum()", "x.mean()", exact=False),
    *_rows("f", *_calls("std var nanstd nanvar", "x"), "x.std()", "x.var()", exact=False),
    *_rows("iu", *_calls("mean std var", "x"), exact=False),
]

TABLES = {"arrays": ARRAYS, "elements": ELEMENTS, "reductions": REDUCTIONS}


def kind_of(dtype: str) -> str:
    """Return NumPy's letter of the kind of a type, which for bfloat16 is that of floats."""
    return "f" if dtype in HALVES else np.dtype(dtype).kind


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of float16 or bfloat16 as float32, and others as they are."""
    return array.astype(np.float32) if array.dtype.name in HALVES else array


def edge_values(dtype: str) -> NDArray[Any]:
    """Return the values at which arithmetic of a type is not that of numbers."""
    if dtype == "bool":
        return np.array([False, True])
    if kind_of(dtype) == "f":
        info = ml_dtypes.finfo(dtype)
        ends = (info.smallest_subnormal, info.tiny, info.max, np.nan, np.inf)
        inner = (0.0, 0.3, 0.5, 1, 1.5, 2.5, 3.3, 7, 127.5, 255.9, 256, 32768, 2.0**31, 2.0**53 + 1, 2.0**63, 2.0**64)
        numbers = [float(value) for value in (*ends, *inner)]
        with np.errstate(over="ignore"):
            return np.array([*numbers, *(-value for value in numbers)]).astype(dtype)
    limits = np.iinfo(dtype)
    around = (0, limits.min, limits.max, 1 << limits.bits // 2, limits.bits, -limits.bits, 10, 2**53, 2**63)
    near = {value + offset for value in around for offset in (-2, -1, 0, 1, 2)}
    return np.array(sorted(value for value in near if limits.min <= value <= limits.max), dtype)


def pairs(dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each edge value with each."""
    values = edge_values(dtype)
    return np.repeat(values, values.size), np.tile(values, values.size)


def vectors(dtype: str) -> Iterator[NDArray[Any]]:
    """Return arrays of the sizes of vectors, with and without NaN and infinity, and an empty one."""
    values, source = edge_values(dtype), np.random.default_rng(0)
    if kind_of(dtype) == "f":
        values = values[np.isfinite(values) & (np.abs(widened(values)) < 1e6)]
    for size in SIZES:
        yield source.choice(values, size)
        if kind_of(dtype) == "f":
            for special in (np.nan, np.inf):
                with_special = source.choice(values, size)
                with_special[source.integers(size)] = special
                yield with_special
    yield values[:0]


@dataclass(frozen=True)
class Case:
    """Expressions that one kernel computes."""

    form: str
    dtype: str
    rows: tuple[Row, ...]

    def arguments(self) -> list[tuple[NDArray[Any], ...]]:
        """Return the arguments of each call."""
        if self.form == "reductions":
            return [(vector,) for vector in vectors(self.dtype)]
        x, y = pairs(self.dtype)
        names = {"np": np, "x": widened(x), "y": widened(y)}
        kept = eval(self.rows[0].where or "True", names) & np.ones(x.shape, bool)
        return [(x[kept], y[kept])] if kept.any() else []

    def source(self, results: Sequence[str]) -> str:
        """Return the source of the kernel."""
        codes = [row.code for row in self.rows]
        returned = f"    return {', '.join(f'z{i}' for i in range(len(codes)))},\n"
        if self.form == "elements":
            made = [f"    z{i} = np.empty(xs.size, {spelled(result)})\n" for i, result in enumerate(results)]
            loop = "    for i in range(xs.size):\n        x, y = xs[i], ys[i]\n"
            each = [f"        z{i}[i] = {code}\n" for i, code in enumerate(codes)]
            return "def kernel(xs, ys):\n" + "".join([*made, loop, *each, returned])
        makes = "np.asarray({}).astype({})" if self.form == "reductions" else "({}).astype({})"
        pairs = zip(codes, map(spelled, results), strict=True)
        made = [f"    z{i} = {makes.format(*pair)}\n" for i, pair in enumerate(pairs)]
        return f"def kernel({'x' if self.form == 'reductions' else 'x, y'}):\n" + "".join([*made, returned])

    def expected(self, arguments: tuple[NDArray[Any], ...]) -> list[NDArray[Any] | type[Exception]]:
        """Return what NumPy gives for each row; the type of what it raises."""
        return [self._expected(row.code, tuple(map(widened, arguments))) for row in self.rows]

    def _expected(self, code: str, arguments: tuple[NDArray[Any], ...]) -> NDArray[Any] | type[Exception]:
        function = eval(f"lambda x, y=None: {code}", {"np": np, "math": math})
        try:
            if self.form == "elements":
                return self._rounded(np.array([function(*items) for items in zip(*arguments, strict=True)]))
            return self._rounded(np.asarray(function(*arguments)))
        except Exception as error:
            return type(error)

    def _rounded(self, result: NDArray[Any]) -> NDArray[Any]:
        return result.astype(self.dtype) if self.dtype in HALVES and result.dtype == np.float32 else result


def cases(forms: Iterable[str] = TABLES, dtypes: Iterable[str] = DTYPES) -> Iterator[Case]:
    """Return all rows for all types, several to a kernel."""
    for form, dtype in itertools.product(forms, dtypes):
        rows = sorted((row for row in TABLES[form] if kind_of(dtype) in row.kinds), key=lambda row: row.where)
        for _, group in itertools.groupby(rows, lambda row: row.where):
            alike, size = list(group), 1 if form == "reductions" else BATCH
            yield from (Case(form, dtype, tuple(alike[at : at + size])) for at in range(0, len(alike), size))


def failures(case: Case) -> Iterator[str]:
    """Compile the kernel of a case; return a line about each expression that is not NumPy's."""
    calls = case.arguments()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = [case.expected(arguments) for arguments in calls]
        if not calls:
            return
        kernel = compiled(case, expected[0], "numbers::Kernel")
        wide = in_float32(case, expected[0])
        for arguments, wanted in zip(calls, expected, strict=True):
            try:
                given: Any = kernel(*arguments)
            except CompileError as error:
                if len(case.rows) == 1:
                    yield f"{case.rows[0].code} of {case.dtype} ({case.form}): {error}"
                else:
                    for row in case.rows:
                        yield from failures(Case(case.form, case.dtype, (row,)))
                return
            except Exception as error:
                given = [type(error)] * len(case.rows)
            yield from problems(case, arguments, given, wanted)
            if wide is not None and not any(isinstance(item, type) for item in given):
                yield from problems(case, arguments, given, rounded(wide(*map(widened, arguments)), given), True)


def library_failures(seed: int, count: int, folder: Path) -> Iterator[str]:
    """Build one library of the kernels of random cases; return a line about each expression that is not NumPy's."""
    kernels, samples, expected = [], [], []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        possible = [case for case in cases(dtypes=DTYPES[:-1]) if case.arguments()]  # NumPy alone has no bfloat16
        for case in random.Random(seed).sample(possible, count):
            calls = [(arguments, case.expected(arguments)) for arguments in case.arguments()]
            # What one expression raises is what the kernel raises.
            calls = [call for call in calls if not any(isinstance(item, type) for item in call[1])]
            if calls:
                kernels.append(compiled(case, calls[0][1], f"numbers{seed}::Kernel{len(kernels)}"))
                samples += [Sample(kernels[-1], *arguments) for arguments, _ in calls]
                expected += [(case, *call) for call in calls]
        pyops.build(folder / "lib.so", examples=samples, cpu="native")
    for answer, (case, arguments, items) in zip(plain_results(folder / "lib.so", samples), expected, strict=True):
        if isinstance(answer, str):
            yield f"{case}: {answer}"
        else:
            yield from problems(case, arguments, answer, items)


def in_float32(case: Case, expected: Iterable[Any]) -> pyops.Op | None:
    """Return the kernel of a case of float16 or bfloat16 compiled for float32; None for other cases."""
    if case.dtype not in HALVES:
        return None
    return compiled(replace(case, dtype="float32"), [widened(item) for item in expected], "numbers::Wide")


def rounded(results: Iterable[NDArray[Any]], given: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return results rounded once to the types of those given."""
    return [result.astype(like.dtype) for result, like in zip(results, given, strict=True)]


def problems(
    case: Case, arguments: Sequence[NDArray[Any]], given: Any, wanted: Any, exact: bool = False
) -> Iterator[str]:
    """Return a line about each result of a kernel that is not the one wanted."""
    for row, a, b in zip(case.rows, given, wanted, strict=True):
        if problem := difference(a, b, exact or row.exact, case.form):
            at, text = problem
            values = arguments if case.form == "reductions" else [item[at] for item in arguments]
            yield f"{row.code} of {case.dtype} ({case.form}): {', '.join(map(str, values))}: {text}"


def compiled(case: Case, expected: Iterable[Any], name: str) -> pyops.Op:
    """Return the compiled kernel of a case; its outputs have the types of the expected ones."""
    # NumPy's float16 for integers of 8 bits is float32 in compiled kernels.
    narrowed = "float32" if case.dtype not in HALVES else "float16"
    results = [narrowed if item.dtype == np.float16 else str(item.dtype) for item in expected]
    names: dict[str, Any] = {"np": np, "math": math, "ml_dtypes": ml_dtypes}
    exec(case.source(results), names)
    kernel = names["kernel"]
    outputs = tuple(NDArray[np.dtype(result).type] for result in results)
    inputs = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    kernel.__annotations__ = dict.fromkeys(inputs, NDArray[np.dtype(case.dtype).type])
    kernel.__annotations__["return"] = tuple[outputs]  # type: ignore[valid-type]
    return onnx_op(name, compile=True)(kernel)


def spelled(dtype: str) -> str:
    """Return the code of a type."""
    return f"{'ml_dtypes' if dtype == 'bfloat16' else 'np'}.{dtype}"


@np.errstate(all="ignore")
def difference(given: Any, wanted: Any, exact: bool, form: str) -> tuple[int, str] | None:
    """Return the place of the first difference and what it is, or None."""
    if isinstance(given, type) or isinstance(wanted, type):
        same = given is wanted
        return None if same else (0, f"{_short(given)}, and NumPy {_short(wanted)}")
    if given.shape != wanted.shape:
        return 0, f"shape {given.shape}, and NumPy {wanted.shape}"
    a, b = widened(given.astype(wanted.dtype).ravel()), widened(wanted.ravel())
    equal = a == b
    if b.dtype.kind == "f":
        if form != "reductions" and exact:  # which of several zeros is sorted first is not specified
            equal &= np.signbit(a) == np.signbit(b)
        equal |= np.isnan(a) & np.isnan(b)
        if not exact:
            size, distance = np.maximum(np.abs(a), np.abs(b)), np.abs(a - b)
            reduced = form == "reductions"
            tolerance = (1e3 if reduced else ULPS) * np.spacing(size) + reduced * REDUCED * np.finfo(b.dtype).eps
            if wanted.dtype.name in HALVES:  # rounded to neighbours
                tolerance += np.spacing(size.astype(wanted.dtype)).astype(b.dtype)
            equal |= (distance <= tolerance) | (distance < 2 * np.finfo(b.dtype).tiny)
    wrong = np.flatnonzero(~equal)
    if not wrong.size:
        return None
    at = int(wrong[0])
    return at, f"{a[at]!r}, and NumPy {b[at]!r} ({wrong.size} of {equal.size})"


def _short(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)[:80]


def program(seed: int) -> Case:
    """Return a kernel of random expressions of arithmetic that must be exact."""
    rng = random.Random(seed)
    dtype = rng.choice(["float32", "float64", "uint64", "int64", *HALVES])
    kind = kind_of(dtype)
    shared = ["({} // {})", "({} % {})", "np.where({} > {}, x, y)", "np.floor_divide({}, {})", "np.remainder({}, {})"]
    own = {
        "f": ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "np.fmod({}, {})", "np.divmod({}, {})[0]"],
        "u": ["({} + {})", "({} - {})", "({} * {})", "({} << {})", "np.right_shift({}, {})", "np.power({}, {})"],
        "i": ["({} << {})", "({} >> {})", "np.left_shift({}, {})", "({} & {})", "({} ^ {})", "np.fmod({}, {})"],
    }

    def expression(depth: int) -> str:
        if depth == 0:
            return rng.choice(["x", "y", "x", "y", *([str(rng.randint(1, 70))] if kind == "u" else [])])
        left, right = expression(depth - 1), rng.choice(["x", "y"]) if rng.random() < 0.5 else expression(depth - 1)
        return rng.choice(shared + own[kind]).format("x" if left.isdigit() and right.isdigit() else left, right)

    return Case("arrays", dtype, tuple(Row(expression(rng.randint(1, 3)), kind) for _ in range(6)))
