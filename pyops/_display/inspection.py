"""Reports on a model: its contents, and the kernel that would run each of its custom nodes.

The model is read as data; nothing is run or imported for it.
"""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Op
from .. import _core as core
from .._support.builtin_operators import ONNX_DOMAIN, is_builtin, unknown_version
from .._support.element_types import describe, dtype_name, format_shape, from_onnx
from .._support.text_tables import Displayable, Part
from ..errors import DeclarationError
from .op_table import engine_name, format_kernel

if TYPE_CHECKING:
    import onnx

    from .._filling.filling import MissingNode


_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Value:
    """An input or output of the model; each dimension is a size, a name or ``?``."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.type}{'' if self.shape is None else format_shape(self.shape)}"


def value_of(item: onnx.ValueInfoProto) -> Value:
    """Return the `Value` for an input or output of a model."""
    if not item.type.HasField("tensor_type"):
        return Value(item.name, item.type.WhichOneof("value") or "?", None)
    tensor = item.type.tensor_type
    row = from_onnx(tensor.elem_type)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return Value(item.name, dtype_name(row.dtype) if row else "?", shape)


def attribute_value(item: onnx.AttributeProto) -> Any:
    """Return the value of a node's attribute, or a dictionary that says why there is none."""
    import onnx

    if item.ref_attr_name:
        return {"that of the function": item.ref_attr_name}
    if item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return {"graph": [graph.name for graph in item.graphs] or item.g.name}
    try:
        return core.read_attribute(item)
    except Exception as error:  # onnx raises various types for invalid bytes
        return {"cannot be read": f"{type(error).__name__}: {error}"}


