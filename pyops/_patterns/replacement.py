"""`replace`, which replaces the nodes of a model that compute what an op does by one node of the op, and its report."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Op
from .._core import Model, ModelSource, full_domain, graphs, load_model
from .._onnx import bodies
from .._onnx.op_schemas import attribute_proto, inference_function
from .._onnx.type_inference import infer_types
from .._support.progress import progress, step
from .._support.text_tables import Displayable, Part
from ..errors import InputError, MissingDependencyError, ModelError, PyopsError
from ..testing._random_inputs import given_feed, random_feed

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from .places import Candidate, Near, Search

_LARGE = 2**31 - 2**20  # bytes of a protobuf
_LEAST_IR = 8  # which has functions


@dataclass(frozen=True)
class Place:
    """A place: nodes that one node of an op has replaced.

    Attributes
    ----------
    op : str
        The op's domain and name.
    output : str
        The name of the value that the op computes.
    nodes : tuple of str
        The names of the nodes that the op has replaced.
    shared : tuple of str
        The values within the place that are used outside it, each with the operator that computes it; they stay.
    attributes : dict
        The values of the op's attributes.
    difference : float or None
        The largest difference between the op and the nodes, relative to the largest value; None if not compared.
    """

    op: str
    output: str
    nodes: tuple[str, ...]
    shared: tuple[str, ...]
    attributes: dict[str, Any]
    difference: float | None


@dataclass(frozen=True)
class Refusal:
    """Nodes that match an op's pattern but were not replaced.

    Attributes
    ----------
    op, output : str
        The op, and the value that it would compute.
    reason : str
        Why they were not replaced.
    """

    op: str
    output: str
    reason: str


@dataclass(frozen=True, repr=False)
class Replacement(Displayable):
    """The model that `replace` returns, and the report about it.

    Attributes
    ----------
    places : tuple of Place
        Where an op has replaced nodes.
    near : tuple of Near
        Where nodes nearly match an op's pattern, and what differs first.
    refused : tuple of Refusal
        Where nodes match but were not replaced, and why.
    counts : dict of str to int
        How many places each op has.
    notes : tuple of str
        What was not searched, and why a pattern could not be made.
    graph_model : onnx_ir.Model
        The model with the ops in it.
    """

    places: tuple[Place, ...]
    near: tuple[Near, ...]
    refused: tuple[Refusal, ...]
    counts: dict[str, int]
    notes: tuple[str, ...]
    graph_model: onnx_ir.Model = dataclasses.field(repr=False)

    @property
    def model(self) -> onnx.ModelProto:
        """Return the model with the ops in it, as an ``onnx.ModelProto``."""
        import onnx_ir

        return onnx_ir.serde.serialize_model(self.graph_model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to a file.

        Weights in external files of the same folder stay there. Those of other folders, and weights of more than about
        2 GiB, are written to a file beside the model, with ``.data`` after its name.
        """
        import onnx_ir

        graphs = self.graph_model.graphs()
        tensors = [value.const_value for graph in graphs for value in graph.initializers.values()]
        outside = [item for item in tensors if isinstance(item, onnx_ir.ExternalTensor)]
        here = Path(path).resolve().parent
        stays = outside and all(Path(item.base_dir).resolve() == here for item in outside)
        is_large = sum(item.nbytes for item in tensors if item is not None) > _LARGE
        data = f"{Path(path).name}.data" if not stays and (outside or is_large) else None
        onnx_ir.save(self.graph_model, path, external_data=data)

    def parts(self) -> list[Part]:
        """Return the parts to display: how many places each op has, where they are, and what is near or refused."""
        found = [f"{name}: {count} place{'s' * (count != 1)}" for name, count in self.counts.items()]
        places = [
            (item.op, item.output, ", ".join(item.nodes), _values(item.attributes), _difference(item.difference))
            for item in self.places
        ]
        shared = [
            f"{item.output}: {', '.join(item.shared)} stay, used elsewhere" for item in self.places if item.shared
        ]
        near = [(item.op, item.node, str(item)) for item in self.near]
        refused = [(item.op, item.output, item.reason) for item in self.refused]
        return [
            *found,
            [("op", "output", "instead of", "attributes", "difference"), *places],
            *shared,
            [("refused", "output", "why"), *refused],
            [("near", "node", "what differs"), *near],
            *self.notes,
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON can represent."""
        names = ("places", "near", "refused")
        lists = {name: list(map(dataclasses.asdict, getattr(self, name))) for name in names}
        return {"counts": self.counts, **lists, "notes": list(self.notes)}


def _values(attributes: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in attributes.items()
    )


def _difference(value: float | None) -> str:
    return "not compared" if value is None else f"{value:.2g}"


@progress("replacing nodes")
def replace(
    model: ModelSource,
    ops: Iterable[Op[..., Any]],
    *,
    inputs: Mapping[str, Any] | None = None,
    bodies: bool = True,
    verify: bool = True,
    keep_shared: bool = True,
) -> Replacement:
    """Replace the nodes of a model that compute what an op's decomposition says by one node of the op.

    The nodes may be written in another way than the decomposition: products and sums may be in another order, and
    functions, constants and axes spelled otherwise. Numbers in the nodes become attributes. Nodes whose values are used
    outside the place stay.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The model; it is not changed.
    ops : iterable of Op
        The ops to search for; at each place the first one that fits.
    inputs : mapping of str to array, optional
        Inputs of the model by name, on which ops and nodes are compared; random ones by default.
    bodies : bool
        Add the ops' bodies to the model, so that it runs without pyops, too.
    verify : bool
        Compare the op with the nodes at each place: on the values that the model computes there, and on random inputs
        of several scales. False replaces what matches without running anything.
    keep_shared : bool
        False refuses places within which a value is used outside.

    Returns
    -------
    Replacement
        ``.places``, ``.near``, ``.refused``, ``.model`` and ``.save(path)``; it displays as text and as HTML.

    Raises
    ------
    InputError
        There are no ops, an op has no decomposition, an input of the model cannot be generated, or `inputs` are not
        arrays by name.
    ModelError
        The model is damaged, in ORT format or cannot be loaded, or a shape function rejects a node of it.
    MissingDependencyError
        onnx_ir is not installed, or torch or onnxscript is not, in which a decomposition is written.

    Examples
    --------
    >>> import numpy as np, onnx, pyops
    >>> from pyops.kernels.transformers import swiglu
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
    ... main (float[n, 8] gate, float[n, 8] up) => (float[n, 8] y) {
    ...     s = Sigmoid(gate)  t = Mul(up, s)  y = Mul(t, gate)
    ... }''')
    >>> replaced = pyops.replace(model, [swiglu])
    >>> [place.nodes for place in replaced.places], replaced.model.graph.node[0].op_type
    ([('Mul of y', 'Mul of t', 'Sigmoid of s')], 'SwiGlu')
    """
    try:
        import onnx_ir
    except ImportError as error:
        raise MissingDependencyError('replace needs onnx_ir: pip install "onnx-pyops[replace]"') from error
    from .places import Search

    if isinstance(ops, Op):
        raise InputError(f"ops is a list of ops: pass ops=[{ops.__name__}]")
    chosen = list(ops)
    _check_ops(chosen)
    given = None if inputs is None else given_feed(inputs)
    source = load_model(model)
    proto = source.parsed("a model in ORT format cannot be changed; pass the model that it was made from")
    if proto.graph.sparse_initializer or proto.training_info:
        raise ModelError("a model with sparse initializers or training_info cannot be changed; remove these first")
    try:
        graph_model = onnx_ir.serde.deserialize_model(proto)
        if source.folder is not None:
            graph_model = onnx_ir.load(str(source.source))
        form = _normal_form(graph_model, source)
    except (ValueError, LookupError, AttributeError, OSError, RuntimeError) as error:
        raise ModelError(f"the model is damaged: {error}; onnx.checker.check_model may say where") from error
    search = Search(graph_model.graph, form, chosen)
    candidates = list(search.candidates())
    refused: list[Refusal] = []
    kept: list[tuple[Candidate, float | None]] = [(item, None) for item in candidates]
    for entry in list(kept):
        op = entry[0].op
        imported = graph_model.opset_imports.get(op.domain, op.version)
        if imported < op.version:
            reason = f"the model imports version {imported} of {op.domain}, and the op is of version {op.version}"
            refused.append(_refusal(entry[0], reason))
            kept.remove(entry)
    if verify and kept:
        step("comparing places")
        kept = _compared(source, given, [item for item, _ in kept], refused)
    found = _measured(search, kept, refused, keep_shared)
    if bodies:
        found = _measured(search, _with_bodies(graph_model, found, refused), refused, keep_shared)
    places = tuple(_place(item, difference) for item, difference in found)
    taken = _names(graph_model)
    for candidate, _ in found:
        _apply(graph_model, candidate, taken)
    counts = {op.signature.qualified_name: 0 for op in chosen}
    for place in places:
        counts[place.op] += 1
    notes = [*dict.fromkeys(search.problems), *_not_searched(source)]
    if verify and inputs is None and candidates:
        notes.append("the inputs of the model were generated")
    if not verify:
        notes.append("numbers were not compared")
    return Replacement(places, tuple(search.near()), tuple(refused), counts, tuple(notes), graph_model)


def _check_ops(ops: Sequence[Op[..., Any]]) -> None:
    if not ops:
        raise InputError("replace got no ops; pass at least one, as in ops=[rms_norm]")
    for op in ops:
        if not isinstance(op, Op):
            raise InputError(f"ops must be declared with onnx_op; got {type(op).__qualname__}")
        if not op.decompositions:
            raise InputError(
                f"{op.signature.qualified_name} has no decomposition, which says what it replaces; register one: "
                f"@{op.__name__}.register_decomposition"
            )


def _normal_form(model: onnx_ir.Model, source: Model) -> Any:
    from onnx.shape_inference import InferenceError

    from .operator_rules import normal_form
    from .value_types import types_of

    assert source.proto is not None
    try:
        types = types_of(infer_types(source.proto, _inference_functions(source)))
    except InferenceError as error:
        raise ModelError(f"the types of the model's values cannot be inferred: {error}") from error
    return normal_form(model.graph, types, _opset(model))


def _opset(model: onnx_ir.Model) -> int:
    return model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))


def _inference_functions(source: Model) -> dict[Any, Any]:
    from .._core import find_op

    found = {key: find_op(*key, version) for (key, version) in source.uses}
    return {key: inference_function(op) for key, op in found.items() if op is not None}


def _compared(
    source: Model, inputs: Mapping[str, Any] | None, candidates: Sequence[Candidate], refused: list[Refusal]
) -> list[tuple[Candidate, float | None]]:
    from .place_checks import differences

    feed = _generated(source) if inputs is None else dict(inputs)
    kept: list[tuple[Candidate, float | None]] = []
    for candidate, found in differences(source, feed, candidates):
        if isinstance(found, str):
            refused.append(_refusal(candidate, found))
        else:
            kept.append((candidate, found))
    return kept


def _measured(
    search: Search, kept: Sequence[tuple[Candidate, float | None]], refused: list[Refusal], keep_shared: bool
) -> list[tuple[Candidate, float | None]]:
    """Find again what places replace, after others were refused; return those that still may."""
    while True:
        search.measure(item for item, _ in kept)
        shared = [] if keep_shared else [entry for entry in kept if entry[0].shared]
        if not shared:
            return list(kept)
        reason = "is used outside the place; keep_shared=True replaces it nevertheless"
        refused += [_refusal(item, f"{_shared(item)[0]} {reason}") for item, _ in shared]
        kept = [entry for entry in kept if entry not in shared]


def _generated(source: Model) -> dict[str, Any]:
    """Return random inputs of a model; indices of a Gather are within the table that it reads."""
    from .. import InferenceSession

    assert source.proto is not None
    session: Any = InferenceSession(source)  # type: ignore[arg-type]  # what load_model returns is loaded
    feed = random_feed(session.get_inputs(), np.random.default_rng(0))
    sizes = {item.name: item.dims for item in source.proto.graph.initializer}
    for node in source.proto.graph.node:
        if node.op_type == "Gather" and node.input[1] in feed and sizes.get(node.input[0]):
            axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
            feed[node.input[1]] %= sizes[node.input[0]][axis]
    return feed


def _with_bodies(
    model: onnx_ir.Model, kept: Sequence[tuple[Candidate, float | None]], refused: list[Refusal]
) -> list[tuple[Candidate, float | None]]:
    """Add the bodies of ops to a model; return the places that have the right body."""
    import onnx_ir

    added, made, found = dict[str, Any](), dict[Any, Any](), []
    for candidate, difference in kept:
        name, key = (
            candidate.op.signature.qualified_name,
            (candidate.op, str(candidate.specs), str(candidate.attributes)),
        )
        if key not in made:
            step(f"exporting {name}")
            made[key] = _body(candidate, model)
        body = made[key]
        own = model.functions.get((candidate.op.domain, candidate.op.name, ""))
        if not isinstance(body, str) and own is not None and not _is_same_function(own, body):
            body = "the model has another function of that name"
        if not isinstance(body, str) and added.setdefault(name, body) != body:
            body = "it needs another body than an earlier place, and a model has one per op; declare another op for it"
        if isinstance(body, str):
            refused.append(_refusal(candidate, f"{body}; bodies=False replaces it without a body"))
        else:
            found.append((candidate, difference))
    for function in map(onnx_ir.serde.deserialize_function, added.values()):
        model.functions[function.identifier()] = function
        model.opset_imports.update(function.opset_imports | model.opset_imports)
    return found


def _is_same_function(function: onnx_ir.Function, body: onnx.FunctionProto) -> bool:
    from onnx_ir.serde import deserialize_function, serialize_function

    return serialize_function(function) == serialize_function(deserialize_function(body))


def _body(candidate: Candidate, model: onnx_ir.Model) -> onnx.FunctionProto | str:
    """Return the body of the op for a place, or why there is none."""
    decomposition = candidate.op.decomposition
    if (model.ir_version or 0) < _LEAST_IR:
        return f"a model of IR version {model.ir_version} cannot have bodies; set ir_version to {_LEAST_IR}"
    if decomposition is None:
        return f"{candidate.op.signature.qualified_name} has no decomposition that can be a body"
    try:
        return bodies.body(decomposition, candidate.specs, candidate.attributes, _opset(model))
    except PyopsError as error:
        return str(error)


def _refusal(candidate: Candidate, reason: str) -> Refusal:
    return Refusal(candidate.op.signature.qualified_name, str(candidate.output.name), reason)


def _shared(candidate: Candidate) -> list[str]:
    found = [(value, value.producer()) for value in candidate.shared]
    return [f"{value.name} ({'' if node is None else node.op_type})" for value, node in found]


def _place(candidate: Candidate, difference: float | None) -> Place:
    names = tuple(node.name or f"{node.op_type} of {node.outputs[0].name}" for node in candidate.nodes)
    name, output = candidate.op.signature.qualified_name, str(candidate.output.name)
    return Place(name, output, names, tuple(_shared(candidate)), dict(candidate.attributes), difference)


def _names(model: onnx_ir.Model) -> set[str | None]:
    """Return the names of all values, those of inner graphs included."""
    outputs = {value.name for node in model.graph.all_nodes() for value in (*node.outputs, *node.inputs) if value}
    return outputs | {value.name for value in model.graph.inputs} | {*model.graph.initializers}


def _unused(name: str, taken: set[str | None]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _apply(model: onnx_ir.Model, candidate: Candidate, taken: set[str | None]) -> None:
    """Insert a node of the op after the last node of a place, and remove the nodes whose values are no longer used."""
    import onnx_ir

    old, signature = candidate.output, candidate.op.signature
    last = old.producer()
    assert last is not None
    added = []
    inputs = []
    for number, (value, permutation) in enumerate(candidate.inputs):
        if permutation:
            turned = onnx_ir.Value(name=_unused(f"{old.name}_input_{number}", taken), type=value.type)
            perm = onnx_ir.AttrInt64s("perm", permutation)
            added.append(
                onnx_ir.Node("", "Transpose", [value], [perm], outputs=[turned], name=f"{turned.name}_transposed")
            )
            value = turned
        inputs.append(value)
    given = [item for item in signature.attributes if candidate.attributes[item.name] is not None]
    attributes = [onnx_ir.serde.deserialize_attribute(attribute_proto(a, candidate.attributes[a.name])) for a in given]
    new = onnx_ir.Value(name=old.name, type=old.type, shape=old.shape, doc_string=old.doc_string)
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    node = onnx_ir.Node(
        signature.domain, signature.name, inputs, attributes, outputs=[new], name=last.name, version=None
    )
    node.metadata_props.update(last.metadata_props)
    node.doc_string = last.doc_string
    model.graph.insert_after(last, [*added, node])
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = _unused(f"{old.name}_replaced", taken)
    for gone in candidate.nodes:
        if all(not value.uses() and not value.is_graph_output() for value in gone.outputs):
            read = [value for value in gone.inputs if value is not None and value.is_initializer()]
            model.graph.remove(gone, safe=True)
            for value in read:
                if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                    model.graph.initializers.pop(str(value.name), None)
    model.opset_imports.setdefault(signature.domain, signature.version)


def _not_searched(source: Model) -> list[str]:
    assert source.proto is not None
    notes = []
    inner = sorted({node.op_type for node in source.proto.graph.node if len(list(graphs(_Only([node])))) > 1})
    if inner:
        notes.append(f"the graphs within {', '.join(inner)} are not searched")
    functions = [f"{full_domain(item.domain)}::{item.name}" for item in source.proto.functions]
    if functions:
        notes.append(f"functions are not searched: {', '.join(functions)}")
    return notes


@dataclass
class _Only:
    node: list[Any]
