"""Ways in which exporters, optimisers and people spell the same computation in ONNX, and what each computes in NumPy.

Each call of ``Speller.choose`` is a row of the table: its labels name spellings, all of which are the same function, in
exact arithmetic, of all inputs of their shapes. The first label of a row is the plain spelling. ``COMPUTATIONS`` lists
the computations.

Spellings differ in rounding: those in ``UNSTEADY`` so much that replacing them, or replacing others by them, shows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from small_graphs import FLOAT16, FLOAT32, FLOAT64, TYPES, Graph, Value

T = TypeVar("T")
Term = Value | float
INT64_MAX = 2**63 - 1

# They overflow where others do not, or the other way round; the last two lose all digits of numbers that are alike.
UNSTEADY = frozenset(
    [
        "in a wider type",
        "Softplus(beta x) / beta",
        "-log(sigmoid(-beta x)) / beta",
        "(max(beta x, 0) + log(1 + exp(-|beta x|))) / beta",
        "exp(z) / sum(exp(z))",
        "mean(x^2) - mean^2",
        "x scale + (b - mean scale)",
    ]
)


class Speller(Graph):
    """A graph, and the arithmetic that places are written in.

    ``plain`` is the probability of the plain spelling of a row; with ``passes``, an operand goes through nodes that
    leave it as it is.
    """

    def __init__(self, opset: int, rng: random.Random, dtype: np.dtype) -> None:
        super().__init__(opset, rng)
        self.dtype = dtype
        self.plain = 0.0
        self.passes = 0.0
        self.labels: list[str] = []

    def choose(self, spellings: dict[str, Callable[[], T] | None]) -> T:
        """Return what one of the spellings computes; None is one that these shapes, types or this opset rule out."""
        possible = [label for label, spelled in spellings.items() if spelled]
        label = possible[0] if self.rng.random() < self.plain else self.rng.choice(possible)
        self.labels.append(label)
        spelled = spellings[label]
        assert spelled
        return spelled()

    def likely(self, probability: float) -> bool:
        return self.rng.random() < probability

    def add(self, op: str, *inputs: Value | None, outputs: int = 1, **attributes: Any) -> Any:
        if self.place is not None and self.passes:
            inputs = tuple(
                self.passed(value) if value and value.is_float and self.likely(self.passes) else value
                for value in inputs
            )
        return super().add(op, *inputs, outputs=outputs, **attributes)

    # Nodes that leave a value as it is.

    def passed(self, x: Value) -> Value:
        kept, (self.plain, self.passes) = (self.plain, self.passes), (0.0, 0.0)
        found = self.choose(
            {
                "Identity": lambda: self.add("Identity", x),
                "Cast to the same type": lambda: self.cast(x, x.dtype),
                "Cast to a wider type and back": x.dtype != FLOAT64
                and (lambda: self.cast(self.cast(x, self.wider(x.dtype)), x.dtype)),
                "CastLike itself": self.opset >= 15 and (lambda: self.add("CastLike", x, x)),
                "Dropout": lambda: self.add("Dropout", x),
                "Dropout with ratio": lambda: self.add("Dropout", x, self.constant(np.float32(0.1))),
                "Dropout, training_mode=False": lambda: self.add(
                    "Dropout", x, self.constant(np.float32(0.5)), self.constant(np.array(False))
                ),
                "Transpose of Transpose": x.rank > 1 and (lambda: self.transposed_twice(x)),
                "Squeeze of Unsqueeze": lambda: self.unsqueezed_and_squeezed(x),
                "Reshape to the same shape": lambda: self.reshaped(x),
                "Expand to ones": lambda: self.add("Expand", x, self.integers(*[1] * x.rank)),
                "Slice of all": x.rank > 0 and (lambda: self.sliced(x, 0, INT64_MAX, self.rng.randrange(x.rank))),
                "Concat of one": x.rank > 0 and (lambda: self.add("Concat", x, axis=self.rng.randrange(x.rank))),
                "Concat of Split": self.is_even(x) and (lambda: self.split_and_joined(x)),
                "Neg of Neg": lambda: self.add("Neg", self.add("Neg", x)),
                "x * 1": lambda: self.mul(x, 1.0),
                "x / 1": lambda: self.add("Div", x, self.scalar(1.0, x)),
                "x + 0": lambda: self.plus(x, 0.0),
                "x - 0": lambda: self.add("Sub", x, self.scalar(0.0, x)),
                "x ** 1": lambda: self.add("Pow", x, self.scalar(1.0, x)),
                "Sum of one": lambda: self.add("Sum", x),
                "Max of one": lambda: self.add("Max", x),
                "Min(x, x)": lambda: self.add("Min", x, x),
            }
        )
        self.plain, self.passes = kept
        return found

    def transposed_twice(self, x: Value) -> Value:
        perm = self.rng.sample(range(x.rank), x.rank)
        back = [perm.index(axis) for axis in range(x.rank)]
        return self.add("Transpose", self.add("Transpose", x, perm=perm), perm=back)

    def unsqueezed_and_squeezed(self, x: Value) -> Value:
        axis = self.rng.randint(0, x.rank)
        wide = self.add("Unsqueeze", x, self.integers(axis))
        return self.add("Squeeze", wide, self.integers(axis - wide.rank if self.likely(0.3) else axis))

    def reshaped(self, x: Value) -> Value:
        wanted = [0 if isinstance(size, str) or self.likely(0.4) else size for size in x.shape]
        if wanted and self.likely(0.4):
            wanted[self.rng.randrange(x.rank)] = -1
        return self.add("Reshape", x, self.integers(*wanted))

    def is_even(self, x: Value) -> bool:
        return x.rank > 0 and isinstance(x.shape[-1], int) and x.shape[-1] % 2 == 0

    def split_and_joined(self, x: Value) -> Value:
        return self.add("Concat", *self.halves_by_split(x), axis=x.rank - 1)

    # Constants and types.

    def scalar(self, number: float, like: Value) -> Value:
        """Return a constant of the type of a value, which leaves its rank as it is."""
        array = np.array(number, like.dtype)
        ones = (1,) * self.rng.randint(1, like.rank) if like.rank else ()
        width = like.shape[-1] if like.rank else "none"
        is_full = self.likely(0.2) and isinstance(width, int)
        wide = np.array(number, FLOAT64)
        return self.choose(
            {
                "initializer []": lambda: self.constant(array),
                "initializer [1, ...]": lambda: self.constant(array.reshape(ones)),
                "initializer [d] of one number": is_full and (lambda: self.constant(np.full(width, array, like.dtype))),
                "Constant": lambda: self.constant(array, node="value"),
                "Constant [1, ...]": lambda: self.constant(array.reshape(ones), node="value"),
                "Constant value_float": like.dtype == FLOAT32 and (lambda: self.constant(array, node="value_float")),
                "Cast of a float64 Constant": lambda: self.cast(self.constant(wide, node="value"), like.dtype),
                "CastLike of a Constant": self.opset >= 15
                and (lambda: self.add("CastLike", self.constant(wide, node="value"), like)),
                "Identity of an initializer": lambda: self.add("Identity", self.constant(array)),
            }
        )

    def cast(self, x: Value, dtype: np.dtype) -> Value:
        return self.add("Cast", x, to=int(TYPES[dtype]))

    def wider(self, dtype: np.dtype) -> np.dtype:
        return FLOAT32 if dtype == FLOAT16 else FLOAT64

    def axis(self, x: Value, axis: int = -1) -> int:
        return axis if self.likely(0.6) else axis + x.rank

    # Arithmetic.

    def value(self, x: Term, like: Value) -> Value:
        return x if isinstance(x, Value) else self.scalar(x, like)

    def _both(self, x: Term, y: Term) -> tuple[Value, Value]:
        like = x if isinstance(x, Value) else y
        assert isinstance(like, Value)
        return self.value(x, like), self.value(y, like)

    def _commuted(self, op: str, x: Term, y: Term) -> Value:
        first, second = self._both(x, y)
        return self.add(op, second, first) if self.likely(0.5 - self.plain / 2) else self.add(op, first, second)

    def mul(self, x: Term, y: Term) -> Value:
        number, other = (x, y) if isinstance(x, float) else (y, x)
        if not isinstance(number, float) or number == 0:
            return self._commuted("Mul", x, y)
        assert isinstance(other, Value)
        return self.choose(
            {
                "x * c": lambda: self._commuted("Mul", other, number),
                "x / (1 / c)": lambda: self.add("Div", other, self.scalar(1 / number, other)),
                "-x": number == -1 and (lambda: self.add("Neg", other)),
            }
        )

    def plus(self, x: Term, y: Term) -> Value:
        if isinstance(x, float) or isinstance(y, float):
            number, other = (x, y) if isinstance(x, float) else (y, x)
            assert isinstance(other, Value)
            return self.choose(
                {
                    "x + c": lambda: self._commuted("Add", other, number),
                    "x - (-c)": lambda: self.add("Sub", other, self.scalar(-number, other)),
                    "Sum(x, c)": lambda: self._commuted("Sum", other, number),
                }
            )
        return self.choose(
            {
                "x + y": lambda: self._commuted("Add", x, y),
                "x - (-y)": lambda: self.add("Sub", x, self.neg(y)),
                "Sum(x, y)": lambda: self._commuted("Sum", x, y),
            }
        )

    def minus(self, x: Term, y: Term) -> Value:
        first, second = self._both(x, y)
        return self.choose(
            {
                "x - y": lambda: self.add("Sub", first, second),
                "x + (-y)": lambda: self._commuted("Add", first, self.neg(second)),
                "-(y - x)": lambda: self.neg(self.add("Sub", second, first)),
            }
        )

    def div(self, x: Term, y: Term) -> Value:
        first, second = self._both(x, y)
        return self.choose(
            {
                "x / y": lambda: self.add("Div", first, second),
                "x * (1 / y)": lambda: self._commuted("Mul", first, self.reciprocal(second)),
                "x * c": isinstance(y, float) and (lambda: self._commuted("Mul", first, 1 / y)),
            }
        )

    def neg(self, x: Value) -> Value:
        return self.choose(
            {
                "Neg": lambda: self.add("Neg", x),
                "x * -1": lambda: self._commuted("Mul", x, -1.0),
                "x / -1": lambda: self.add("Div", x, self.scalar(-1.0, x)),
                "0 - x": lambda: self.add("Sub", self.scalar(0.0, x), x),
            }
        )

    def reciprocal(self, x: Value) -> Value:
        return self.choose(
            {
                "Reciprocal": lambda: self.add("Reciprocal", x),
                "1 / x": lambda: self.add("Div", self.scalar(1.0, x), x),
                "Pow(x, -1)": lambda: self.add("Pow", x, self.scalar(-1.0, x)),
            }
        )

    def sqrt(self, x: Value) -> Value:
        return self.choose(
            {"Sqrt": lambda: self.add("Sqrt", x), "Pow(x, 0.5)": lambda: self.add("Pow", x, self.scalar(0.5, x))}
        )

    def product(self, factors: Sequence[Term], divisors: Sequence[Term] = ()) -> Value:
        """Return the quotient of two products, in any order and grouping."""
        self.labels.append("products grouped")
        terms = [(factor, False) for factor in factors]
        for divisor in divisors:
            if isinstance(divisor, Value) and self.likely(0.3):
                terms.append((self.reciprocal(divisor), False))
            else:
                terms.append((divisor, True))
        while len(terms) > 1:
            (x, x_below), (y, y_below) = self._taken(terms), self._taken(terms)
            if isinstance(x, float) and isinstance(y, float):
                x, y = (1 / x if x_below else x), (1 / y if y_below else y)
                terms.append((x * y, False))
            elif x_below == y_below:
                terms.append((self.mul(x, y), x_below))
            else:
                terms.append((self.div(y, x) if x_below else self.div(x, y), False))
        ((found, below),) = terms
        assert isinstance(found, Value)
        return self.reciprocal(found) if below else found

    def total(self, plus: Sequence[Term], minus: Sequence[Term] = ()) -> Value:
        """Return the difference of two sums, in any order and grouping."""
        terms = [(term, False) for term in plus] + [(term, True) for term in minus]
        while len(terms) > 1:
            (x, x_below), (y, y_below) = self._taken(terms), self._taken(terms)
            if x_below == y_below:
                terms.append((self.plus(x, y), x_below))
            else:
                terms.append((self.minus(y, x) if x_below else self.minus(x, y), False))
        ((found, below),) = terms
        assert isinstance(found, Value)
        return self.neg(found) if below else found

    def _taken(self, terms: list[tuple[Term, bool]]) -> tuple[Term, bool]:
        return terms.pop(0 if self.likely(self.plain) else self.rng.randrange(len(terms)))

    def square(self, x: Value) -> Value:
        return self.choose(
            {
                "Pow(x, 2)": lambda: self.add("Pow", x, self.scalar(2.0, x)),
                "x * x": lambda: self.add("Mul", x, x),
                "Pow(x, int64 2)": lambda: self.add("Pow", x, self.constant(np.int64(2))),
            }
        )

    def cube(self, x: Value) -> Value:
        return self.choose(
            {
                "Pow(x, 3)": lambda: self.add("Pow", x, self.scalar(3.0, x)),
                "x * x * x": lambda: self.product([x, x, x]),
                "x * x^2": lambda: self._commuted("Mul", x, self.square(x)),
                "Pow(x, int64 3)": lambda: self.add("Pow", x, self.constant(np.int64(3))),
            }
        )

    def inverse_root(self, x: Value) -> tuple[list[Term], list[Term]]:
        """Return factors and divisors whose quotient is ``1 / sqrt(x)``."""
        return self.choose(
            {
                "/ Sqrt(x)": lambda: ([], [self.sqrt(x)]),
                "* Reciprocal(Sqrt(x))": lambda: ([self.reciprocal(self.sqrt(x))], []),
                "* Pow(x, -0.5)": lambda: ([self.add("Pow", x, self.scalar(-0.5, x))], []),
                "* Sqrt(Reciprocal(x))": lambda: ([self.sqrt(self.reciprocal(x))], []),
            }
        )

    # Along the last axis.

    def reduce(self, op: str, x: Value) -> Value:
        return self.choose(
            {
                "keepdims=1": lambda: self._reduce(op, x, keepdims=1),
                "keepdims by default": lambda: self._reduce(op, x),
                "keepdims=0, Unsqueeze": lambda: self._unsqueezed(self._reduce(op, x, keepdims=0)),
            }
        )

    def _reduce(self, op: str, x: Value, **keepdims: int) -> Value:
        if op == "ReduceSum" or self.opset >= 18:
            return self.add(op, x, self.integers(self.axis(x)), **keepdims)
        return self.add(op, x, axes=[self.axis(x)], **keepdims)

    def _unsqueezed(self, x: Value) -> Value:
        return self.add("Unsqueeze", x, self.integers(-1 if self.likely(0.6) else x.rank))

    def mean(self, x: Value) -> Value:
        return self.choose(
            {
                "ReduceMean": lambda: self.reduce("ReduceMean", x),
                "ReduceSum / d": lambda: self.div(self.reduce("ReduceSum", x), self.size(x)),
            }
        )

    def mean_of_squares(self, x: Value) -> Value:
        return self.choose(
            {
                "mean(x^2)": lambda: self.mean(self.square(x)),
                "ReduceSumSquare / d": lambda: self.div(self.reduce("ReduceSumSquare", x), self.size(x)),
                "ReduceL2^2 / d": lambda: self.div(self.square(self.reduce("ReduceL2", x)), self.size(x)),
            }
        )

    def size(self, x: Value) -> Term:
        """Return the size of the last dimension."""
        size = x.shape[-1]

        def computed() -> Value:
            last = self.choose(
                {
                    "Gather(Shape(x), -1)": lambda: self.add(
                        "Gather", self.add("Shape", x), self.constant(np.int64(self.axis(x))), axis=0
                    ),
                    "Shape(x, start=-1)": self.opset >= 15 and (lambda: self.add("Shape", x, start=-1)),
                }
            )
            return self.cast(last, x.dtype)

        return self.choose(
            {
                "d": isinstance(size, int) and (lambda: float(size)),
                "d of Shape": (lambda: computed()) if isinstance(size, str) or self.likely(0.2) else None,
            }
        )

    def softmax(self, z: Value) -> Value:
        def less_maximum() -> Value:
            return self.minus(z, self.reduce("ReduceMax", z))

        def over_sum(exponents: Value) -> Value:
            return self.div(exponents, self.reduce("ReduceSum", exponents))

        return self.choose(
            {
                "Softmax": lambda: self.add("Softmax", z, **self._last(z)),
                "exp(z - max(z)) / sum": lambda: over_sum(self.add("Exp", less_maximum())),
                "exp(z) / sum(exp(z))": lambda: over_sum(self.add("Exp", z)),
                "Exp(LogSoftmax)": lambda: self.add("Exp", self.add("LogSoftmax", z, **self._last(z))),
                "exp(z - ReduceLogSumExp)": lambda: self.add("Exp", self.minus(z, self.reduce("ReduceLogSumExp", z))),
                "Softmax of the Transpose": lambda: self.transposed_softmax(z),
            }
        )

    def _last(self, z: Value) -> dict[str, int]:
        return {} if self.likely(0.2) else {"axis": self.axis(z)}

    def transposed_softmax(self, z: Value) -> Value:
        axis = self.rng.randrange(z.rank)
        perm = list(range(z.rank))
        perm[axis], perm[-1] = perm[-1], perm[axis]
        turned = self.add("Softmax", self.add("Transpose", z, perm=perm), axis=axis)
        return self.add("Transpose", turned, perm=perm)

    # Functions of one number.

    def sigmoid(self, x: Value) -> Value:
        return self.choose(
            {
                "Sigmoid": lambda: self.add("Sigmoid", x),
                "1 / (1 + exp(-x))": lambda: self.reciprocal(self.plus(self.add("Exp", self.neg(x)), 1.0)),
                "(1 + tanh(x / 2)) / 2": lambda: self.product(
                    [self.plus(self.add("Tanh", self.mul(x, 0.5)), 1.0), 0.5]
                ),
            }
        )

    def tanh(self, x: Value) -> Value:
        return self.choose(
            {
                "Tanh": lambda: self.add("Tanh", x),
                "2 sigmoid(2x) - 1": lambda: self.total([self.mul(self.add("Sigmoid", self.mul(x, 2.0)), 2.0)], [1.0]),
                "-Tanh(-x)": lambda: self.neg(self.add("Tanh", self.neg(x))),
            }
        )

    def gelu_tanh_parts(self, x: Value) -> tuple[list[Term], list[Term]]:
        """Return factors and divisors whose quotient is the GELU of ``x`` by tanh."""
        c = math.sqrt(2 / math.pi)

        def inner() -> Value:
            return self.choose(
                {
                    "c (x + 0.044715 x^3)": lambda: self.mul(self.plus(x, self.mul(self.cube(x), 0.044715)), c),
                    "c x (1 + 0.044715 x^2)": lambda: self.product(
                        [x, c, self.plus(self.mul(self.square(x), 0.044715), 1.0)]
                    ),
                    "x (c + 0.044715 c x^2)": lambda: self.product(
                        [x, self.plus(self.mul(self.square(x), 0.044715 * c), c)]
                    ),
                    "c x + 0.044715 c x^3": lambda: self.plus(self.mul(x, c), self.mul(self.cube(x), 0.044715 * c)),
                }
            )

        return self.choose(
            {
                "0.5 x (1 + tanh)": lambda: ([x, 0.5, self.plus(self.tanh(inner()), 1.0)], []),
                "x (1 + tanh) / 2": lambda: ([x, self.plus(self.tanh(inner()), 1.0)], [2.0]),
                "x (0.5 + 0.5 tanh)": lambda: ([x, self.plus(self.mul(self.tanh(inner()), 0.5), 0.5)], []),
                "0.5 (x + x tanh)": lambda: ([0.5, self.plus(x, self.mul(x, self.tanh(inner())))], []),
                "x sigmoid(2 ...)": lambda: ([x, self.sigmoid(self.mul(inner(), 2.0))], []),
                "Gelu, approximate=tanh": self.opset >= 20
                and x.dtype != FLOAT64  # ONNX gives its constants in float32
                and (lambda: ([self.add("Gelu", x, approximate="tanh")], [])),
            }
        )

    # Halves of the last dimension.

    def halves_by_split(self, x: Value) -> tuple[Value, Value]:
        half, axis = x.shape[-1] // 2, self.axis(x)
        return self.choose(
            {
                "Split into given sizes": lambda: self.add("Split", x, self.integers(half, half), axis=axis, outputs=2),
                "Split into two": lambda: self.add(
                    "Split", x, axis=axis, outputs=2, **({"num_outputs": 2} if self.opset >= 18 else {})
                ),
            }
        )

    def sliced(self, x: Value, start: int, end: int, axis: int) -> Value:
        axes = self.integers(axis - x.rank if self.likely(0.5) else axis)
        steps = [self.integers(1)] if self.likely(0.5) else []
        return self.add("Slice", x, self.integers(start), self.integers(end), axes, *steps)

    def halves(self, x: Value) -> tuple[Value, Value]:
        size = x.shape[-1]
        half, last = size // 2, x.rank - 1

        def slices() -> tuple[Value, Value]:
            start = self.rng.choice([0, 0, -size])
            middle = [self.rng.choice([half, -half]) for _ in range(2)]
            end = self.rng.choice([size, INT64_MAX, 2**31 - 1])
            return self.sliced(x, start, middle[0], last), self.sliced(x, middle[1], end, last)

        def gathers() -> tuple[Value, Value]:
            rows = np.arange(size).reshape(2, half)
            return tuple(self.add("Gather", x, self.constant(row), axis=self.axis(x)) for row in rows)

        def reshaped() -> tuple[Value, Value]:
            names = [name for name in x.shape if isinstance(name, str)]
            wanted = [0 if isinstance(size, str) or not names else size for size in x.shape[:-1]]
            pairs = self.add("Reshape", x, self.integers(*wanted, 2, half))
            return tuple(
                self.add("Gather", pairs, self.constant(np.int64(at)), axis=self.rng.choice([-2, last]))
                for at in range(2)
            )

        return self.choose(
            {
                "two Slices": slices,
                "Split": lambda: self.halves_by_split(x),
                "two Gathers": gathers,
                "Gathers of [..., 2, d/2]": reshaped,
            }
        )


# The computations: how each is spelled, and what it computes.


def rms_norm(s: Speller, x: Value, w: Value, eps: float) -> Value:
    def inverse() -> tuple[list[Term], list[Term]]:
        return s.inverse_root(s.plus(s.mean_of_squares(x), eps))

    def of_sums() -> Value:
        size = x.shape[-1]
        squares = s.choose(
            {
                "ReduceSum(x^2)": lambda: s.reduce("ReduceSum", s.square(x)),
                "ReduceSumSquare": lambda: s.reduce("ReduceSumSquare", x),
            }
        )
        factors, divisors = s.inverse_root(s.plus(squares, eps * size))
        return s.product([x, w, math.sqrt(size), *factors], divisors)

    def in_two_types() -> Value:
        wide = s.cast(x, s.wider(x.dtype))
        factors, divisors = s.inverse_root(s.plus(s.mean_of_squares(wide), eps))
        return s.mul(s.cast(s.product([wide, *factors], divisors), x.dtype), w)

    def by_operator() -> Value:
        axis = s.axis(x)
        return s.add("RMSNormalization", x, w, axis=axis, epsilon=eps)

    def plain() -> Value:
        factors, divisors = inverse()
        return s.product([x, *factors, w] if s.likely(s.plain) else [x, w, *factors], divisors)

    return s.choose(
        {
            "x w / sqrt(mean(x^2) + eps)": plain,
            "sqrt(d) x w / sqrt(sum(x^2) + d eps)": isinstance(x.shape[-1], int) and of_sums,
            "normalised in a wider type": x.dtype != FLOAT64 and in_two_types,
            "RMSNormalization": s.opset >= 23 and w.rank == 1 and x.dtype != FLOAT64 and by_operator,
        }
    )


def layer_norm(s: Speller, x: Value, w: Value, b: Value, eps: float) -> Value:
    def centred() -> Value:
        return s.minus(x, s.mean(x))

    def variance(residual: Value, mean: Value) -> Value:
        return s.choose(
            {
                "mean((x - mean)^2)": lambda: s.mean_of_squares(residual),
                "mean((x - mean)^2), written again": lambda: s.mean_of_squares(centred()),
                "mean((mean - x)^2)": lambda: s.mean_of_squares(s.minus(mean, x)),
                "mean(x^2) - mean^2": lambda: s.minus(s.mean_of_squares(x), s.square(mean)),
            }
        )

    def plain() -> Value:
        mean = s.mean(x)
        residual = s.minus(x, mean)
        factors, divisors = s.inverse_root(s.plus(variance(residual, mean), eps))
        return s.plus(s.product([residual, *factors, w], divisors), b)

    def folded() -> Value:
        mean = s.mean(x)
        factors, divisors = s.inverse_root(s.plus(variance(s.minus(x, mean), mean), eps))
        scale = s.product([w, *factors], divisors)
        return s.total([s.mul(x, scale), b], [s.mul(mean, scale)])

    def by_operator() -> Value:
        arguments = {"axis": s.axis(x), "epsilon": eps}
        ones = lambda: s.constant(np.ones(x.shape[-1], x.dtype))  # noqa: E731
        return s.choose(
            {
                "LayerNormalization": lambda: s.add("LayerNormalization", x, w, b, **arguments),
                "LayerNormalization without bias": lambda: s.plus(s.add("LayerNormalization", x, w, **arguments), b),
                "LayerNormalization of ones": isinstance(x.shape[-1], int)
                and (lambda: s.plus(s.mul(s.add("LayerNormalization", x, ones(), **arguments), w), b)),
            }
        )

    return s.choose(
        {
            "(x - mean) w / sqrt(var + eps) + b": plain,
            "x scale + (b - mean scale)": folded,
            "LayerNormalization": s.opset >= 17 and w.rank == b.rank == 1 and x.dtype != FLOAT64 and by_operator,
        }
    )


def rotary(s: Speller, x: Value, cos: Value, sin: Value) -> Value:
    size = x.shape[-1]
    half = size // 2

    def rotated() -> Value:
        signs = np.repeat([-1, 1], half).astype(x.dtype)

        def matrix() -> np.ndarray:
            turn = np.zeros((size, size), x.dtype)
            turn[np.arange(half) + half, np.arange(half)] = -1
            turn[np.arange(half), np.arange(half) + half] = 1
            return turn

        def swapped() -> Value:
            first, second = s.halves(x)
            return s.add("Concat", second, first, axis=s.axis(x))

        def negated() -> Value:
            first, second = s.halves(x)
            return s.add("Concat", s.neg(second), first, axis=s.axis(x))

        return s.choose(
            {
                "Concat(-x2, x1)": negated,
                "Concat(x2, x1) * [-1, 1]": lambda: s.mul(swapped(), s.constant(signs)),
                "x @ rotation": lambda: s.add("MatMul", x, s.constant(matrix())),
            }
        )

    def in_halves() -> Value:
        (x1, x2), (c1, c2), (s1, s2) = (s.halves(value) for value in (x, cos, sin))
        first = s.minus(s.mul(x1, c1), s.mul(x2, s1))
        second = s.plus(s.mul(x2, c2), s.mul(x1, s2))
        return s.add("Concat", first, second, axis=s.axis(first))

    return s.choose(
        {
            "x cos + rotate_half(x) sin": lambda: s.plus(s.mul(x, cos), s.mul(rotated(), sin)),
            "halves": in_halves,
        }
    )


def swiglu(s: Speller, g: Value, u: Value) -> Value:
    return s.choose(
        {
            "g sigmoid(g) u": lambda: s.product([g, s.sigmoid(g), u]),
            "g u / (1 + exp(-g))": lambda: s.product([g, u], [s.plus(s.add("Exp", s.neg(g)), 1.0)]),
        }
    )


def gelu_erf(s: Speller, x: Value) -> Value:
    def root() -> Term:
        return s.choose(
            {"sqrt(2)": lambda: math.sqrt(2), "Sqrt(2)": lambda: s.add("Sqrt", s.scalar(2.0, x))},
        )

    def erf() -> Value:
        return s.choose(
            {
                "Erf(x / sqrt(2))": lambda: s.add("Erf", s.div(x, root())),
                "Erf(x sqrt(0.5))": lambda: s.add("Erf", s.mul(x, math.sqrt(0.5))),
                "-Erf(-x / sqrt(2))": lambda: s.neg(s.add("Erf", s.mul(x, -math.sqrt(0.5)))),
            }
        )

    return s.choose(
        {
            "0.5 x (1 + erf)": lambda: s.product([x, 0.5, s.plus(erf(), 1.0)]),
            "x (1 + erf) / 2": lambda: s.product([x, s.plus(erf(), 1.0)], [2.0]),
            "x (0.5 + 0.5 erf)": lambda: s.mul(x, s.plus(s.mul(erf(), 0.5), 0.5)),
            "0.5 (x + x erf)": lambda: s.mul(s.plus(x, s.mul(x, erf())), 0.5),
            "Gelu": s.opset >= 20 and (lambda: s.add("Gelu", x)),
            "Gelu, approximate=none": s.opset >= 20 and (lambda: s.add("Gelu", x, approximate="none")),
        }
    )


def gelu_tanh(s: Speller, x: Value) -> Value:
    return s.product(*s.gelu_tanh_parts(x))


def geglu_tanh(s: Speller, g: Value, u: Value) -> Value:
    factors, divisors = s.gelu_tanh_parts(g)
    return s.product([*factors, u], divisors)


def scaled_softplus(s: Speller, x: Value, beta: float) -> Value:
    def stable() -> Value:
        z = s.mul(x, beta)
        return s.plus(s.add("Relu", z), s.add("Log", s.plus(s.add("Exp", s.neg(s.add("Abs", z))), 1.0)))

    def inner() -> Value:
        return s.choose(
            {
                "log(1 + exp(beta x)) / beta": lambda: s.add("Log", s.plus(s.add("Exp", s.mul(x, beta)), 1.0)),
                "Softplus(beta x) / beta": x.dtype != FLOAT64 and (lambda: s.add("Softplus", s.mul(x, beta))),
                "-log(sigmoid(-beta x)) / beta": lambda: s.neg(s.add("Log", s.sigmoid(s.mul(x, -beta)))),
                "(max(beta x, 0) + log(1 + exp(-|beta x|))) / beta": stable,
            }
        )

    return s.div(inner(), beta)


def masked_softmax(s: Speller, x: Value, m: Value) -> Value:
    return s.softmax(s.plus(x, m))


def chosen_softmax(s: Speller, x: Value, m: Value) -> Value:
    mask, low = s.add("Greater", m, s.scalar(0.0, m)), s.scalar(-math.inf, x)
    masked = s.choose(
        {
            "Where(mask, x, -inf)": lambda: s.add("Where", mask, x, low),
            "Where(not mask, -inf, x)": lambda: s.add("Where", s.add("Not", mask), low, x),
            "x + Where(mask, 0, -inf)": lambda: s.plus(x, s.add("Where", mask, s.scalar(0.0, x), low)),
        }
    )
    return s.choose(
        {
            "Softmax": lambda: s.add("Softmax", masked, axis=-1),
            "of the transposed": lambda: s.transposed_softmax(masked),
        }
    )


def attention(s: Speller, q: Value, k: Value, v: Value, m: Value, scale: float) -> Value:
    perm = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    batch = "ab"[: k.rank - 2]
    is_static = all(isinstance(size, int) for value in (q, k, v) for size in value.shape)

    has_gemm = q.rank == 2 and (q.dtype != FLOAT64 or scale == float(np.float32(scale)))

    def turned(value: Value) -> Value:
        return s.add("Transpose", value, perm=perm)

    def flat(value: Value) -> Value:
        return s.add("Reshape", value, s.integers(-1, *value.shape[-2:]))

    def in_one_batch(q: Value, k: Value) -> Value:
        scores = s.add("MatMul", flat(q), s.add("Transpose", flat(k), perm=[0, 2, 1]))
        return s.add("Reshape", scores, s.integers(*q.shape[:-1], k.shape[-2]))

    def turned_flat(value: Value) -> Value:
        sizes = s.integers(*value.shape[:-2], value.shape[-1], value.shape[-2])
        return s.add("Reshape", s.add("Transpose", flat(value), perm=[0, 2, 1]), sizes)

    def dot(q: Value, k: Value) -> Value:
        return s.choose(
            {
                "q @ k^T": lambda: s.add("MatMul", q, turned(k)),
                "(k @ q^T)^T": lambda: turned(s.add("MatMul", k, turned(q))),
                "Einsum": lambda: s.add("Einsum", q, k, equation=f"{batch}nd,{batch}sd->{batch}ns"),
                "Gemm": q.rank == 2 and (lambda: s.add("Gemm", q, k, transB=1)),
                "batches in one": q.rank == 4 and is_static and (lambda: in_one_batch(q, k)),
                "k turned in one batch": q.rank == 4 and is_static and (lambda: s.add("MatMul", q, turned_flat(k))),
            }
        )

    def scores() -> Value:
        root = math.sqrt(scale)
        return s.choose(
            {
                "scale (q k^T) + m": lambda: s.plus(s.mul(dot(q, k), scale), m),
                "(q k^T) / (1 / scale) + m": lambda: s.plus(s.div(dot(q, k), 1 / scale), m),
                "(scale q) k^T + m": lambda: s.plus(dot(s.mul(q, scale), k), m),
                "q (scale k)^T + m": lambda: s.plus(dot(q, s.mul(k, scale)), m),
                "q (scale k^T) + m": lambda: s.plus(s.add("MatMul", q, s.mul(turned(k), scale)), m),
                "(sqrt(scale) q) (sqrt(scale) k)^T + m": lambda: s.plus(dot(s.mul(q, root), s.mul(k, root)), m),
                "Gemm with alpha": has_gemm and (lambda: s.plus(s.add("Gemm", q, k, alpha=scale, transB=1), m)),
                "Gemm with alpha and m": has_gemm and (lambda: s.add("Gemm", q, k, m, alpha=scale, transB=1)),
            }
        )

    def of_values(probabilities: Value) -> Value:
        return s.choose(
            {
                "p @ v": lambda: s.add("MatMul", probabilities, v),
                "Einsum": lambda: s.add("Einsum", probabilities, v, equation=f"{batch}ns,{batch}sd->{batch}nd"),
                "(v^T @ p^T)^T": lambda: turned(s.add("MatMul", turned(v), turned(probabilities))),
            }
        )

    return s.choose(
        {
            "softmax(...) @ v": lambda: of_values(s.softmax(scores())),
            "Attention": s.opset >= 23
            and q.rank == 4
            and m.rank in (2, 4)
            and q.dtype != FLOAT64
            and (lambda: s.add("Attention", q, k, v, m, scale=scale)),
        }
    )


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _softmax(z: np.ndarray) -> np.ndarray:
    exponents = np.exp(z - z.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def _chosen_softmax(x: np.ndarray, m: np.ndarray) -> np.ndarray:
    return _softmax(np.where(m > 0, x, -np.inf))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _rotate_half(x: np.ndarray) -> np.ndarray:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


@dataclass(frozen=True)
class Computation:
    """How to spell it, its inputs and attributes in order, and what it is in NumPy."""

    spelled: Callable[..., Value]
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    reference: Callable[..., np.ndarray]
    dtypes: tuple[np.dtype, ...] = (FLOAT32, FLOAT16, FLOAT64)


COMPUTATIONS = {
    "RMSNorm": Computation(
        rms_norm, ("x", "w"), ("eps",), lambda x, w, eps: w * x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)
    ),
    "LayerNorm": Computation(
        layer_norm,
        ("x", "w", "b"),
        ("eps",),
        lambda x, w, b, eps: w * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + b,
    ),
    "Rotary": Computation(rotary, ("x", "cos", "sin"), (), lambda x, cos, sin: x * cos + _rotate_half(x) * sin),
    "SwiGLU": Computation(swiglu, ("g", "u"), (), lambda g, u: g / (1 + np.exp(-g)) * u),
    "GELU": Computation(gelu_erf, ("x",), (), lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), (FLOAT32, FLOAT16)),
    "GELUTanh": Computation(gelu_tanh, ("x",), (), _gelu_tanh),
    "GeGLU": Computation(geglu_tanh, ("g", "u"), (), lambda g, u: _gelu_tanh(g) * u),
    "ScaledSoftplus": Computation(scaled_softplus, ("x",), ("beta",), lambda x, beta: np.logaddexp(0, beta * x) / beta),
    "MaskedSoftmax": Computation(masked_softmax, ("x", "m"), (), lambda x, m: _softmax(x + m)),
    "ChosenSoftmax": Computation(chosen_softmax, ("x", "m"), (), _chosen_softmax),
    "Attention": Computation(
        attention,
        ("q", "k", "v", "m"),
        ("scale",),
        lambda q, k, v, m, scale: _softmax(q @ np.swapaxes(k, -1, -2) * scale + m) @ v,
    ),
}


def spelled_place(s: Speller, name: str, inputs: Sequence[Value], attributes: dict[str, float]) -> Value:
    """Return the output of a computation, at times computed in a wider type."""
    computation = COMPUTATIONS[name]

    def in_a_wider_type() -> Value:
        wide = [s.cast(value, s.wider(value.dtype)) for value in inputs]
        return s.cast(computation.spelled(s, *wide, **attributes), inputs[0].dtype)

    wider = inputs[0].dtype != FLOAT64 and s.wider(inputs[0].dtype) in computation.dtypes
    is_island = wider and s.likely(0.35 if inputs[0].dtype == FLOAT16 else 0.05)
    return s.choose(
        {
            "in one type": None if is_island else lambda: computation.spelled(s, *inputs, **attributes),
            "in a wider type": is_island and in_a_wider_type,
        }
    )
