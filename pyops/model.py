"""What a session needs to know of an ONNX model: which declared op each of its nodes means.

Models are read as data; nothing in them is run or imported.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from . import plugins, registry
from .builtin import ONNX_DOMAIN, is_builtin, unknown_version
from .errors import DeclarationError, ModelError
from .hosting import Host, declared_name
from .node import linked_attributes, misfits
from .op import Op
from .types import dtype_name, from_type_str

if TYPE_CHECKING:
    import onnx

_Key = tuple[str, str]


class HasModelProto(Protocol):
    """What torch's ``ONNXProgram`` is here."""

    @property
    def model_proto(self) -> Any:
        """The model."""


ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | HasModelProto"
"""What a model can be given as."""


@dataclass
class Model:
    """A model as a session takes it, and as a protobuf where it is one.

    Attributes
    ----------
    source : str or bytes
        For ``onnxruntime.InferenceSession``.
    proto : onnx.ModelProto or None
        None for ORT format models, which are not read.
    folder : str or None
        Where external data lies, for a model from a file.
    """

    source: str | bytes
    proto: onnx.ModelProto | None = None
    folder: str | None = None

    def nodes(self) -> Iterator[tuple[onnx.NodeProto, int]]:
        """Every node of the graph, its subgraphs and the model's functions, with its domain's opset version."""
        for container, imports in self._containers():
            versions = {full_domain(entry.domain): entry.version for entry in imports}
            for node in _nodes(container):
                yield node, versions.get(full_domain(node.domain), 1)

    def operators(self) -> set[_Key]:
        """Domain and op type of its nodes."""
        return {(full_domain(node.domain), node.op_type) for node, _ in self.nodes()}

    def imports(self) -> set[tuple[str, int]]:
        """Domain and version of every opset that the model or one of its functions imports."""
        return {(entry.domain, entry.version) for _, imports in self._containers() for entry in imports}

    def functions(self) -> set[_Key]:
        """Domain and name of the functions that the model defines itself."""
        return {(full_domain(f.domain), f.name) for f in self.proto.functions} if self.proto else set()

    def _containers(self) -> Iterator[tuple[Any, Any]]:
        if self.proto is None:
            return
        yield self.proto.graph, self.proto.opset_import
        for function in self.proto.functions:
            yield function, function.opset_import

    def constants(self) -> Iterator[tuple[str, onnx.TensorProto]]:
        """Every tensor that the model holds, with its name or its node's."""
        if self.proto is None:
            return
        graphs = [self.proto.graph]
        for node, _ in self.nodes():
            for attribute in node.attribute:
                yield node.name, attribute.t
                graphs += [attribute.g, *attribute.graphs]
        for graph in graphs:
            for tensor in graph.initializer:
                yield tensor.name, tensor

    def inlined(self, hosts: Mapping[_Key, Host]) -> Model:
        """The model with its functions inlined, if a hosted node in one has attributes that the caller sets."""
        import onnx.inliner

        if self.proto is None:
            return self
        nodes = (node for function in self.proto.functions for node in _nodes(function))
        if not any(linked_attributes(node) for node in nodes if (full_domain(node.domain), node.op_type) in hosts):
            return self
        proto = onnx.inliner.inline_local_functions(self.proto)
        return Model(proto.SerializeToString(), proto, self.folder)

    def hosted(
        self, hosts: Mapping[_Key, Host], mark: Callable[[onnx.NodeProto, Op[..., Any]], None] | None = None
    ) -> Model:
        """The model as ONNX Runtime can take it: nodes under the domains and op types that host them.

        Before a variadic input ONNX Runtime wants a name for each optional one, an empty name where
        it is absent; exporters leave out those at the end.

        Parameters
        ----------
        mark : callable, optional
            What an engine changes of each node besides.
        """
        import onnx

        if self.proto is None or not any(_changes(node, hosts) for node, _ in self.nodes()):
            return self
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        model = Model(b"", proto, self.folder)
        for container, imports in model._containers():
            added: dict[str, int] = {}
            for node in _nodes(container):
                host = hosts.get((full_domain(node.domain), node.op_type))
                if host is not None:
                    if host.domain != full_domain(node.domain):
                        added[host.domain] = max(host.op.version, added.get(host.domain, 1))
                        node.domain = host.domain
                    node.op_type = host.name
                    node.input.extend([""] * _missing_names(node, host))
                    if mark is not None:
                        mark(node, host.op)
            imports.extend(onnx.helper.make_opsetid(*item) for item in sorted(added.items()))
        model.source = proto.SerializeToString()
        return model


