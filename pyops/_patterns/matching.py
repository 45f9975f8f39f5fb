"""Matching of a value of a model with a pattern: its inputs and attributes, or what differs first."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx_ir

from .normal_form import NormalForm
from .terms import LEAF, ONE, PRODUCT, SUM, Factor, Scaled, Term
from .value_types import FLOATS, same_shape

ANY = "*"
"""Stands in factors of a pattern that depend on sizes, and matches any number."""

_STEPS = 20_000
_TOLERANCE = 1e-6  # of constants, relative
_TOLERANCES = {"float16": 6e-4, "bfloat16": 5e-3, "float64": 1e-12}  # a pattern of other sizes is of float32
_SHAPED = {"Reshape", "Expand"}  # their targets are compared once the sizes of a place are known
_LINEAR = {"MatMul", "Transpose", "ReduceMean", "ReduceSum", "Slice", *_SHAPED}
_ODD = {"Erf"}
_COMMUTATIVE = {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min"}  # of integers and booleans


class Bound(NamedTuple):
    """The value that is an input of a pattern, and the order in which its axes are taken, if that is another."""

    value: onnx_ir.Value
    permutation: tuple[int, ...] = ()


class State(NamedTuple):
    """What is known of a place.

    Attributes
    ----------
    inputs, attributes : mapping
        By name.
    agreeing : int
        How many operators and constants agree.
    equations : tuple of (Factor, float)
        Factors of the pattern in which more than one attribute is open, and the numbers of the model that they are.
    matched : mapping of (Term, Term) to float
        Terms of the pattern and of the model that match, and how many times as large the latter are.
    """

    inputs: Mapping[str, Bound]
    attributes: Mapping[str, float]
    agreeing: int
    equations: tuple[tuple[Factor, float], ...] = ()
    matched: Mapping[tuple[Term, Term], float] = {}

    def counted(self) -> State:
        """Return the state with one more operator or constant."""
        return self._replace(agreeing=self.agreeing + 1)


@dataclass
class Difference:
    """Where a value of a model differs from a pattern.

    Attributes
    ----------
    count, total : int
        How many operators and constants of the pattern agree, and how many it has.
    reason : str
        What differs.
    """

    count: int
    total: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} of {self.total}: {self.reason}"


Found = Iterator[tuple[State, float]]
"""Ways to match a term of a pattern with one of a model, which is a number times as large."""


class Matcher:
    """The comparison of one pattern with values of one model.

    Parameters
    ----------
    root : (Factor, Term)
        What the pattern computes; its leaves are its inputs.
    form : NormalForm
        The model's.
    dims : mapping, optional
        What the dimensions of the pattern are in the model: targets of Reshape and Expand are then compared, too.
    removed : collection of onnx_ir.Node, optional
        The nodes that other places replace: their values cannot be inputs.
    """

    def __init__(
        self,
        root: Scaled,
        form: NormalForm,
        dims: Mapping[Any, Any] | None = None,
        removed: Collection[onnx_ir.Node] = (),
    ) -> None:
        self.root, self._form, self._dims, self._removed = root, form, dims, removed
        self._end = 0
        self.total = root[1].size + 1
        self._best = Difference(-1, self.total, "")
        self._steps = 0
        self._tolerance = _TOLERANCE
        self._others: set[str] = set()
        self._half: np.dtype[Any] | None = None

    def match(self, value: onnx_ir.Value, start: State = State({}, {}, 0)) -> State | Difference:  # noqa: B008
        """Return how a value matches the pattern, or the difference that was found last."""
        self._best, self._steps = Difference(-1, self.total, ""), 0
        producer, found_type = value.producer(), self._form.type(value)
        self._end = 0 if producer is None else self._form.position[producer]
        dtype = "" if found_type is None else found_type.dtype.name
        self._others = FLOATS - {dtype} if dtype in FLOATS else set()
        self._half = found_type.dtype if found_type is not None and "float16" in dtype else None
        is_exact = self._dims is not None or dtype != "float64"
        self._tolerance = _TOLERANCES.get(dtype, _TOLERANCE) if is_exact else _TOLERANCE
        factor, term = self._form.of(value)
        try:
            for state, ratio in self._match(self.root[1], term, start):
                for found in self._solve(self.root[0], factor.number * ratio, state):
                    return found
        except OverflowError:
            return Difference(0, self.total, "a power of its numbers is larger than float64 can hold")
        except RecursionError:
            return Difference(0, self.total, "its nodes depend on one another in too long a chain")
        return self._best

    def _fail(self, state: State, reason: Callable[[], str]) -> None:
        """Store the reason if more agrees than before; it is a function because describing a term takes time."""
        if state.agreeing > self._best.count:
            self._best = Difference(state.agreeing, self.total, reason())

    def _is_too_long(self, state: State) -> bool:
        """Return whether there are too many ways to match a value, which ends the search."""
        self._steps += 1
        if self._steps > _STEPS:
            self._fail(state.counted(), lambda: f"more than {_STEPS:,} ways to match it were tried")
        return self._steps > _STEPS

    # Numbers.

    def _close(self, a: float, b: float) -> bool:
        same = math.isclose(a, b, rel_tol=self._tolerance)
        return same or (self._half is not None and bool(self._half.type(a) == self._half.type(b)))

    def _value(self, factor: Factor, state: State) -> float | None:
        """Return the number that a factor of the pattern is, None if an attribute is open."""
        number = factor.number
        for name, power in factor.attributes:
            if name not in state.attributes:
                return None
            number *= state.attributes[name] ** power
        return number

    def _solve(self, factor: Factor, number: float, state: State) -> Iterator[State]:
        """Yield the state in which a factor of the pattern is a number of the model."""
        if any(name == ANY for name, _ in factor.attributes):
            yield state.counted()
            return
        open_ = [(name, power) for name, power in factor.attributes if name not in state.attributes]
        known = self._value(factor._replace(attributes=tuple(a for a in factor.attributes if a not in open_)), state)
        assert known is not None
        if not open_:
            if self._close(known, number):
                yield state.counted()
            else:
                self._fail(state, lambda: f"the constant is {number:.9g} in the model and {known:.9g} in the pattern")
        elif not number / known > 0:
            self._fail(state, lambda: f"{factor} in the pattern cannot be {number:.9g}")
        elif len(open_) > 1:
            yield state._replace(equations=(*state.equations, (factor, number)))
        else:
            ((name, power),) = open_
            found = {**state.attributes, name: (number / known) ** (1 / power)}
            yield from self._solve_all(state.equations, state._replace(attributes=found, equations=()).counted())

    def _solve_all(self, equations: Sequence[tuple[Factor, float]], state: State) -> Iterator[State]:
        if not equations:
            yield state
            return
        for solved in self._solve(*equations[0], state):
            yield from self._solve_all(equations[1:], solved)

    # Terms.

    def _match(self, pattern: Term, term: Term, state: State) -> Found:
        if self._is_too_long(state):
            return
        if pattern.op == LEAF:
            yield from self._leaf(pattern, term, state)
            return
        if pattern.op == PRODUCT and not pattern.args:
            if term is self._form.terms.unit:
                yield state, 1.0
            else:
                self._fail(state, lambda: f"a constant in the pattern, {term.describe(1)} in the model")
            return
        if (pattern, term) in state.matched:
            yield state, state.matched[pattern, term]
            return
        for factor, own in _forms(pattern):
            for other, found in _forms(term):
                for result, ratio in self._same_kind(own, found, state):
                    divisor = self._value(factor, result)
                    if divisor:
                        whole = other.number * ratio / divisor
                        yield result._replace(matched={**result.matched, (pattern, term): whole}), whole

    def _same_kind(self, pattern: Term, term: Term, state: State) -> Found:
        if pattern.op == PRODUCT:
            factors = sorted(((t, power) for power, t in pattern.args), key=_order)
            yield from self._product(factors, term, term.powers(), state.counted(), 1.0)
        elif pattern.op != term.op:
            self._fail(state, lambda: f"{pattern.describe(1)} in the pattern, {term.describe(1)} in the model")
        elif pattern.op == SUM:
            parts = sorted(pattern.args, key=lambda item: (bool(item[0].attributes), *_order((item[1], 1.0))))
            yield from self._sum(parts, term, {t: factor.number for factor, t in term.args}, state.counted(), None)
        else:
            yield from self._call(pattern, term, state)

    def _leaf(self, pattern: Term, term: Term, state: State) -> Found:
        if "array" in pattern.attributes:
            array, other = pattern.attributes["array"], term.attributes.get("array") if term.op == LEAF else None
            if other is not None and (
                array is None or (array.shape == other.shape and np.allclose(array, other, self._tolerance, 0))
            ):
                yield state.counted(), 1.0
            else:
                known = reprlib.repr(None if array is None else array.tolist())
                self._fail(state, lambda: f"the constant {known} in the pattern, {term.describe(1)} in the model")
            return
        for value, factor in term.names:
            if factor.number and (bound := self._bind(pattern, Bound(value), state)) is not None:
                yield bound, 1 / factor.number
        if not term.names:
            self._fail(state, lambda: f"{pattern.describe()} would be {term.describe(1)}, which no node computes")

    def _bind(self, pattern: Term, bound: Bound, state: State) -> State | None:
        name = pattern.describe()
        known, found = state.inputs.get(name), self._form.type(bound.value)
        if (found is not None and found.dtype.name in self._others) or not self._is_available(bound.value):
            return None
        if known is None:
            return state._replace(inputs={**state.inputs, name: bound})
        same = known.permutation == bound.permutation and (
            known.value is bound.value or self._form.of(known.value) == self._form.of(bound.value)
        )
        if not same:
            self._fail(state, lambda: f"{name} is both {known.value.name} and {bound.value.name}")
        return state if same else None

    def _is_available(self, value: onnx_ir.Value) -> bool:
        """Return whether a value is computed before the place ends, and by a node that stays."""
        node = value.producer()
        return node is None or (node not in self._removed and self._form.position[node] < self._end)

    def _call(self, pattern: Term, term: Term, state: State) -> Found:
        if pattern.op == "Transpose" and pattern.args[0][1].op == LEAF:
            yield from self._transposed(pattern, term, state)
            return
        problem = self._other_attributes(pattern, term)
        if problem:
            self._fail(state.counted(), lambda: f"{pattern.op}: {problem}")
            return
        if len(pattern.args) != len(term.args):
            self._fail(
                state, lambda: f"{pattern.op} has {len(pattern.args)} inputs in the pattern, {len(term.args)} here"
            )
            return
        orders = [term.args, term.args[::-1]] if pattern.op in _COMMUTATIVE else [term.args]
        for args in orders:
            yield from self._args(pattern, list(zip(pattern.args, args, strict=True)), state.counted(), 1.0)

    def _args(self, pattern: Term, pairs: Sequence[tuple[Scaled, Scaled]], state: State, ratio: float) -> Found:
        if not pairs:
            yield state, ratio
            return
        (factor, own), (other, found) = pairs[0]
        is_scaled = pattern.op in _LINEAR and factor == other == ONE
        for result, times in self._match(own, found, state):
            if is_scaled:
                yield from self._args(pattern, pairs[1:], result, ratio * times)
                continue
            if factor == ONE and self._close(other.number * times, 1.0):
                solved = [result]
            else:
                solved = list(self._solve(factor, other.number * times, result))
            for each in solved:
                yield from self._args(pattern, pairs[1:], each, ratio)
            if pattern.op in _ODD:
                for each in self._solve(factor, -other.number * times, result):
                    yield from self._args(pattern, pairs[1:], each, -ratio)

    def _transposed(self, pattern: Term, term: Term, state: State) -> Found:
        """Match a transposed input: the input may be a value of the model in another order."""
        (_, leaf), wanted = pattern.args[0], pattern.attributes["perm"]
        own, inner = (term.attributes["perm"], term.args[0][1]) if term.op == "Transpose" else (None, None)
        if own is None or inner is None or len(own) != len(wanted):
            self._fail(state, lambda: f"{pattern.describe(1)} in the pattern, {term.describe(1)} in the model")
            return
        order = [0] * len(own)
        for position, axis in enumerate(wanted):
            order[axis] = own[position]
        permutation = () if order == sorted(order) else tuple(order)
        for value, factor in inner.names:
            if not factor.number:
                continue
            bound = self._bind(leaf, Bound(value, permutation), state.counted())
            if bound is not None:
                yield bound, 1 / factor.number

    def _other_attributes(self, pattern: Term, term: Term) -> str:
        if pattern.op in _SHAPED:
            if self._dims is None or self._same_target(pattern, term):
                return ""
            return f"to {term.attributes['shape']} in the model and {pattern.attributes['shape']} in the pattern"
        for name in sorted({*pattern.attributes, *term.attributes}):
            a, b = pattern.attributes.get(name), term.attributes.get(name)
            if a != b and not (isinstance(a, float) and isinstance(b, float) and self._close(a, b)):
                return f"{name} is {b} in the model and {a} in the pattern"
        return ""

    def _same_target(self, pattern: Term, term: Term) -> bool:
        assert self._dims is not None
        target, other = pattern.attributes["shape"], term.attributes["shape"]
        if target is None or other is None:
            return False
        named = [self._dims.get(dim, dim) for dim in target]
        return named == [*other] if pattern.op == "Expand" else same_shape(named, other)

    def _product(
        self, factors: Sequence[tuple[Term, float]], term: Term, left: Mapping[Term, float], state: State, ratio: float
    ) -> Found:
        if not factors:
            if left:
                self._fail(state, lambda: f"the product in the model has {_described(left)} too")
            else:
                yield state, ratio
            return
        if self._is_too_long(state):
            return
        pattern, power = factors[0]
        is_input = pattern.op == LEAF and "array" not in pattern.attributes
        for value, factor, part in self._candidates(pattern, term, left, state) if is_input else ():
            powers = {part: 1.0} if part in left else part.powers()
            if len(factors) == 1 and len(powers) != len(left):  # of the last factor nothing may be left
                continue
            rest = _without(left, powers, power)
            if rest is not None and (factor.number > 0 or power == int(power)):
                bound = self._bind(pattern, Bound(value), state)
                if bound is not None:
                    yield from self._product(factors[1:], term, rest, bound, ratio * factor.number**-power)
        for other in () if is_input else list(left):
            rest = _without(left, {other: 1.0}, power)
            if rest is None:
                continue
            for result, times in self._match(pattern, other, state):
                if times > 0 or power == int(power):
                    yield from self._product(factors[1:], term, rest, result, ratio * times**power)
        self._fail(state, lambda: f"{pattern.describe(1)} of the product in the pattern is not in {term.describe(1)}")

    def _candidates(
        self, pattern: Term, term: Term, left: Mapping[Term, float], state: State
    ) -> Iterator[tuple[onnx_ir.Value, Factor, Term]]:
        """Yield the values of a product or a sum that an input may be: value == factor * term."""
        known = state.inputs.get(pattern.describe())
        if known is not None:
            if not known.permutation:
                yield known.value, *self._form.of(known.value)
            return
        for part in [*left, *_all_parts(term)]:
            yield from ((value, factor, part) for value, factor in part.names if factor.number)

    def _sum(
        self,
        parts: Sequence[Scaled],
        term: Term,
        left: Mapping[Term, float],
        state: State,
        ratio: float | None,
    ) -> Found:
        if not parts:
            if left:
                self._fail(state, lambda: f"the sum in the model has {_described(left)} too")
            else:
                yield state, 1.0 if ratio is None else ratio
            return
        if self._is_too_long(state):
            return
        factor, pattern = parts[0]
        if pattern.op == LEAF and "array" not in pattern.attributes:
            for value, own, part in self._candidates(pattern, term, left, state):
                times = _multiple(left, part)
                if times is None:
                    continue
                bound = self._bind(pattern, Bound(value), state)
                if bound is not None:
                    rest = {t: n for t, n in left.items() if t is not part and (part.op != SUM or not _has(part, t))}
                    yield from self._add(parts, term, rest, bound, ratio, times / own.number)
        else:
            for other, number in left.items():
                for result, times in self._match(pattern, other, state):
                    rest = {t: n for t, n in left.items() if t is not other}
                    yield from self._add(parts, term, rest, result, ratio, number * times)
        self._fail(
            state, lambda: f"{factor}*{pattern.describe(1)} of the sum in the pattern is not in {term.describe(1)}"
        )

    def _add(
        self,
        parts: Sequence[Scaled],
        term: Term,
        rest: Mapping[Term, float],
        state: State,
        ratio: float | None,
        number: float,
    ) -> Found:
        """Match the other parts of a sum, whose first one is this number times as large in the model."""
        factor = parts[0][0]
        if ratio is None:
            own = self._value(factor, state)
            if own is None:
                ratio = 1.0
            elif own:
                yield from self._sum(parts[1:], term, rest, state, number / own)
                return
            else:
                return
        for solved in self._solve(factor, number / ratio, state) if ratio else ():
            yield from self._sum(parts[1:], term, rest, solved, ratio)


def _described(terms: Iterable[Term]) -> str:
    return ", ".join(item.describe(1) for item in terms)


def _all_parts(term: Term) -> list[Term]:
    found: dict[Term, None] = {}
    rest = list(term.parts)
    while rest:
        part = rest.pop()
        if part not in found:
            found[part] = None
            rest += part.parts
    return list(found)


def _forms(term: Term) -> list[Scaled]:
    return [(ONE, term), *term.forms]


def _order(item: tuple[Term, float]) -> tuple[bool, int]:
    """Return a key that sorts the largest terms first, and inputs last."""
    return item[0].op == LEAF, -item[0].size


def _without(left: Mapping[Term, float], powers: Mapping[Term, float], power: float) -> dict[Term, float] | None:
    """Return what is left of a product without the power of another one; None if that is no part of it."""
    rest = dict[Term, float]()
    for term, own in powers.items():
        wanted, found = own * power, left.get(term, 0.0)
        is_part = wanted == found or (
            wanted * found > 0 and abs(found) > abs(wanted) and wanted == int(wanted) and found == int(found)
        )
        if not is_part:
            return None
        rest[term] = found - wanted
    return {term: found for term, found in ({**left, **rest}).items() if found}


def _multiple(left: Mapping[Term, float], part: Term) -> float | None:
    """Return how many times a term, or a sum of terms, is in a sum; None if it is not."""
    if part in left:
        return left[part]
    if part.op != SUM:
        return None
    ratios = [left.get(term, 0.0) / factor.number for factor, term in part.args if factor.number]
    is_multiple = len(ratios) == len(part.args) and all(math.isclose(r, ratios[0], rel_tol=1e-6) for r in ratios)
    return ratios[0] if is_multiple and ratios[0] else None


def _has(part: Term, term: Term) -> bool:
    return any(own is term for _, own in part.args)