def format_attribute(value: Any) -> str:
    """Return what `attribute_value` returned as text; a long one is truncated."""
    if isinstance(value, dict):
        ((what, name),) = value.items()
        return what if what == "graph" else f"{what} ({name})"
    if isinstance(value, np.ndarray):
        return describe(value)
    text = core.format_value(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


@dataclass(frozen=True)
class CustomNode:
    """A node that ONNX Runtime has no operator for, or whose operator a declared op replaces.

    Attributes
    ----------
    opset : int
        The version of its domain that the model imports.
    attributes : dict of str to object
        The attributes' values; a dictionary where one has none, such as a graph.
    version : int or None
        The version of the declared op that would run the node; like `engine` and `kernel`, None without one.
    engine : str or None
        The engine that hosts the op in a session on this machine; ``reference`` if no session can.
    kernel : str or None
        The function and its source line.
    package : str or None
        The installed package that declares the op, or that may do so when it is imported.
    library : str or None
        The library that has the op, of those that were given.
    problems : tuple of str
        The reasons why the node would not run.
    """

    name: str
    domain: str
    op_type: str
    opset: int
    attributes: dict[str, Any]
    version: int | None = None
    engine: str | None = None
    kernel: str | None = None
    package: str | None = None
    library: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Return whether a kernel would run the node, in one to three words."""
        if self.library is not None:
            return "in a library"
        if self.kernel is not None:
            return "does not fit" if self.problems else "declared"
        return "not declared" if self.problems else "not imported"


@dataclass(frozen=True, repr=False)
class ModelReport(Displayable):
    """The result of `inspect`: tables in a terminal and in a notebook.

    Attributes
    ----------
    imports : tuple of (str, int)
        The domain and version of each opset that the model imports.
    builtin : dict of str to int
        The number of nodes of each of ONNX Runtime's own operators.
    decisions : tuple of str
        What the export fixed in the torch model's Python code, as ``program.decisions`` shows it.
    missing : tuple of MissingNode
        The nodes that ONNX Runtime has no kernel for, and what computes them with ``fill_missing=True``. Empty if ONNX
        Runtime is not installed.
    bodies : tuple of str
        The functions that the model calls, each with what would run: the kernel of the op of its name, or the function,
        and for which types of the op ONNX Runtime has the kernels that the function needs.
    """

    ir_version: int
    producer: str
    imports: tuple[tuple[str, int], ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[CustomNode, ...]
    builtin: dict[str, int]
    decisions: tuple[str, ...] = ()
    missing: tuple[MissingNode, ...] = ()
    bodies: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """Return the reasons why a session would reject the model, even with ``fill_missing=True``."""
        found = {node.domain for node in self.nodes if node.version is not None}
        unknown = [unknown_version(*item) for item in self.imports if item[0] not in found]
        nodes = [problem for node in self.nodes for problem in node.problems]
        unfilled = (node.problem for node in self.missing)
        return list(dict.fromkeys([*nodes, *filter(None, (*unknown, *unfilled))]))

    @property
    def ok(self) -> bool:
        """Return whether every custom node has a kernel that would run it, and the model has no other problem."""
        return not self.problems

    def parts(self) -> list[Part]:
        """Return the parts to display: the producer, tables of imports and values, and the nodes."""
        made_by = f", made by {self.producer}" if self.producer else ""
        imports = [("domain", "version"), *((domain, str(version)) for domain, version in self.imports)]
        values = [("", "name", "type"), *(("input", item.name, str(item)) for item in self.inputs)]
        values += [("output", item.name, str(item)) for item in self.outputs]
        fixed = ["", "fixed by the export:", *self.decisions] if self.decisions else []
        return [f"IR version {self.ir_version}{made_by}", "", imports, "", values, "", *self.node_parts(), *fixed]

    def node_parts(self) -> list[Part]:
        """Return the parts about nodes: the custom nodes, a count of the others, and the problems."""
        header = ("node", "operator", "opset", "attributes", "", "kernel", "engine", "package")
        rows = [
            (
                node.name,
                f"{node.domain}::{node.op_type}",
                str(node.opset),
                ", ".join(f"{name}={format_attribute(value)}" for name, value in node.attributes.items()),
                node.verdict,
                node.kernel or node.library or "",
                node.engine or "",
                node.package or "",
            )
            for node in self.nodes
        ]
        builtin = ", ".join(f"{name} ({count})" for name, count in sorted(self.builtin.items()))
        notes = ["" if rows else "no custom nodes", *([f"ONNX Runtime's own: {builtin}"] if builtin else [])]
        return [[header, *rows], *notes, *self.bodies, *self._missing_parts(), *self.problems]

    def _missing_parts(self) -> list[Part]:
        rows = [(node.name, node.kind, node.by or "nothing") for node in self.missing]
        if not rows:
            return []
        headline = "ONNX Runtime has no kernel for these; a session with fill_missing=True computes them:"
        return ["", headline, [("node", "operator", "computed by"), *rows]]


def inspect(
    source: Any, *, import_plugins: bool = False, in_libraries: Mapping[core.Key, str] | None = None
) -> ModelReport:
    """Report on a model without running it.

    Parameters
    ----------
    source : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
    import_plugins : bool
        Import the installed plug-ins that the model needs, as a session does. Otherwise only their packages'
        metadata is read.
    in_libraries : mapping of Key to str, optional
        The library that has each op, of the libraries that the session's options will have.

    Raises
    ------
    ModelError
        `source` is not an ONNX model, is in ORT format, or has text that is not UTF-8.
    """
    loaded = core.load_model(source)
    proto = loaded.parsed("a model in ORT format cannot be inspected; pass the model that it was made from")
    loaded.check_texts()
    if import_plugins:
        core.import_plugins_of(loaded, in_libraries or ())
    waiting: dict[str, list[str]] = {}
    for package, plugin in core.waiting_plugins():
        waiting.setdefault(plugin.name, []).append(package)
    find = functools.cache(functools.partial(_found, core.adopted_ops(), waiting, in_libraries or {}))
    constants = {tensor.name for tensor in proto.graph.initializer}
    metadata = {item.key: item.value for item in proto.metadata_props}
    return ModelReport(
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        imports=tuple(sorted((core.full_domain(domain), version) for domain, version in loaded.imports())),
        inputs=tuple(value_of(item) for item in proto.graph.input if item.name not in constants),
        outputs=tuple(map(value_of, proto.graph.output)),
        nodes=tuple(_custom_node(node, *find(*core.key_of(node), opset)) for node, opset in custom_nodes(loaded)),
        builtin=dict(Counter(_format_builtin(node) for node, _ in loaded.nodes() if is_builtin(*core.key_of(node)))),
        decisions=tuple(metadata.get("pyops.decisions", "").splitlines()),
        missing=_missing(loaded),
        bodies=tuple(_bodies(loaded)),
    )


def _bodies(loaded: core.Model) -> Iterator[str]:
    for (key, opset), nodes in loaded.uses.items():
        if key in loaded.functions():
            op, runs = core.find_op(*key, opset), "the body of the model runs"
            if op is not None:
                runs = f"the kernel runs here, and {runs} elsewhere{_runnable(loaded, nodes, op)}"
            yield f"{key[0]}::{key[1]}: {runs}"


def _runnable(loaded: core.Model, nodes: Sequence[onnx.NodeProto], op: core.AnyOp) -> str:
    """Say for which types of an op ONNX Runtime has the kernels that its body needs."""
    parameter = next((item for item in op.signature.type_parameters if len(item.dtypes) > 1), None)
    valid = (item for item in nodes if not core.find_mismatch(item, op.signature))
    node = next((item for item in valid if not core.linked_attributes(item)), None)
    if parameter is None or node is None or importlib.util.find_spec("onnxruntime") is None:
        return ""
    from onnx import ValueInfoProto, helper

    from .._filling.filling import fill

    assert loaded.proto is not None
    given = dict(zip(node.input, op.signature.parameters(len(node.input)), strict=True))
    outputs = [ValueInfoProto(name=name) for name in node.output]
    own = {"functions": loaded.proto.functions, "opset_imports": loaded.proto.opset_import}
    found = []
    for dtype in parameter.dtypes:
        types = {name: dtype if item.type == parameter else item.type.dtypes[0] for name, item in given.items() if name}
        codes = {name: helper.np_dtype_to_tensor_dtype(type) for name, type in types.items()}
        inputs = [helper.make_tensor_value_info(name, code, None) for name, code in codes.items()]
        model = helper.make_model(helper.make_graph([node], "call", inputs, outputs), **own)
        lacking = ", ".join(dict.fromkeys(item.op_type for item in fill(core.load_model(model), {}).nodes))
        found.append(f"{dtype_name(dtype)} (no: {lacking})" if lacking else dtype_name(dtype))
    return f", in ONNX Runtime for {parameter.name} = {', '.join(found)}"


def _missing(loaded: core.Model) -> tuple[MissingNode, ...]:
    if importlib.util.find_spec("onnxruntime") is None:
        return ()
    from .._filling.filling import fill

    ops = core.resolve_ops(loaded, core.adopted_ops(), set()).ops
    return tuple(fill(loaded, ops).nodes)


def custom_nodes(loaded: core.Model) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield the nodes that need, or may use, a declared op, each with its domain's opset version."""
    others, adopted = loaded.functions(), core.adopted_ops()
    for node, opset in loaded.nodes():
        key = core.key_of(node)
        if core.find_op(*key, opset) or (key not in others and (not is_builtin(*key) or key in adopted)):
            yield node, opset


def _found(
    adopted: Mapping[tuple[str, str], core.AnyOp | DeclarationError],
    waiting: Mapping[str, list[str]],
    in_libraries: Mapping[core.Key, str],
    domain: str,
    name: str,
    opset: int,
) -> tuple[CustomNode, core.Signature | None]:
    """Return what is known about all nodes of an operator, and the signature of the op that would run them."""
    found = CustomNode("", domain, name, opset, {})
    if library := in_libraries.get((domain, name)):
        return replace(found, library=library), None
    op = core.find_op(domain, name, opset) or adopted.get((domain, name))
    if isinstance(op, Op):
        known = replace(found, version=op.version, engine=engine_name(op.signature), kernel=format_kernel(op))
        return replace(known, package=core.package_of(domain, op.kernels["cpu"])), op.signature
    packages = waiting.get(domain, [])
    # Whether a plug-in declares this op is known only once it is imported.
    is_open = packages and core.are_plugins_enabled() and not op and not core.op_versions(domain, name)
    problems = () if is_open else (str(op) if op else core.describe_missing(domain, name, opset),)
    return replace(found, package=", ".join(packages) or None, problems=problems), None


def _custom_node(node: onnx.NodeProto, found: CustomNode, signature: core.Signature | None) -> CustomNode:
    given = {item.name: attribute_value(item) for item in node.attribute}
    problem = core.find_mismatch(node, signature) if signature else None
    problems = (problem,) if problem else found.problems
    return replace(found, name=node.name, attributes=given, problems=problems)


def _format_builtin(node: onnx.NodeProto) -> str:
    domain, name = core.key_of(node)
    return name if domain == ONNX_DOMAIN else f"{domain}::{name}"