def _changes(node: onnx.NodeProto, hosts: Mapping[_Key, Host]) -> bool:
    key = (full_domain(node.domain), node.op_type)
    host = hosts.get(key)
    return host is not None and ((host.domain, host.name) != key or _missing_names(node, host) > 0)


def _missing_names(node: onnx.NodeProto, host: Host) -> int:
    inputs = host.op.signature.inputs
    return max(0, len(inputs) - 1 - len(node.input)) if inputs and inputs[-1].variadic else 0


def _nodes(container: Any) -> Iterator[onnx.NodeProto]:
    for node in container.node:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph)


def full_domain(domain: str) -> str:
    """A domain as people spell it: ONNX's own is the empty string in models."""
    return domain or ONNX_DOMAIN


def load(source: Any) -> Model:
    """A model from a path, bytes, an ``onnx.ModelProto`` or torch's ``ONNXProgram``; itself, if it is one already.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelError
        The source is nothing of these, or a protobuf too large to be handed over as bytes.
    """
    if isinstance(source, Model):
        return source
    proto = getattr(source, "model_proto", source)
    if isinstance(proto, (str, os.PathLike)):
        return _load_file(Path(os.fspath(proto)))
    if isinstance(proto, (bytes, bytearray, memoryview)):
        data = bytes(proto)
        return Model(data, None if data[4:8] == b"ORTM" else _parse(data))
    if hasattr(proto, "SerializeToString") and hasattr(proto, "graph"):
        try:
            return Model(proto.SerializeToString(), proto)
        except Exception as error:  # protobuf's own type differs between its versions
            raise ModelError(
                f"the model cannot be serialized ({error}); protobuf takes 2 GB: save it with external data "
                "(onnx.save_model(..., save_as_external_data=True), or program.save(..., external_data=True)) and "
                "pass the path"
            ) from error
    raise ModelError(
        f"expected a path, bytes, an onnx.ModelProto or a torch ONNXProgram; got {type(source).__qualname__}"
    )


def _load_file(path: Path) -> Model:
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {os.fspath(path)!r} (from {Path.cwd()})")
    if path.suffix == ".ort":
        return Model(os.fspath(path))
    return Model(os.fspath(path), _parse(path.read_bytes()), os.fspath(path.parent))


def _parse(data: bytes) -> onnx.ModelProto | None:
    """The protobuf; None where it is none, which ONNX Runtime then says."""
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return None
    return proto


