"""Terms: what a value of a graph computes, in a form in which equal computations are equal objects.

A value is a number times a term. A term is a leaf, a product of powers, a sum, or the call of an operator. Products and
sums have no order. Two terms of one `Terms` are the same object if they compute the same from the same leaves, however
their nodes are written.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx_ir

PRODUCT, SUM, LEAF = "product", "sum", "leaf"
SIZE = "Size"
"""The number of elements along an axis, by its name; if it is 0, neither a mean nor what it divides is a number."""

_FACTORED = 8  # terms of a sum that are searched for common factors


class Factor(NamedTuple):
    """A number, times powers of attributes whose values a pattern leaves open."""

    number: float = 1.0
    attributes: tuple[tuple[str, float], ...] = ()

    def times(self, other: Factor) -> Factor:
        """Return the product of two factors."""
        if not (self.attributes or other.attributes):
            return Factor(self.number * other.number)
        powers = dict(self.attributes)
        for name, power in other.attributes:
            powers[name] = powers.get(name, 0.0) + power
        return Factor(self.number * other.number, tuple(sorted((n, p) for n, p in powers.items() if p)))

    def to_the(self, power: float) -> Factor:
        """Return a power of a factor, whose number is positive unless the power is an integer."""
        return Factor(self.number**power, tuple((name, own * power) for name, own in self.attributes))

    def __str__(self) -> str:
        powers = [name if power == 1 else f"{name}^{power:g}" for name, power in self.attributes]
        return "*".join([*([f"{self.number:.9g}"] if self.number != 1 or not powers else []), *powers])


ONE = Factor()


@dataclass(eq=False)
class Term:
    """What a value is a multiple of.

    Attributes
    ----------
    op : str
        ``"product"``, ``"sum"``, ``"leaf"``, ``"Size"``, or an operator.
    args : tuple of (Factor or float, Term)
        The powers and the terms of a product; otherwise the factors and the terms. The term of a number is `unit`.
    attributes : mapping
        Those of an operator, and the array of a leaf that is a constant.
    names : list of (onnx_ir.Value, Factor)
        The values that are this term, times the factor.
    parts : list of Term
        The products that a product is made of, or the sums of a sum.
    forms : list of (Factor, Term)
        Other forms of the same term: of a sum with factors taken out, of a product without, of a transposed product.
    is_positive : bool
        Whether it is known to be never negative: a sum of squares, for example.
    """

    op: str
    args: tuple[tuple[Any, Term], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    names: list[tuple[onnx_ir.Value, Factor]] = field(default_factory=list)
    parts: list[Term] = field(default_factory=list)
    forms: list[tuple[Factor, Term]] = field(default_factory=list)
    is_positive: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_positive = self._is_positive()

    def _is_positive(self) -> bool:
        if self.op == PRODUCT:
            return all(power == int(power) and (power % 2 == 0 or part.is_positive) for power, part in self.args)
        if self.op in ("Exp", SIZE):
            return True
        inner = self.op in (SUM, "ReduceMean", "ReduceSum", "Reshape")
        return inner and all(
            factor.number >= 0 and not factor.attributes and part.is_positive for factor, part in self.args
        )

    def powers(self) -> dict[Term, float]:
        """Return the term as a product: the powers of its terms."""
        return {term: power for power, term in self.args} if self.op == PRODUCT else {self: 1.0}

    @functools.cached_property
    def size(self) -> int:
        """How many operators and constants the term has; what it has several times counts once."""
        found, rest = dict[Term, int](), [self]
        while rest:
            term = rest.pop()
            if term not in found:
                inner = [part for _, part in term.args]
                found[term] = bool(inner) + sum(part.op == PRODUCT and not part.args for part in inner)
                rest += inner
        return sum(found.values())

    def describe(self, depth: int = 2) -> str:
        """Return the term as a formula of limited depth."""
        if self.op == LEAF or depth < 0:
            return next((str(value.name) for value, _ in self.names), "constant" if self.op == LEAF else "...")
        inner = [(factor, term, term.describe(depth - 1)) for factor, term in self.args]
        if self.op == PRODUCT:
            return "*".join(sorted(t if power == 1 else f"{t}^{power:g}" for power, _, t in inner)) or "1"
        parts = [t if f == ONE else f"{f}*{t}" if term.args or term.op != PRODUCT else str(f) for f, term, t in inner]
        if self.op == SUM:
            return f"({' + '.join(sorted(parts))})"
        return f"{self.op}({', '.join([*parts, *(f'{k}={v}' for k, v in self.attributes.items())])})"


Scaled = tuple[Factor, Term]


class Terms:
    """The terms of one model or pattern; equal terms are one object."""

    def __init__(self) -> None:
        self._made: dict[Any, Term] = {}
        self.unit = self._term(PRODUCT, ())

    def leaf(self, value: onnx_ir.Value | None, array: Any = None) -> Term:
        """Return the term of a value that nothing is known of, or that is a constant."""
        return Term(LEAF, attributes={} if array is None else {"array": array})

    def call(self, op: str, args: Iterable[Scaled], unique: Any = None, **attributes: Any) -> Term:
        """Return the call of an operator.

        Parameters
        ----------
        unique : object, optional
            What else must be equal in equal calls.
        """
        return self._term(op, tuple(args), attributes, unique)

    def call_reduced(self, op: str, x: Scaled, axes: tuple[int, ...]) -> Scaled:
        """Return a mean or a sum along axes counted from the last one, which stay as axes of size 1."""
        return x[0], self.call(op, [(ONE, x[1])], axes=axes)

    def softmax(self, x: Scaled, axis: int) -> Scaled:
        """Return a softmax; that of a transposed tensor is the transposed softmax."""
        factor, term = x
        if term.op == "Transpose":
            permutation = term.attributes["perm"]
            inner = self.softmax((factor, term.args[0][1]), permutation[axis] - len(permutation))
            return self.transposed(inner, permutation)
        if term.op == SUM and factor.number < 0:
            factor, term = self._scaled_by(factor.times(Factor(-1.0)), self.sum(_negated(term.args)))
        if term.op == SUM:  # the largest element may be subtracted
            rest = [item for item in term.args if not (item[0].number < 0 and item[1].op == "ReduceMax")]
            largest = [(own, part) for own, part in term.args if own.number < 0 and part.op == "ReduceMax"]
            if len(largest) == 1 and self._is_reduced(*largest[0], self.sum(rest), axis):
                factor, term = self._scaled_by(factor, self.sum(rest))
        return ONE, self.call("Softmax", [(factor, term)], axis=axis)

    def softmax_of_logarithm(self, x: Scaled) -> Scaled | None:
        """Return ``exp(x)`` as a softmax, if ``x`` is something minus the logarithm of the sum of its exponentials."""
        args = [(x[0].times(own), part) for own, part in x[1].args] if x[1].op == SUM else []
        for own, part in args:
            rest = self.sum(item for item in args if item[1] is not part)
            if part.op == "ReduceLogSumExp" and self._is_reduced(own, part, rest, part.attributes["axes"][-1]):
                return self.softmax(rest, part.attributes["axes"][-1])
        return None

    def _is_reduced(self, factor: Factor, term: Term, x: Scaled, axis: int) -> bool:
        """Return whether a term is minus the reduction of `x` along an axis."""
        return factor == Factor(-1.0) and term.args[0] == x and term.attributes["axes"] == (axis,)

    def _scaled_by(self, factor: Factor, x: Scaled) -> Scaled:
        return factor.times(x[0]), x[1]

    def transposed(self, x: Scaled, permutation: tuple[int, ...]) -> Scaled:
        """Return a term with its axes in another order."""
        factor, term = x
        if term.op == "Transpose":
            permutation = tuple(term.attributes["perm"][axis] for axis in permutation)
            term = term.args[0][1]
        order = tuple(range(len(permutation)))
        if permutation == order:
            return factor, term
        swapped = (*order[:-2], *order[:-3:-1])
        made = self.call("Transpose", [(ONE, term)], perm=permutation)
        if term.op == "MatMul" and permutation == swapped and not made.forms:
            (_, a), (_, b) = (self.transposed(item, swapped) for item in term.args)
            _add_form(made, (ONE, self.call("MatMul", [(ONE, b), (ONE, a)])))
        return factor, made

    def product(self, items: Iterable[tuple[float, Scaled]]) -> Scaled:
        """Return the product of powers.

        Powers of one term are joined if they are integers of the same sign, or if the term is never negative:
        otherwise the product of two roots is not defined for the same numbers. Sizes cancel.
        """
        given = list(items)
        factor, powers = ONE, dict[Term, float]()
        for power, (own, term) in given:
            factor = factor.times(own.to_the(power))
            for exponent, part in _raised(term, power):
                known = powers.get(part, exponent)
                is_whole = known == int(known) and exponent == int(exponent)
                is_joined = part.op == SIZE or (known * exponent > 0 and (is_whole or part.is_positive))
                if part in powers and not is_joined:
                    base = self._term(PRODUCT, ((exponent, part),))
                    powers[base] = powers.get(base, 0.0) + 1
                else:
                    powers[part] = powers.get(part, 0.0) + exponent
        factor = self._join_softmax(factor, powers)
        args = [(power, term) for term, power in powers.items() if power]
        if len(args) == 1 and args[0][0] == 1:
            return factor, args[0][1]
        made = self._term(PRODUCT, tuple(sorted(args, key=_by_identity)))
        made.parts += [term for _, (_, term) in given if term.op == PRODUCT and term is not made]
        return factor, made

    def sum(self, items: Iterable[Scaled]) -> Scaled:
        """Return the sum of scaled terms; multiples of one term are joined."""
        every = [(factor, term) for factor, term in items]
        given = [item for item in every if item != (Factor(0.0), self.unit)] or every[:1]
        if len(given) == 1:
            return given[0]
        whole = self._sum(given)
        if any(term.op == SUM for _, term in given) and whole[1].op == SUM:
            # As a sum of sums it may have a common factor.
            other, is_product = self._factored(self._joined(given, False))
            if other is not None and is_product:
                _add_form(whole[1], (other[0].times(whole[0].to_the(-1)), other[1]))
        return whole

    def _sum(self, given: Sequence[Scaled]) -> Scaled:
        args = self._joined(given, True)
        if len(args) == 1:
            return args[0]
        if len(args) == 2 and (sigmoid := self._other_sigmoid(args)) is not None:
            return sigmoid
        made = self._term(SUM, tuple(sorted(args, key=_by_identity)))
        made.parts += [term for _, term in given if term.op == SUM and term is not made]
        factored, is_product = self._factored(made.args)
        if factored is None:
            return ONE, made
        if not is_product:
            _add_form(made, factored)
            return ONE, made
        factor, product = factored
        if factor.number and not factor.attributes:
            _add_form(product, (factor.to_the(-1), made))
        return factored

    def sigmoid(self, x: Scaled) -> Scaled:
        """Return ``1 / (1 + exp(-x))``."""
        exp = self.call("Exp", [(x[0].times(Factor(-1.0)), x[1])])
        return self.product([(-1.0, self.sum([(ONE, self.unit), (ONE, exp)]))])

    def _other_sigmoid(self, args: Sequence[Scaled]) -> Scaled | None:
        """Return ``c - c * sigmoid(x)`` as ``c * sigmoid(-x)``."""
        for (factor, term), (own, part) in (args, args[::-1]):
            is_power = term is self.unit and part.op == PRODUCT and len(part.args) == 1 and part.args[0][0] == -1
            inner = part.args[0][1] if is_power and own == factor.times(Factor(-1.0)) else None
            if inner is not None and inner.op == SUM and len(inner.args) == 2:
                exps = [own_term for one, own_term in inner.args if one == ONE and own_term.op == "Exp"]
                if exps and (ONE, self.unit) in inner.args:
                    number, found = self.sigmoid(exps[0].args[0])
                    return factor.times(number), found
        return None

    def _joined(self, given: Sequence[Scaled], flat: bool) -> list[Scaled]:
        """Return the addends of a sum, multiples of one term joined; `flat` also takes apart the sums among them."""
        numbers, symbolic = dict[Term, float](), list[Scaled]()
        for factor, term in given:
            for own, part in term.args if flat and term.op == SUM else ((ONE, term),):
                whole = factor.times(own)
                if whole.attributes:
                    symbolic.append((whole, part))
                else:
                    numbers[part] = numbers.get(part, 0.0) + whole.number
        if numbers.get(self.unit) == 0 and len(numbers) + len(symbolic) > 1:
            del numbers[self.unit]
        return [*((Factor(number), term) for term, number in numbers.items()), *symbolic]

    def _join_softmax(self, factor: Factor, powers: dict[Term, float]) -> Factor:
        """Replace an exponential over the sum of the same exponentials by a softmax; return the factor."""
        for part, power in list(powers.items()):
            inner = part.args[0][1] if part.op == "ReduceSum" and power == -1 else None
            if inner is not None and inner.op == "Exp" and powers.get(inner) == 1 and len(part.attributes["axes"]) == 1:
                del powers[part], powers[inner]
                own, softmax = self.softmax(inner.args[0], part.attributes["axes"][0])
                powers[softmax] = powers.get(softmax, 0.0) + 1
                factor = factor.times(own)
        return factor

    def _factored(self, args: Sequence[Scaled]) -> tuple[Scaled | None, bool]:
        """Return a sum with the factors taken out that most of its terms have in common, and whether all have them."""
        products = [term.powers() for _, term in args]
        best, chosen = dict[Term, float](), list[int]()
        for first, second in itertools.combinations(range(min(len(args), _FACTORED)), 2):
            common = _common(products[first], products[second])
            sharing = [i for i, own in enumerate(products) if _common(common, own) == common] if common else []
            if (len(sharing), len(common)) > (len(chosen), len(best)):
                best, chosen = common, sharing
        if not best:
            return None, False
        inner, rest = [], [item for i, item in enumerate(args) if i not in chosen]
        parts = [part for i in chosen for part in (args[i][1], *args[i][1].parts) if part.op == PRODUCT]
        for i in chosen:
            left = [(power - best.get(term, 0.0), (ONE, term)) for term, power in products[i].items()]
            one, term = self.product(item for item in left if item[0])
            term.parts += parts if term.op == PRODUCT else []
            inner.append((args[i][0].times(one), term))
        whole = self.product([(1.0, self.sum(inner)), *((power, (ONE, term)) for term, power in best.items())])
        whole[1].parts += parts if whole[1].op == PRODUCT else []
        return (self.sum([whole, *rest]), False) if rest else (whole, True)

    def _term(self, op: str, args: tuple[Any, ...], attributes: Mapping[str, Any] | None = None, *unique: Any) -> Term:
        given = attributes or {}
        key = op, tuple((factor, id(term)) for factor, term in args), repr(sorted(given.items())), unique
        return self._made.setdefault(key, Term(op, args, given))


def _negated(items: Iterable[Scaled]) -> list[Scaled]:
    return [(factor.times(Factor(-1.0)), term) for factor, term in items]


def _add_form(term: Term, form: Scaled) -> None:
    if form not in term.forms and form[1] is not term:
        term.forms.append(form)


def _common(a: Mapping[Term, float], b: Mapping[Term, float]) -> dict[Term, float]:
    """Return the powers that two products share."""
    return {term: min(power, b[term], key=abs) for term, power in a.items() if power * b.get(term, 0.0) > 0}


def _raised(term: Term, power: float) -> list[tuple[float, Term]]:
    """Return the power of a term as powers of parts, as far as they are defined for the same numbers."""
    powers = term.powers()
    is_same = power in (1, -1) or [*powers.values()] == [-1]
    if is_same or (power == int(power) and all(own == int(own) or part.is_positive for part, own in powers.items())):
        return [(own * power, part) for part, own in powers.items()]
    return [(power, term)]


def _by_identity(item: tuple[Any, Term]) -> int:
    return id(item[1])
