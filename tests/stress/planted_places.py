"""Random models in which known computations are spelled in random ways, and models that are one change away from them.

``planted(seed)`` makes a model with one to three places. Each computes one of ``spellings.COMPUTATIONS`` in a random
spelling, between nodes that have nothing to do with it: ranks from 2 to 4, static and named sizes, float32, float16 and
float64, opsets 13 to 23. The truth is in ``places``. A model may have other places by chance: ``differs`` says whether
putting ops there was right.

``near_miss(seed)`` makes the model of ``planted(seed)`` with one change in one place. Most changes make another
function of it, some are harmless; of those of kind ``shared`` the place is still right, if the values that are shared
stay. ``differs`` decides by numbers.

Attributes in ``places`` are nominal: a model of float16 has them, or their reciprocals or roots, rounded to float16.

``python tests/stress/planted_places.py SEED`` prints both models of a seed.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from models_differ import differs
from small_graphs import FLOAT16, FLOAT32, FLOAT64, INT32, INT64, TYPES, Graph, Node, Shape, UnfitError, Value
from spellings import COMPUTATIONS, INT64_MAX, UNSTEADY, Speller, spelled_place

__all__ = ["COMPUTATIONS", "KINDS", "UNSTEADY", "NearMiss", "Place", "Planted", "differs", "near_miss", "planted"]

EPSILONS = (1e-5, 1e-6, 1e-12, 3e-4, 1e-3)
NORMALS = np.random.default_rng(0).standard_normal(10_000)
BETAS = (0.5, 1.0, 1.702, 2.0, 3.0)


@dataclass(frozen=True)
class Place:
    """A computation, the values between which the model computes it, and the spellings that were drawn."""

    computation: str
    output: str
    inputs: tuple[str, ...]
    attributes: dict[str, float]
    spelling: tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    seed: int
    model: onnx.ModelProto
    places: tuple[Place, ...]


@dataclass(frozen=True)
class NearMiss:
    """A model, the places before the change, and the change: in which place, of which kind, and in words."""

    seed: int
    model: onnx.ModelProto
    places: tuple[Place, ...]
    changed: int
    kind: str
    what: str

    @property
    def shared(self) -> bool:
        return self.kind == "shared"


def planted(seed: int, spelling: int = 0) -> Planted:
    """Return the model of a seed, and what it computes where; the same model with another spelling."""
    scene = Scene(seed, spelling)
    return Planted(seed, scene.graph.model(shuffled=scene.graph.likely(0.2)), tuple(scene.places))


def near_miss(seed: int, kind: str | None = None) -> NearMiss:
    """Return the model of a seed with one change, of a given kind where one is possible."""
    scene = Scene(seed)
    rng = random.Random(f"near {seed}")
    while True:
        wanted, changed = kind or rng.choice(list(KINDS)), rng.randrange(len(scene.places))
        for _ in range(8):
            edit = Edit(scene.graph.copy(), rng, changed, scene.places[changed])
            try:
                what = KINDS[wanted](edit)
                if what is None:
                    break
                model = edit.graph.checked().model()
            except UnfitError:
                continue
            return NearMiss(seed, model, tuple(scene.places), changed, wanted, what)
        kind = None


class Scene:
    """A graph with places, and the values of its main shape that further nodes may read."""

    def __init__(self, seed: int, spelling: int = 0) -> None:
        rng = random.Random(seed)
        self.rng = rng
        self.dtype = rng.choices([FLOAT32, FLOAT16, FLOAT64], [8, 1, 1])[0]
        self.graph = Speller(rng.randint(13, 23), random.Random(f"{seed} {spelling}"), self.dtype)
        self.shape = self._shape()
        self.width = self.shape[-1]
        self.pool = [self.graph.input(self.shape, self.dtype)]
        self.places: list[Place] = []
        self.surround(2)
        for _ in range(rng.choices([1, 2, 3], [5, 3, 2])[0]):
            self.plant(rng.choice([name for name in COMPUTATIONS if self.fits(name)]))
            self.surround(2)
        self._end()

    def _shape(self) -> Shape:
        width = self.rng.choice([4, 6, 8])
        rows = self.rng.choice(["tokens", width, width, 3, 5])
        leading = [self.rng.choice(["batch", 1, 2, 3]), self.rng.choice([1, 2, width])][: self.rng.randint(0, 2)]
        return (*leading, rows, "width" if self.rng.random() < 0.2 else width)

    def fits(self, name: str) -> bool:
        is_static = isinstance(self.width, int)
        return self.dtype in COMPUTATIONS[name].dtypes and (is_static or name != "Rotary")

    # Values that a place reads.

    def normal(self, shape: Shape, spread: float = 1.0, centre: float = 0.0) -> np.ndarray:
        size = math.prod(shape)
        start = self.rng.randrange(len(NORMALS) - size)
        return (NORMALS[start : start + size].reshape(shape) * spread + centre).astype(self.dtype)

    def fresh(self, shape: Shape, spread: float = 1.0, centre: float = 0.0) -> Value:
        """Return an initializer or an input."""
        if all(isinstance(size, int) for size in shape) and self.rng.random() < 0.5:
            node = "value" if self.rng.random() < 0.3 else None
            return self.graph.constant(self.normal(shape, spread, centre), node=node)
        return self.graph.input(shape, self.dtype)

    def seen(self) -> Value:
        return self.rng.choice(self.pool[-3:])

    def like_seen(self) -> Value:
        """Return a value of the main shape: one that there is, or a new input or projection."""
        kind = self.rng.random()
        if kind < 0.4:
            return self.seen()
        if kind < 0.7 and isinstance(self.width, int):
            return self.projected(self.seen())
        return self.graph.input(self.shape, self.dtype)

    def projected(self, x: Value) -> Value:
        weights = self.graph.constant(self.normal((self.width, self.width), self.width**-0.5))
        return self.graph.add("MatMul", x, weights)

    def weights(self, centre: float) -> Value:
        """Return a value of the size of the last dimension: ``[d]``, or ``[1, d]``."""
        ones = self.rng.choices([0, 1, len(self.shape) - 1], [8, 1, 1])[0]
        found = self.fresh((*(1,) * ones, self.width), 0.3, centre)
        if self.rng.random() < 0.15:
            return self.graph.add("Add", found, self.graph.constant(np.ones(1, self.dtype)))
        return found

    def mask(self, shape: Shape) -> Value:
        """Return a value that broadcasts to a shape: of its last two dimensions, of all, or of the last."""
        kept = self.rng.choice([shape[-2:], shape[-2:], shape, (*(1,) * (len(shape) - 2), *shape[-2:]), shape[-1:]])
        if all(isinstance(size, int) for size in kept) and len(kept) > 1 and self.rng.random() < 0.4:
            hidden = self.rng.choice([-np.inf, -1e4])
            return self.graph.constant(np.triu(np.full(kept, hidden, self.dtype), 1))
        return self.fresh(kept)

    def angles(self) -> tuple[Value, Value]:
        shape = self.rng.choice([self.shape[-2:], (*(1,) * (len(self.shape) - 2), *self.shape[-2:]), self.shape])
        if self.rng.random() < 0.3:
            angle = self.graph.input(shape, self.dtype)
            return self.graph.add("Cos", angle), self.graph.add("Sin", angle)
        return self.fresh(shape), self.fresh(shape)

    def attended(self) -> list[Value]:
        if self.rng.random() < 0.5:
            return [self.like_seen(), self.like_seen(), self.like_seen(), self.mask((*self.shape[:-1], self.shape[-2]))]
        past = self.rng.choice(["past", 4, 7])
        k, v = (self.graph.input((*self.shape[:-2], past, self.width), self.dtype) for _ in range(2))
        return [self.like_seen(), k, v, self.mask((*self.shape[:-1], past))]

    def gated(self) -> list[Value]:
        """Return a gate and what it lets through: two values, or the halves of one projection."""
        if not isinstance(self.width, int) or self.rng.random() < 0.6:
            return [self.seen(), self.like_seen()]
        weights = self.graph.constant(self.normal((self.width, 2 * self.width), self.width**-0.5))
        both = self.graph.add("MatMul", self.seen(), weights)
        sizes = self.graph.constant(np.full(2, self.width))
        return self.rng.sample(self.graph.add("Split", both, sizes, axis=-1, outputs=2), 2)

    def plant(self, name: str) -> None:
        inputs = {
            "RMSNorm": lambda: [self.seen(), self.weights(1)],
            "LayerNorm": lambda: [self.seen(), self.weights(1), self.weights(0)],
            "Rotary": lambda: [self.seen(), *self.angles()],
            "SwiGLU": self.gated,
            "GELU": lambda: [self.seen()],
            "GELUTanh": lambda: [self.seen()],
            "GeGLU": self.gated,
            "ScaledSoftplus": lambda: [self.seen()],
            "MaskedSoftmax": lambda: [self.seen(), self.mask(self.shape)],
            "ChosenSoftmax": lambda: [self.seen(), self.seen()],
            "Attention": self.attended,
        }[name]()
        attributes = {key: self.rng.choice(self._values(key)) for key in COMPUTATIONS[name].attributes}
        self.spell(name, inputs, attributes)

    def _values(self, key: str) -> list[float]:
        if key == "scale":
            return [0.125, 0.25, 0.5, 1.3] + ([self.width**-0.5] if isinstance(self.width, int) else [])
        if key == "beta":
            return list(BETAS)
        return [eps for eps in EPSILONS if self.dtype != FLOAT16 or eps > 1e-4]

    def spell(self, name: str, inputs: list[Value], attributes: dict[str, float]) -> None:
        graph = self.graph
        graph.place, graph.labels = len(self.places), []
        graph.plain = graph.rng.choice([0.95, 0.8, 0.4, 0.0])
        graph.passes = graph.rng.choice([0.0, 0.0, 0.03, 0.15])
        output = graph.rename(spelled_place(graph, name, inputs, attributes), f"place{len(self.places)}")
        graph.place, graph.passes = None, 0.0
        names = tuple(value.name for value in inputs)
        self.places.append(Place(name, output.name, names, attributes, tuple(graph.labels)))
        self.pool.append(output)

    # What is around the places.

    def surround(self, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            x = self.seen()
            self.pool.append(self.rng.choice(self._surroundings())(x))

    def _surroundings(self) -> list[Callable[[Value], Value]]:
        add = self.graph.add

        def reduced(op: str) -> Callable[[Value], Value]:
            def found(x: Value) -> Value:
                if self.graph.opset >= 18:
                    return add(op, x, self.graph.integers(-1))
                return add(op, x, axes=[-1])

            return found

        def over(norm: Callable[[Value], Value]) -> Callable[[Value], Value]:
            return lambda x: add("Div", x, add("Add", norm(x), self.graph.constant(np.array([0.1], self.dtype))))

        def single(op: str) -> Callable[[Value], Value]:
            return lambda x: add(op, x)

        def double(op: str) -> Callable[[Value], Value]:
            return lambda x: add(op, x, self.rng.choice([y for y in self.pool if y != x] or [self.weights(0)]))

        found: list[Callable[[Value], Value]] = [
            *map(single, ("Relu", "Abs", "Neg", "Sin", "Cos", "Tanh")),
            *map(double, ("Add", "Sub", "Mul", "Max")),
            lambda x: add("Add", x, self.weights(0)),
            lambda x: add("Mul", x, self.weights(1)),
            over(reduced("ReduceL2")),
            over(lambda x: reduced("ReduceMax")(add("Abs", x))),
            lambda x: add("Sub", x, reduced("ReduceMean")(x)),
            lambda x: add("Softmax", x, axis=-1),
        ]
        if isinstance(self.width, int):
            found += [self.projected, self.projected, lambda x: add("Add", self.projected(x), x)]
        return found

    def _end(self) -> None:
        graph = self.graph
        read = graph.readers()
        made = [name for node in graph.nodes if node.place is None for name in node.outputs]
        made += [place.output for place in self.places]
        places = {place.output for place in self.places}
        graph.outputs = [
            name for name in made if name not in read or self.rng.random() < (0.6 if name in places else 0.05)
        ]


# The changes. Each returns what it changed, or None where a place has nothing of the kind.

_OTHERS = {
    "Add": ["Sub", "Mul", "Max"],
    "Sub": ["Add", "Mul"],
    "Mul": ["Add", "Div", "Sub"],
    "Div": ["Mul", "Sub"],
    "Sum": ["Mean", "Max"],
    "Pow": ["Mul", "Div", "Add"],
    "Sqrt": ["Abs", "Exp", "Reciprocal", "Identity"],
    "Reciprocal": ["Neg", "Sqrt", "Identity"],
    "Neg": ["Abs", "Identity", "Reciprocal"],
    "Abs": ["Neg", "Relu"],
    "Relu": ["Abs", "Neg"],
    "Exp": ["Abs", "Relu", "Cos"],
    "Log": ["Sqrt", "Sin"],
    "Sigmoid": ["Tanh", "Relu", "Softplus", "HardSigmoid"],
    "Tanh": ["Sigmoid", "Erf", "Sin", "Softsign"],
    "Erf": ["Tanh", "Sigmoid"],
    "Softplus": ["Relu", "Elu", "Sigmoid"],
    "Softmax": ["LogSoftmax", "Hardmax", "Sigmoid"],
    "LogSoftmax": ["Softmax"],
    "ReduceMean": ["ReduceMax", "ReduceMin", "ReduceL2"],
    "ReduceSum": ["ReduceMax", "ReduceMean"],
    "ReduceMax": ["ReduceMin", "ReduceMean"],
    "ReduceSumSquare": ["ReduceL1", "ReduceL2"],
    "ReduceL2": ["ReduceL1", "ReduceSumSquare"],
    "ReduceLogSumExp": ["ReduceMax"],
    "LayerNormalization": ["RMSNormalization"],
    "Min": ["Add"],
    "Max": ["Neg"],
}
_NOT_IN_FLOAT64 = {"Erf", "Hardmax", "HardSigmoid", "Softplus", "Softsign", "Elu", "Mean"}
_BROADCASTING = {"Add", "Sub", "Mul", "Div", "Sum"}


class Edit:
    """A copy of a graph, one place of which is changed."""

    def __init__(self, graph: Graph, rng: random.Random, index: int, place: Place) -> None:
        self.graph = graph
        self.rng = rng
        self.index = index
        self.place = place
        graph.place = None

    def own(self, *ops: str) -> list[int]:
        return [
            at for at, node in enumerate(self.graph.nodes) if node.place == self.index and (not ops or node.op in ops)
        ]

    def pick(self, found: list[Any]) -> Any:
        return self.rng.choice(found) if found else None

    def change(self, at: int, **changes: Any) -> None:
        self.graph.nodes[at] = replace(self.graph.nodes[at], **changes)

    def rewire(self, at: int, number: int, name: str) -> None:
        inputs = list(self.graph.nodes[at].inputs)
        inputs[number] = name
        self.change(at, inputs=tuple(inputs))

    def constant(self, array: Any, dtype: np.dtype = INT64) -> str:
        return self.graph.constant(np.asarray(array, dtype)).name

    def between(self, at: int, number: int, op: str, *more: str, **attributes: Any) -> int:
        """Put a node before an input of a node, and return where the latter is now."""
        name = self.graph.new_name()
        node = Node(op, (self.graph.nodes[at].inputs[number], *more), (name,), attributes, self.index)
        self.graph.nodes.insert(at, node)
        self.rewire(at + 1, number, name)
        return at + 1

    def edges(self, *ops: str) -> Iterator[tuple[int, int, Value]]:
        """Yield the inputs of the place's nodes that are numbers, with node and position."""
        for at in self.own(*ops):
            for number, name in enumerate(self.graph.nodes[at].inputs):
                is_ratio = self.graph.nodes[at].op == "Dropout" and number
                if name and self.graph.values[name].is_float and not is_ratio:
                    yield at, number, self.graph.values[name]

    def called(self, at: int) -> str:
        node = self.graph.nodes[at]
        return f"{node.op} of {node.outputs[0]}"

    # One method for each kind.

    def constants(self) -> str | None:
        values = self.graph.values
        read = {value.name for _, _, value in self.edges()}
        names = [name for name, place in self.graph.constant_places.items() if place == self.index and name in read]
        written = [
            (at, key)
            for at in self.own()
            for key, value in self.graph.nodes[at].attributes.items()
            if type(value) is float
        ]
        powers = [
            (at, self.graph.nodes[at].inputs[1])
            for at in self.own("Pow")
            if not values[self.graph.nodes[at].inputs[1]].is_float
        ]
        choice = self.pick([*names, *written, *powers])
        if choice is None:
            return None
        factor = self.rng.choice([1.01, 0.99, 1.001, 0.999, -1.0, 10.0, 0.1])
        if choice in powers:
            at, name = choice
            self.rewire(at, 1, self.constant(self.graph.constants[name] + 1))
            return f"the power of {self.called(at)} + 1"
        if choice in written:
            at, key = choice
            attributes = self.graph.nodes[at].attributes
            self.change(at, attributes=attributes | {key: attributes[key] * factor})
            return f"{key} of {self.called(at)} * {factor}"
        old = self.graph.constants[choice]
        new = old.copy()
        at = self.rng.randrange(old.size) if old.size > 1 and self.rng.random() < 0.5 else slice(None)
        part = new.reshape(-1)
        part[at] = np.where(part[at] == 0, 0.01, part[at] * np.asarray(factor, old.dtype))
        self.graph.constants[choice] = part.reshape(old.shape)
        return f"constant {choice} * {factor}" + ("" if isinstance(at, slice) else f" at {at}")

    def axes(self) -> str | None:
        found = []
        for at in self.own():
            node = self.graph.nodes[at]
            by_input = node.op in ("Squeeze", "Unsqueeze") or (node.op.startswith("Reduce") and len(node.inputs) > 1)
            if by_input or {"axis", "axes"} & set(node.attributes):
                found.append((at, by_input))
        if not found:
            return None
        at, by_input = self.rng.choice(found)
        node = self.graph.nodes[at]
        rank = self.graph.values[node.inputs[0]].rank + (node.op == "Unsqueeze")
        axes = self.graph.constants[node.inputs[1]] if by_input else node.attributes.get("axes")
        old = node.attributes["axis"] if axes is None else axes[0]
        axis = self.pick([axis for axis in range(rank) if axis != old % rank])
        if axis is None:
            return None
        if by_input:
            self.rewire(at, 1, self.constant([axis]))
        else:
            given = {"axis": axis} if "axis" in node.attributes else {"axes": [axis]}
            self.change(at, attributes=node.attributes | given)
        return f"axis of {self.called(at)}: {axis}"

    def keepdims(self) -> str | None:
        at = self.pick([at for at in self.own() if self.graph.nodes[at].op.startswith("Reduce")])
        if at is None:
            return None
        attributes = self.graph.nodes[at].attributes
        kept = 1 - attributes.get("keepdims", 1)
        self.change(at, attributes=attributes | {"keepdims": kept})
        return f"keepdims of {self.called(at)}: {kept}"

    def operands(self) -> str | None:
        ops = ("Sub", "Div", "Pow", "MatMul", "Concat", "Gemm", "Einsum", "Attention", "LayerNormalization")
        at = self.pick([at for at in self.own(*ops) if len(self.graph.nodes[at].inputs) > 1])
        if at is None:
            return None
        inputs = list(self.graph.nodes[at].inputs)
        first, second = self.rng.sample(range(len(inputs)), 2)
        inputs[first], inputs[second] = inputs[second], inputs[first]
        self.change(at, inputs=tuple(inputs))
        return f"inputs {first} and {second} of {self.called(at)} swapped"

    def wiring(self) -> str | None:
        edge = self.pick(list(self.edges()))
        if edge is None:
            return None
        at, number, value = edge
        earlier = {name for node in self.graph.nodes[:at] for name in node.outputs}
        earlier.update(item.name for item in self.graph.inputs)
        earlier.update(name for name in self.graph.constants if self.rng.random() < 0.3)
        found = [
            name
            for name in sorted(earlier)
            if name != value.name
            and (self.graph.values[name].shape, self.graph.values[name].dtype) == (value.shape, value.dtype)
        ]
        other = self.pick(found)
        if other is None:
            return None
        self.rewire(at, number, other)
        return f"input {number} of {self.called(at)}: {other} instead of {value.name}"

    def dropped(self) -> str | None:
        values = self.graph.values
        found = [
            (at, value.name)
            for at, _, value in self.edges()
            if (made := values[self.graph.nodes[at].outputs[0]]).shape == value.shape and made.dtype == value.dtype
        ]
        if not found:
            return None
        at, name = self.rng.choice(found)
        what = f"{self.called(at)} left out for its input {name}"
        node = self.graph.nodes[at]
        if self.rng.random() < 0.5 or set(node.outputs) & set(self.graph.outputs) or len(node.outputs) > 1:
            self.change(at, op="Identity", inputs=(name,), outputs=node.outputs[:1], attributes={})
            return what
        for reader, other in enumerate(self.graph.nodes):
            if node.outputs[0] in other.inputs:
                inputs = tuple(name if item == node.outputs[0] else item for item in other.inputs)
                self.change(reader, inputs=inputs)
        return what

    def operators(self) -> str | None:
        at = self.pick(self.own(*_OTHERS, "Gelu"))
        if at is None:
            return None
        node = self.graph.nodes[at]
        called = self.called(at)
        if node.op == "Gelu":
            other = "none" if node.attributes.get("approximate") == "tanh" else "tanh"
            self.change(at, attributes={"approximate": other})
            return f"{called}: approximate={other}"
        made = self.graph.values[node.outputs[0]]
        possible = [
            op
            for op in _OTHERS[node.op]
            if not (made.dtype == FLOAT64 and op in _NOT_IN_FLOAT64)
            and not (op == "RMSNormalization" and self.graph.opset < 23)
        ]
        if node.op == "Pow" and not self.graph.values[node.inputs[1]].is_float:
            return None
        other = self.pick(possible)
        if other is None:
            return None
        kept = node.attributes if node.op.startswith("Reduce") or other.lower().endswith("max") else {}
        if other == "RMSNormalization":
            self.change(at, op=other, inputs=node.inputs[:2], attributes=node.attributes)
        elif node.op.startswith("Reduce") and self.graph.opset < 18 and "ReduceSum" in (node.op, other):
            axes = kept["axes"] if "axes" in kept else self.graph.constants[node.inputs[1]].tolist()
            rest = {key: value for key, value in kept.items() if key != "axes"}
            if other == "ReduceSum":
                self.change(at, op=other, inputs=(node.inputs[0], self.constant(axes)), attributes=rest)
            else:
                self.change(at, op=other, inputs=node.inputs[:1], attributes=rest | {"axes": axes})
        else:
            self.change(at, op=other, attributes=kept)
        return f"{called}: {other}"

    def permutation(self) -> str | None:
        at = self.pick(self.own("Transpose", "Einsum"))
        if at is None:
            return None
        node = self.graph.nodes[at]
        if node.op == "Einsum":
            left, right = node.attributes["equation"].split("->")
            equation = f"{left}->{''.join(self.permuted(right))}"
            self.change(at, attributes={"equation": equation})
            return f"{self.called(at)}: {equation}"
        perm = self.permuted(node.attributes["perm"])
        self.change(at, attributes={"perm": perm})
        return f"perm of {self.called(at)}: {perm}"

    def permuted(self, items: Sequence[Any]) -> list[Any]:
        """Return the items, two of them swapped or all in a random order."""
        found = list(items)
        first, second = self.rng.sample(range(len(found)), 2)
        found[first], found[second] = found[second], found[first]
        return found if self.rng.random() < 0.7 else self.rng.sample(found, len(found))

    def bounds(self) -> str | None:
        at = self.pick(self.own("Slice", "Split", "Gather"))
        if at is None:
            return None
        node = self.graph.nodes[at]
        x = self.graph.values[node.inputs[0]]
        if node.op == "Split":
            axis = node.attributes.get("axis", 0)
            half, by = x.shape[axis] // 2, self.rng.choice([-1, 1])
            kept = {key: value for key, value in node.attributes.items() if key != "num_outputs"}
            self.change(at, inputs=(node.inputs[0], self.constant([half - by, half + by])), attributes=kept)
            return f"{self.called(at)}: {half - by} and {half + by}"
        if node.op == "Gather":
            indices = self.graph.constants[node.inputs[1]]
            if x.dtype == INT64:
                other = np.zeros_like(indices)
            elif indices.ndim == 0:
                other = 1 - indices
            else:
                other = self.rng.choice([np.roll(indices, 1), indices[::-1], (indices + 1) % x.shape[-1]])
            self.rewire(at, 1, self.constant(other))
            return f"{self.called(at)}: {other.tolist()}"
        start, end = (int(self.graph.constants[name][0]) for name in node.inputs[1:3])
        axis = int(self.graph.constants[node.inputs[3]][0])
        size = x.shape[axis]
        if not isinstance(size, int):
            return None
        first, last, _ = slice(start, end).indices(size)
        by = self.rng.choice([-1, 1])
        bounds = self.rng.choice(
            [
                (first + by, last + by, 1),
                (first + by, last, 1),
                (first, last + by, 1),
                (first, min(first + 2 * (last - first), size), 2),
                (0, size, 2),
                (1, INT64_MAX, 2),
                (last - 1, first - 1 if first else -INT64_MAX, -1),
            ]
        )
        if bounds[0] < 0:
            return None
        start, end, step = (self.constant([number]) for number in bounds)
        self.change(at, inputs=(node.inputs[0], start, end, node.inputs[3], step))
        return f"{self.called(at)}: {bounds}"

    def dtype(self) -> str | None:
        edge = self.pick([edge for edge in self.edges() if edge[2].name not in self.graph.constants])
        if edge is None:
            return None
        at, number, value = edge
        narrow = self.pick(
            [dtype for dtype in (FLOAT16, FLOAT32, INT32) if dtype.itemsize < value.dtype.itemsize] or [INT32]
        )
        at = self.between(at, number, "Cast", to=int(TYPES[narrow]))
        at = self.between(at, number, "Cast", to=int(TYPES[value.dtype]))
        return f"input {number} of {self.called(at)} cast to {narrow} and back"

    def ranks(self) -> str | None:
        edge = self.pick([edge for edge in self.edges(*_BROADCASTING) if edge[2].rank])
        if edge is None:
            return None
        at, number, value = edge
        made = self.graph.nodes[at].outputs[0]
        shape = self.graph.values[made].shape
        if value.rank == 1 or self.rng.random() < 0.3:
            axis = self.rng.randint(0, value.rank)
            at = self.between(at, number, "Unsqueeze", self.constant([axis]))
            what = f"input {number} of {self.called(at)} has a new axis {axis}"
        elif 1 in value.shape and self.rng.random() < 0.5:
            axis = self.rng.choice([axis for axis, size in enumerate(value.shape) if size == 1])
            at = self.between(at, number, "Squeeze", self.constant([axis]))
            what = f"input {number} of {self.called(at)} without axis {axis}"
        else:
            perm = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
            at = self.between(at, number, "Transpose", perm=perm)
            what = f"input {number} of {self.called(at)} transposed"
        if self.graph.checked().values.get(made, value).shape != shape:
            raise UnfitError(made)
        return what

    def shared(self) -> str | None:
        values = self.graph.values
        inner = [
            name
            for at in self.own()
            for name in self.graph.nodes[at].outputs
            if name != self.place.output and values[name].is_float and name not in self.graph.outputs
        ]
        name = self.pick(inner)
        if name is None:
            return None
        if self.rng.random() < 0.4:
            self.graph.outputs.append(name)
            return f"{name} is an output too"
        op = self.rng.choice(["Relu", "Neg", "Abs", "Sin"])
        made = self.graph.add(op, values[name])
        self.graph.outputs.append(made.name)
        return f"{name} is read by {op} too"

    def sizes(self) -> str | None:
        number = float(self.rng.choice([4, 6, 8]))
        means = [
            at
            for at in self.own("ReduceMean")
            if isinstance(self.graph.values[self.graph.nodes[at].inputs[0]].shape[-1], str)
        ]
        counted = [at for at in self.own("Cast") if self.graph.values[self.graph.nodes[at].inputs[0]].dtype == INT64]
        at = self.pick([*means, *counted])
        if at is None:
            return self._renamed()
        node = self.graph.nodes[at]
        made = self.graph.values[node.outputs[0]]
        called = self.called(at)
        divisor = self.constant(number, made.dtype)
        if node.op == "Cast":
            self.change(at, op="Identity", inputs=(divisor,), attributes={})
            return f"{called}: always {number}"
        axes = node.inputs[1] if len(node.inputs) > 1 else self.constant(node.attributes["axes"])
        kept = {key: value for key, value in node.attributes.items() if key == "keepdims"}
        total = self.graph.new_name()
        self.change(at, op="Div", inputs=(total, divisor), attributes={})
        self.graph.nodes.insert(at, Node("ReduceSum", (node.inputs[0], axes), (total,), kept, self.index))
        return f"{called}: the sum over {number}"

    def _renamed(self) -> str | None:
        """Give the last dimension a name, where the place has its size as a number."""
        size = self.graph.values[self.place.inputs[0]].shape[-1]
        if not {"d", "sqrt(d) x w / sqrt(sum(x^2) + d eps)"} & set(self.place.spelling):
            return None
        self.graph.inputs = [
            value._replace(shape=tuple("named" if item == size else item for item in value.shape))
            for value in self.graph.inputs
        ]
        return f"size {size} of the inputs has a name"


KINDS: dict[str, Callable[[Edit], str | None]] = {
    "constant": Edit.constants,
    "axis": Edit.axes,
    "keepdims": Edit.keepdims,
    "operands": Edit.operands,
    "wiring": Edit.wiring,
    "dropped": Edit.dropped,
    "operator": Edit.operators,
    "permutation": Edit.permutation,
    "slice": Edit.bounds,
    "dtype": Edit.dtype,
    "rank": Edit.ranks,
    "shared": Edit.shared,
    "dynamic": Edit.sizes,
}


if __name__ == "__main__":
    number = int(sys.argv[1])
    right, wrong = planted(number), near_miss(number)
    print(*right.places, onnx.printer.to_text(right.model), sep="\n")
    print(wrong.kind, wrong.changed, wrong.what, onnx.printer.to_text(wrong.model), sep="\n")
    print("differs:", differs(right.model, wrong.model, number))