@dataclass
class Resolution:
    """Which op each custom node of a model means.

    Attributes
    ----------
    ops : dict
        Domain and name to the op, for every node that an op is declared for.
    problems : list of str
        What is missing or does not fit, one line each.
    """

    ops: dict[_Key, Op[..., Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def resolve(model: Model, adopted: Mapping[_Key, Op[..., Any] | DeclarationError], shared: set[str]) -> Resolution:
    """Find the declared op behind each node.

    Parameters
    ----------
    adopted : mapping
        Ops that others declared, by domain and name, or why they cannot be hosted.
    shared : set of str
        Domains in which others may have operators beside the declared ones.
    """
    result = Resolution()
    functions = model.functions()
    ours = registry.domains() - shared
    missing: dict[str, int] = {}
    for node, opset in model.nodes():
        key = (full_domain(node.domain), node.op_type)
        if key in functions:
            continue
        op = registry.find(*key, opset) or adopted.get(key)
        if isinstance(op, DeclarationError):
            result.problems.append(str(op))
        elif op is not None:
            result.ops[key] = op
            result.problems += misfits(node, op.signature)
        elif key[0] in ours and not is_builtin(*key):
            problem = describe_missing(*key, opset)
            missing[problem] = missing.get(problem, 0) + 1
    result.problems += [f"{text} ({count} node{'s'[: count > 1]})" for text, count in missing.items()]
    hosted = {domain for domain, _ in result.ops}
    unknown = [unknown_version(*item) for item in sorted(model.imports()) if item[0] not in hosted]
    result.problems += filter(None, unknown)
    return result


def undeclared_domains(model: Model) -> set[str]:
    """The domains of the operators that neither the model, nor ONNX Runtime, nor a declared op provides."""
    functions = model.functions()
    keys = {(full_domain(node.domain), node.op_type, opset) for node, opset in model.nodes()}
    undeclared = {key[:2] for key in keys if registry.find(*key) is None} - functions
    return {domain for domain, name in undeclared if not is_builtin(domain, name)}


def unknown_operators(model: Model, resolution: Resolution) -> list[str]:
    """One line for each operator that neither the model, nor ONNX Runtime, nor a declared op provides."""
    known = model.functions() | resolution.ops.keys()
    keys = {(full_domain(node.domain), node.op_type): opset for node, opset in model.nodes()}
    return [describe_missing(*key, opset) for key, opset in keys.items() if key not in known and not is_builtin(*key)]


def mistyped_inputs(model: Model, resolution: Resolution, refusal: str, hosted_by: str | None = None) -> list[str]:
    """What an op declares for the input whose type ONNX Runtime refuses, if that is what it says.

    Parameters
    ----------
    hosted_by : str, optional
        The one op type by which ONNX Runtime knows all ops.
    """
    refused = _MISTYPED.search(refusal)
    if refused is None:
        return []
    lines: dict[str, None] = {}
    for node, _ in model.nodes():
        op = resolution.ops.get((full_domain(node.domain), node.op_type))
        known_as = hosted_by or node.op_type
        if op is None or known_as != declared_name(refused["op"]) or refused["value"] not in node.input:
            continue
        for item, value in zip(op.signature.parameters(len(node.input)), node.input, strict=True):
            row = from_type_str(refused["type"])
            if value == refused["value"] and (row is None or row.dtype not in item.type.dtypes):
                given = dtype_name(row.dtype) if row else refused["type"]
                lines[f"{op.signature.qualified_name}: input {item.name!r} is {given}; declared is {item.type}"] = None
    return list(lines)


_MISTYPED = re.compile(r"Type '(?P<type>[^']*)' of input parameter \((?P<value>[^)]*)\) of operator \((?P<op>[^)]*)\)")


def describe_missing(domain: str, name: str, opset: int) -> str:
    """What to say of an operator that is not declared: the version that is, or the nearest name."""
    wanted = f"{domain}::{name}"
    versions = sorted(registry.versions(domain, name))
    if versions:
        return (
            f"{wanted} is declared from version {versions[0]} on; the model imports version {opset} of {domain!r}: "
            f"export it with that version, or declare the op with version={opset}"
        )
    if provider := registry.provider(domain):
        return f"{wanted} is not declared: {provider.refusal(name)}"
    if domain == "aten" or domain.startswith("torch."):
        namespace = domain.removeprefix("torch.")
        call = "" if domain == "aten" else f'"{namespace}"'
        return (
            f"{wanted} is the operator of torch's namespace {namespace!r} that fell back in the export; import "
            f"exporters and call exporters.use_fallback({call}) before creating the session"
        )
    if held_back := plugins.held_back(domain):
        return (
            f"{wanted} is not declared; {held_back} provides this domain, and {plugins.VARIABLE}=0 keeps it from "
            "being imported"
        )
    declared = [op.signature for op in registry.latest()]
    elsewhere = [signature.qualified_name for signature in declared if signature.name == name]
    beside = difflib.get_close_matches(name, [signature.name for signature in declared if signature.domain == domain])
    nearest = elsewhere or [f"{domain}::{near}" for near in beside]
    if nearest:
        return f"{wanted} is not declared; did you mean {nearest[0]}?"
    return f"{wanted} is not declared; import the module that declares it before creating the session"
