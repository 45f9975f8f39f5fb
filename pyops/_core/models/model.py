"""Loading ONNX models, iterating over their contents, and renaming their nodes for a session."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..._support.builtin_operators import ONNX_DOMAIN
from ...errors import ModelError
from .hosting import Host, declared_name
from .weightless_reading import Skimmed, skim

if TYPE_CHECKING:
    import onnx

_ORT = b"ORTM"  # what a model in ORT format has in its bytes 4 to 7

Key = tuple[str, str]
"""The domain and op type of a node, or the domain and name of a function."""


class HasModelProto(Protocol):
    """An object with a ``model_proto``, such as torch's ``ONNXProgram``."""

    @property
    def model_proto(self) -> Any:
        """Return the model as an ``onnx.ModelProto``."""


ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | HasModelProto"
"""The types that `load` accepts."""


@dataclass
class Model:
    """A model in the form that ONNX Runtime takes, and as a protobuf.

    Attributes
    ----------
    source : str or bytes
        The path or the bytes to pass to ``onnxruntime.InferenceSession``.
    proto : onnx.ModelProto or None
        None for a model in ORT format, or for bytes that are not a model. Long initializers of a large model from a
        file or bytes have no values here.
    folder : str or None
        The folder of external data, for a model from a file.
    values : Skimmed or None
        The positions of those values.
    """

    source: str | bytes
    proto: onnx.ModelProto | None = None
    folder: str | None = None
    values: Skimmed | None = None

    @cached_property
    def uses(self) -> dict[tuple[Key, int], list[onnx.NodeProto]]:
        """Return the nodes of the graph, its subgraphs and the model's functions, by operator and opset version."""
        found: dict[tuple[Key, int], list[onnx.NodeProto]] = {}
        for container, imports in self.containers():
            versions = {full_domain(entry.domain): entry.version for entry in imports}
            named: dict[tuple[str, str], list[onnx.NodeProto]] = defaultdict(list)
            for node in _nodes(container):
                named[node.domain, node.op_type].append(node)
            for nodes in named.values():
                key = key_of(nodes[0])
                found.setdefault((key, versions.get(key[0], 1)), []).extend(nodes)
        return found

    def nodes(self) -> Iterator[tuple[onnx.NodeProto, int]]:
        """Iterate over the nodes of the graph, its subgraphs and the model's functions.

        Yields
        ------
        (onnx.NodeProto, int)
            The node, and the opset version that the model imports for its domain.
        """
        for container, imports in self.containers():
            versions = {full_domain(entry.domain): entry.version for entry in imports}
            for node in _nodes(container):
                yield node, versions.get(full_domain(node.domain), 1)

    def imports(self) -> set[tuple[str, int]]:
        """Return the domain and version of every opset that the model or one of its functions imports."""
        return {(_text(entry.domain), entry.version) for _, imports in self.containers() for entry in imports}

    def functions(self) -> set[Key]:
        """Return the domain and name of every function that the model defines."""
        return {(full_domain(f.domain), f.name) for f in self.proto.functions} if self.proto else set()

    def containers(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the graph and the model's functions, each with the opsets that it imports."""
        if self.proto is None:
            return
        yield self.proto.graph, self.proto.opset_import
        for function in self.proto.functions:
            yield function, function.opset_import

    def hosted(self, hosts: Mapping[Key, Host]) -> Model:
        """Return the model with its nodes renamed to the domains and op types that host their ops.

        ONNX Runtime also requires a name, even if it is empty, for each optional input before a variadic one; exporters
        omit trailing ones, and this adds them.

        Returns
        -------
        Model
            A copy, or this model if nothing has to be changed.
        """
        import onnx

        if self.proto is None or not any(
            _changes(node, hosts[key]) for (key, _), nodes in self.uses.items() if key in hosts for node in nodes
        ):
            return self
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        model = Model(b"", proto, self.folder, self.values)
        for container, imports in model.containers():
            added: dict[str, int] = {}
            for node in _nodes(container):
                host = hosts.get(key_of(node))
                if host is not None:
                    if host.domain != full_domain(node.domain):
                        added[host.domain] = max(host.op.version, added.get(host.domain, 1))
                        node.domain = host.domain
                    node.op_type = host.name
                    node.input.extend([""] * _missing_names(node, host))
            imports.extend(onnx.helper.make_opsetid(*item) for item in sorted(added.items()))
        model.source = model.serialized()
        return model

    @property
    def is_ort(self) -> bool:
        """Return whether the model is in ORT format."""
        if isinstance(self.source, bytes):
            return self.source[4:8] == _ORT
        with Path(self.source).open("rb") as file:
            return file.read(8)[4:] == _ORT

    def parsed(self, if_ort: str) -> onnx.ModelProto:
        """Return the protobuf.

        Parameters
        ----------
        if_ort : str
            What to say of a model in ORT format, which has none.

        Raises
        ------
        ModelError
            There is none, or it has no graph.
        """
        if self.proto is not None and self.proto.HasField("graph"):
            return self.proto
        what = repr(self.source) if isinstance(self.source, str) else "this"
        raise ModelError(if_ort if self.is_ort else f"{what} is not an ONNX model, or damaged: export or copy it again")

    def check_texts(self) -> None:
        """Raise a `ModelError` if a text of the model is not UTF-8."""
        if self.proto is not None:
            _check_text(self.proto)

    def serialized(self) -> bytes:
        """Return the protobuf serialized, with the values of all initializers."""
        import onnx

        assert self.proto is not None
        if self.values is None or not self.values.long:
            return bytes(self.proto.SerializeToString())
        rest, long = onnx.ModelProto(), self.values.long
        rest.CopyFrom(self.proto)
        del rest.graph.initializer[:]
        rest.graph.initializer.extend(item for item in self.proto.graph.initializer if item.name not in long)
        return self.values.with_initializers(rest.SerializeToString())


def _changes(node: onnx.NodeProto, host: Host) -> bool:
    return (host.domain, host.name) != key_of(node) or _missing_names(node, host) > 0


def _missing_names(node: onnx.NodeProto, host: Host) -> int:
    signature = host.op.signature
    return max(0, len(signature.inputs) - 1 - len(node.input)) if signature.is_variadic else 0


def graphs(container: Any) -> Iterator[Any]:
    """Iterate over a graph or a function, and the graphs that are attributes of its nodes."""
    yield container
    for node in container.node:
        if attributes := node.attribute:
            for attribute in attributes:
                if attribute.type in _WITH_GRAPHS:
                    for graph in (attribute.g, *attribute.graphs):
                        yield from graphs(graph)


def _nodes(container: Any) -> Iterator[onnx.NodeProto]:
    for graph in graphs(container):
        yield from graph.node


_WITH_GRAPHS = {0, 5, 10}  # AttributeProto.UNDEFINED (old models do not say the type), GRAPH and GRAPHS


def full_domain(domain: str) -> str:
    """Return the domain, with ``ai.onnx`` for the empty string that stands for it in models."""
    return _text(domain) or ONNX_DOMAIN


def key_of(node: onnx.NodeProto) -> Key:
    """Return the declared domain and op type of a node, even if a session of pyops saved the model."""
    return full_domain(node.domain), declared_name(_text(node.op_type))


def _check_text(part: Any) -> None:
    if isinstance(part, (str, bytes)):
        _text(part)
    elif hasattr(part, "ListFields"):
        for field, value in part.ListFields():
            if field.type in (field.TYPE_STRING, field.TYPE_MESSAGE):
                _check_text(value)
    else:
        for item in part:
            _check_text(item)


def _text(text: str | bytes) -> str:
    """Return a text of a model; raise if it is not UTF-8, in which case protobuf gives bytes."""
    if isinstance(text, bytes):
        raise ModelError(
            f"the model has the text {text[:40]!r}, which is not UTF-8, as all text in ONNX is; the file is damaged: "
            "export it again"
        )
    return text


def load_model(source: Any) -> Model:
    """Load a model from a path, bytes, an ``onnx.ModelProto`` or torch's ``ONNXProgram``.

    A `Model` is returned as it is.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelError
        The source is of another type, or a protobuf too large to be serialized.
    """
    if isinstance(source, Model):
        return source
    proto = getattr(source, "model_proto", source)
    if isinstance(proto, (str, os.PathLike)):
        return _load_file(Path(os.fspath(proto)))
    if isinstance(proto, (bytes, bytearray, memoryview)):
        given = Model(bytes(proto))
        return given if given.is_ort else _skimmed(given.source)
    if hasattr(proto, "SerializeToString") and hasattr(proto, "graph"):
        from google.protobuf.message import EncodeError  # which onnx imports

        try:
            return Model(proto.SerializeToString(), proto)
        except (ValueError, EncodeError) as error:  # it depends on the version of protobuf
            raise ModelError(
                f"the model cannot be serialized ({error}); protobuf's limit is 2 GB: save it with external data "
                "(onnx.save_model(..., save_as_external_data=True), or program.save(..., external_data=True)) and "
                "pass the path"
            ) from error
    raise ModelError(
        f"expected a path, bytes, an onnx.ModelProto or a torch ONNXProgram; got {type(source).__qualname__}"
    )


def _load_file(path: Path) -> Model:
    if path.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r} is a folder; pass the path of a model file, such as model.onnx")
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {os.fspath(path)!r} (from {Path.cwd()})")
    if path.suffix == ".ort":
        return Model(os.fspath(path))
    return _skimmed(os.fspath(path), os.fspath(path.parent))


def _skimmed(source: str | bytes, folder: str | None = None) -> Model:
    """Return a model, without a protobuf if `source` is not a model, which ONNX Runtime then reports."""
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        values = skim(source)
        proto.ParseFromString(values.data)
    except (ValueError, DecodeError):
        return Model(source, None, folder)
    values.data = b""
    return Model(source, proto, folder, values)
