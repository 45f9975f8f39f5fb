"""Patterns: what the decompositions of an op compute, as terms with open inputs, attributes and sizes."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir

from .. import Op
from .._core import AttributeKind, Decomposition, Signature
from .._onnx import bodies
from .._onnx.type_inference import infer_types
from ..errors import InputError, MissingDependencyError, PyopsError
from ..shapes import TensorSpec
from .matching import ANY
from .operator_rules import normal_form
from .terms import LEAF, PRODUCT, Factor, Scaled
from .value_types import types_of

_OPSETS = (18, 23)  # the first that torch's exporter has, and the first with attention as an operator

_STAND_INS = (1.2345678e-3, 1.6543210e-3, 2.3456789e-3, 2.7654321e-3)
_SIZES = ({"b": 2, "n": 4, "s": 5, "d": 8}, {"b": 3, "n": 6, "s": 7, "d": 12})
_RANKS = ("bsd", "bnsd", "sd", "d")
_MOST_CHOICES = 8
_SHAPED = {"Reshape", "Expand"}
_RANKED = {"Transpose", *_SHAPED}


_exact: dict[Any, Pattern | str] = {}


@dataclass(frozen=True)
class Pattern:
    """One way to compute an op.

    Attributes
    ----------
    decomposition : Decomposition
        The decomposition that it comes from.
    root : (Factor, Term)
        What it computes; its leaves have the names in `names`.
    names : sequence of str
        The inputs, in the op's order.
    attributes : mapping
        The values of the attributes for which it was made, without those that it leaves open.
    dims : sequence of sequences
        The sizes of the inputs: ints, or names.
    """

    decomposition: Decomposition
    root: Scaled
    names: Sequence[str]
    attributes: Mapping[str, Any]
    dims: Sequence[Sequence[Any]]

    @property
    def is_ranked(self) -> bool:
        """Return whether inputs of other ranks may need another pattern: an axis may be counted from the first one."""
        terms = [term for _, term in _inner(self.root)]
        axes = [np.ravel(term.attributes.get(name, -1)).tolist() for term in terms for name in ("axis", "axes")]
        return any(term.op in _RANKED for term in terms) or any(item not in ([-1], []) for item in axes)


def patterns_of(op: Op[..., Any], opset: int, plain: bool) -> tuple[list[Pattern], list[str]]:
    """Return the patterns of an op's decompositions, and why some could not be made.

    Parameters
    ----------
    opset : int
        The version of ONNX's own domain.
    plain : bool
        As torch's own exporter writes them.
    """
    found: list[Pattern] = []
    problems: list[str] = []
    for decomposition in op.decompositions:
        own, problem = _patterns(decomposition, _opset(decomposition, opset), plain)
        found += own
        problems += [problem] if problem else []
    return found, problems


def _opset(decomposition: Decomposition, opset: int) -> int:
    """Return the opset version of the patterns for a model of an opset version: in onnxscript, the one written."""
    if decomposition.is_onnxscript:
        function: onnx.FunctionProto = decomposition.function.to_function_proto()
        (written,) = (int(entry.version) for entry in function.opset_import if not entry.domain)
        return written
    return _OPSETS[opset >= _OPSETS[1]]


@functools.lru_cache(256)
def _patterns(decomposition: Decomposition, opset: int, plain: bool) -> tuple[list[Pattern], str]:
    signature = decomposition.signature
    if len(signature.outputs) > 1 or signature.outputs[0].variadic:
        return [], f"{signature.qualified_name} has several outputs: such ops are not searched"
    found: list[Pattern] = []
    problem = ""
    for attributes in _choices(signature):
        for rank in _RANKS:
            try:
                shapes = _example(decomposition, rank, attributes)
                made = _at_sizes(decomposition, shapes, attributes, opset, plain)
            except MissingDependencyError:
                raise
            except PyopsError as error:
                problem = problem or str(error)
                continue
            found += [made] if made else []
            if made is not None and not made.is_ranked:
                break
    return found, "" if found else problem


def _choices(signature: Signature) -> Iterator[dict[str, Any]]:
    """Yield attributes: stand-ins for floats, and the values that the others can have."""
    floats = [item for item in signature.attributes if item.kind is AttributeKind.FLOAT and not item.is_list]
    stand_ins = dict(zip((item.name for item in floats), _STAND_INS, strict=False))
    others = [item for item in signature.attributes if item.name not in stand_ins]
    values = [(False, True) if item.boolean else item.choices or (item.default,) for item in others]
    for chosen in itertools.islice(itertools.product(*values), _MOST_CHOICES):
        yield {**dict(zip((item.name for item in others), chosen, strict=True)), **stand_ins}


def _example(decomposition: Decomposition, rank: str, attributes: Mapping[str, Any]) -> Sequence[str]:
    """Return the axes of inputs with which a decomposition can be called; `rank` has those of the first input.

    Raises
    ------
    InputError
        The decomposition rejects all that are tried.
    """
    inputs, problem = decomposition.signature.inputs, ""
    others = dict.fromkeys([rank, rank[-1:], rank[-2:], rank[:-2] + "ss", "ss", ""])
    for shapes in itertools.product((rank,), *[others] * (len(inputs) - 1)):
        arrays = [
            np.ones([_SIZES[0][axis] for axis in shape], spec.dtype)
            for shape, spec in zip(shapes, _specs(decomposition.signature, shapes, _SIZES[0]), strict=True)
        ]
        try:
            bodies.reference(decomposition, arrays, attributes, precise=False)
        except MissingDependencyError:
            raise
        except Exception as error:  # whatever the decomposition raises for these sizes
            problem = problem or f"{type(error).__name__}: {error}"
            continue
        return shapes
    raise InputError(f"{decomposition.name} rejects inputs of all shapes that were tried: {problem}")


def _specs(signature: Signature, shapes: Sequence[str], sizes: Mapping[str, int]) -> list[TensorSpec]:
    """Return specs of the inputs, of float32 where that is declared."""
    single = np.dtype(np.float32)
    dtypes = [single if single in item.type.dtypes else item.type.dtypes[0] for item in signature.inputs]
    return [TensorSpec([sizes[axis] for axis in shape], d) for shape, d in zip(shapes, dtypes, strict=True)]


def _at_sizes(
    decomposition: Decomposition, shapes: Sequence[str], attributes: Mapping[str, Any], opset: int, plain: bool
) -> Pattern | None:
    """Return the pattern of a decomposition; numbers that depend on sizes are left open in it."""
    specs = [_specs(decomposition.signature, shapes, sizes) for sizes in _SIZES]
    open_ = {name: value for name, value in attributes.items() if value in _STAND_INS}
    moved = {**attributes, **{name: value * 1.37 for name, value in open_.items()}}
    model = bodies.calls_model(decomposition, [(specs[0], attributes), (specs[1], moved)], opset, plain)
    if model is None:
        return None
    pattern, other = _read(decomposition, model, [*open_.items(), *((name, moved[name]) for name in open_)], attributes)
    if not math.isclose(pattern.root[0].number, other.root[0].number, rel_tol=1e-6):
        pattern = dataclasses.replace(pattern, root=(Factor(1.0, ((ANY, 1.0),)), pattern.root[1]))
    numbers = [factor.number for factor, _ in _inner(other.root)]
    for owner, index, factor in _factors(pattern.root):
        if not any(math.isclose(factor.number, number, rel_tol=1e-6) for number in numbers):
            arguments = list(owner.args)
            arguments[index] = Factor(1.0, ((ANY, 1.0),)), arguments[index][1]
            owner.args = tuple(arguments)
    arrays = [str(term.attributes["array"]) for _, term in _inner(other.root) if "array" in term.attributes]
    for _, term in _inner(pattern.root):
        if "array" in term.attributes and str(term.attributes["array"]) not in arrays:
            term.attributes = {"array": None}
    return pattern


def exact_pattern(
    decomposition: Decomposition,
    specs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
    opset: int,
    plain: bool,
) -> Pattern | str:
    """Return the pattern of one call, of its sizes, types and attributes, or why there is none."""
    key = decomposition, str(specs), str(attributes), opset, plain
    if key not in _exact:
        try:
            model = bodies.calls_model(decomposition, [(specs, attributes)], _opset(decomposition, opset), plain)
            (found,) = [None] if model is None else _read(decomposition, model, [], attributes)
            _exact[key] = found or "torch's exporter fails"
        except PyopsError as error:
            _exact[key] = str(error)
    return _exact[key]


def _read(
    decomposition: Decomposition,
    model: onnx.ModelProto,
    open_: Sequence[tuple[str, float]],
    attributes: Mapping[str, Any],
) -> list[Pattern]:
    """Return the patterns of the calls in a model, in which numbers stand for the attributes that are open.

    Raises
    ------
    InputError
        A part of a call can be compared with nothing: a large constant, a branch, a loop or random numbers; or a call
        returns an input.
    """
    types = types_of(infer_types(model, {}))
    graph = onnx_ir.serde.deserialize_model(model).graph
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    form = normal_form(graph, types, opset, open_)
    for value in graph.inputs:
        form.of(value)
    count = len(graph.inputs) // len(graph.outputs)
    names = [item.name for item in decomposition.signature.parameters(count)]
    fixed = {name: value for name, value in attributes.items() if name not in dict(open_)}
    found = []
    for index, output in enumerate(graph.outputs):
        inputs = graph.inputs[index * count : (index + 1) * count]
        known = [types[str(value.name)] for value in inputs]
        for value, name in zip(inputs, names, strict=True):
            value.name = name
        dims = [item.shape or () for item in known]
        root, own = form.of(output), [form.of(value) for value in inputs]
        if root in own:
            raise InputError(f"{decomposition.name} returns an input, for which a model needs no node")
        leaves = {id(term) for _, term in own}
        for _, term in _inner(root):
            if term.op == LEAF and "array" not in term.attributes and id(term) not in leaves:
                raise InputError(
                    f"{decomposition.name} has a constant of many elements, a branch, a loop or random numbers, with "
                    "which no model can be compared; pass the constant as an input"
                )
        found.append(Pattern(decomposition, root, names, fixed, dims))
    return found


def _inner(root: Scaled) -> list[Scaled]:
    """Return a term, its other forms, and all that they are made of, each with its factor."""
    found, seen, rest = list[Scaled](), set[tuple[Factor, int]](), [root]
    while rest:
        factor, term = rest.pop()
        if (factor, id(term)) not in seen:
            seen.add((factor, id(term)))
            found.append((factor, term))
            rest += [(Factor() if term.op == PRODUCT else own, part) for own, part in term.args]
            rest += term.forms
    return found


def _factors(root: Scaled) -> Iterator[tuple[Any, int, Factor]]:
    """Yield the factors of the terms that a term is made of: the owner, the position and the factor."""
    for _, term in _inner(root):
        if term.op not in (PRODUCT, LEAF):
            yield from ((term, index, factor) for index, (factor, _) in enumerate(term.args))
