"""What is in a model, and which kernel would run each of its custom nodes.

The model is read as data: nothing is run for it, nor imported.
"""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import adoption, model, plugins, registry
from .builtin import DOMAINS, ONNX_DOMAIN, is_builtin
from .errors import ModelError
from .model import Model
from .node import misfits
from .op import Op
from .origin import engine_name, module_of, package_of, source_line
from .tables import html_table, text_table
from .types import dtype_name, from_onnx

if TYPE_CHECKING:
    import onnx

_LONGEST_VALUE = 60


@dataclass(frozen=True)
class Import:
    """An opset that the model imports.

    Attributes
    ----------
    provider : str
        ONNX Runtime, the model's own functions, a package, or nobody (empty).
    """

    domain: str
    version: int
    provider: str


@dataclass(frozen=True)
class Value:
    """An input or output of the model; a dimension is a size, a name or ``?``."""

    name: str
    type: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.type}{'' if self.shape is None else '[' + ', '.join(map(str, self.shape)) + ']'}"


@dataclass(frozen=True)
class CustomNode:
    """A node that ONNX Runtime has no operator for, or whose operator a declared op takes the place of.

    Attributes
    ----------
    opset : int
        The version of its domain that the model imports.
    attributes : dict of str to str
        As the model has them.
    version : int or None
        Of the declared op that would run it, if there is one; so for `engine`, `kernel` and `package`.
    engine : str or None
        What hosts the op in a session on this machine; ``reference`` where no session can.
    kernel : str or None
        The function and its source line.
    package : str or None
        The installed package that declares it, or would when it is imported.
    problems : tuple of str
        Why it would not run.
    """

    name: str
    domain: str
    op_type: str
    opset: int
    attributes: dict[str, str]
    version: int | None = None
    engine: str | None = None
    kernel: str | None = None
    package: str | None = None
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether a kernel would run it, in two or three words."""
        if self.kernel is not None:
            return "does not fit" if self.problems else "declared"
        return "not declared" if self.problems else "not imported"


@dataclass(frozen=True)
class ModelReport:
    """What `inspect` found: tables in a terminal and in a notebook.

    Attributes
    ----------
    builtin : dict of str to int
        How many nodes each operator of ONNX Runtime's own has.
    """

    ir_version: int
    producer: str
    imports: tuple[Import, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[CustomNode, ...]
    builtin: dict[str, int]

    @property
    def problems(self) -> list[str]:
        """Why a session would refuse the model."""
        return list(dict.fromkeys(problem for node in self.nodes for problem in node.problems))

    @property
    def ok(self) -> bool:
        """Whether every custom node has a kernel that would run it."""
        return not self.problems

    def __str__(self) -> str:
        parts = [f"IR version {self.ir_version}{f', made by {self.producer}' if self.producer else ''}"]
        parts += [text_table(table) for table in self.tables()]
        return "\n\n".join([*parts, *(["\n".join(self.notes())] if self.notes() else [])])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return "".join(map(html_table, self.tables())) + notes

    def tables(self) -> list[list[Sequence[str]]]:
        """Its parts as rows, the headers first."""
        imports = [(item.domain, str(item.version), item.provider or "nobody") for item in self.imports]
        values = [("input", item.name, str(item)) for item in self.inputs]
        values += [("output", item.name, str(item)) for item in self.outputs]
        tables: list[list[Sequence[str]]] = [
            [("domain", "version", "provided by"), *imports],
            [("", "name", "type"), *values],
        ]
        return [*tables, self.node_table()] if self.nodes else tables

    def node_table(self) -> list[Sequence[str]]:
        """The custom nodes as rows, the header first."""
        header = ("node", "operator", "opset", "attributes", "", "kernel", "engine", "package")
        rows = (
            (
                node.name,
                f"{node.domain}::{node.op_type}",
                str(node.opset),
                ", ".join(f"{name}={value}" for name, value in node.attributes.items()),
                node.verdict,
                node.kernel or "",
                node.engine or "",
                node.package or "",
            )
            for node in self.nodes
        )
        return [header, *rows]

    def notes(self) -> list[str]:
        """What the tables do not say."""
        builtin = ", ".join(f"{name} ({count})" for name, count in sorted(self.builtin.items()))
        custom = [] if self.nodes else ["no custom nodes"]
        return [*custom, *([f"ONNX Runtime's own: {builtin}"] if builtin else []), *self.problems]


def inspect(source: Any, *, import_plugins: bool = False) -> ModelReport:
    """Look at a model without running it.

    Parameters
    ----------
    source : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
    import_plugins : bool
        Import the installed plug-ins that the model needs, as a session does. Otherwise they are known by
        what their packages say of themselves.

    Raises
    ------
    ModelError
        `source` is no ONNX model.
    """
    loaded = model.load(source)
    if loaded.proto is None or not loaded.proto.HasField("graph"):
        raise ModelError(f"{_spell(source)} is no ONNX model (one in ORT format is not read)")
    if import_plugins:
        plugins.import_for(model.undeclared_domains(loaded))
    proto = loaded.proto
    constants = {tensor.name for tensor in proto.graph.initializer}
    return ModelReport(
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        imports=tuple(_imports(loaded)),
        inputs=tuple(_value(item) for item in proto.graph.input if item.name not in constants),
        outputs=tuple(map(_value, proto.graph.output)),
        nodes=tuple(custom_node(loaded, node, opset) for node, opset in loaded.nodes() if is_custom(loaded, node)),
        builtin=dict(Counter(_spell_builtin(node) for node, _ in loaded.nodes() if is_builtin(*_key(node)))),
    )


def custom_node(loaded: Model, node: onnx.NodeProto, opset: int) -> CustomNode:
    """What is known of a node."""
    domain, name = _key(node)
    given = {item.name: _spell_attribute(item) for item in node.attribute}
    found = CustomNode(node.name, domain, name, opset, given)
    op = registry.find(domain, name, opset) or adoption.adopted_ops().get((domain, name))
    if not isinstance(op, Op):
        waiting = [plugins.package(plugin) for plugin in plugins.not_imported() if plugin.name == domain]
        problem = str(op) if op else model.describe_missing(domain, name, opset)
        known = registry.versions(domain, name) or op
        # Whether the plug-in has this op is seen when it is imported.
        problems = () if waiting and not known and plugins.is_enabled() else (problem,)
        return replace(found, package=", ".join(waiting) or None, problems=problems)
    kernel = f"{op.__name__} ({source_line(op)})"
    return replace(
        found,
        version=op.version,
        engine=engine_name(op),
        kernel=kernel,
        package=package_of(op),
        problems=tuple(misfits(node, op.signature)),
    )


def is_custom(loaded: Model, node: onnx.NodeProto) -> bool:
    """Whether a node is not, or not only, ONNX Runtime's or the model's own."""
    key = _key(node)
    if key in loaded.functions():
        return False
    return not is_builtin(*key) or bool(registry.versions(*key)) or key in adoption.adopted_ops()


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return model.full_domain(node.domain), node.op_type


def _spell_builtin(node: onnx.NodeProto) -> str:
    domain, name = _key(node)
    return name if domain == ONNX_DOMAIN else f"{domain}::{name}"


def _imports(loaded: Model) -> list[Import]:
    declared = {op.domain: op for op in reversed(registry.latest())}
    functions = {domain for domain, _ in loaded.functions()}
    waiting = {plugin.name: plugins.package(plugin) for plugin in plugins.not_imported()}
    found = []
    for domain, version in sorted((model.full_domain(domain), version) for domain, version in loaded.imports()):
        providers = ["ONNX Runtime"] if domain in DOMAINS else []
        providers += ["functions of the model"] if domain in functions else []
        if domain in declared:
            providers.append(package_of(declared[domain]) or f"module {module_of(declared[domain])}")
        if domain in waiting:
            providers.append(f"{waiting[domain]} (not imported)")
        found.append(Import(domain, version, ", ".join(providers)))
    return found


def _value(item: onnx.ValueInfoProto) -> Value:
    if not item.type.HasField("tensor_type"):
        return Value(item.name, item.type.WhichOneof("value") or "?", None)
    tensor = item.type.tensor_type
    row = from_onnx(tensor.elem_type)
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return Value(item.name, dtype_name(row.dtype) if row else "?", shape)


def _spell_attribute(item: onnx.AttributeProto) -> str:
    import onnx

    if item.ref_attr_name:
        return f"that of the function ({item.ref_attr_name})"
    value = onnx.helper.get_attribute_value(item)
    if item.type == onnx.AttributeProto.TENSOR:
        row = from_onnx(value.data_type)
        return f"{dtype_name(row.dtype) if row else '?'}{list(value.dims)}"
    if item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return "graph"
    if item.type == onnx.AttributeProto.FLOAT:
        return f"{value:.9g}"
    if item.type == onnx.AttributeProto.FLOATS:
        text = f"[{', '.join(f'{number:.9g}' for number in value)}]"
    elif isinstance(value, bytes):
        text = repr(value.decode(errors="replace"))
    elif item.type == onnx.AttributeProto.STRINGS:
        text = repr([entry.decode(errors="replace") for entry in value])
    else:
        text = str(list(value) if item.type == onnx.AttributeProto.INTS else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _spell(source: Any) -> str:
    return repr(os.fspath(source)) if isinstance(source, (str, os.PathLike)) else f"this {type(source).__name__}"
