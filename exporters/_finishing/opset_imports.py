"""The version of each domain that an exported model imports, and the validation of its nodes in these versions."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir

from pyops._models.model import Model
from pyops._models.resolution import resolve
from pyops._ops import adoption, builtin, registry
from pyops._runtime.refusals import opset_too_old

from .._optimization import all_nodes
from ..errors import ExportError


def check_custom_opsets(custom_opsets: Mapping[str, int]) -> None:
    """Validate the ``custom_opsets`` of an export.

    Raises
    ------
    ExportError
        It is not a mapping of domains to versions, has ONNX's own domain, or has a version that ONNX
        Runtime does not know.
    """
    if not isinstance(custom_opsets, Mapping):
        raise ExportError(
            f'custom_opsets is {custom_opsets!r}; write domains and their versions, for example {{"mylibrary": 2}}'
        )
    for domain, version in custom_opsets.items():
        if domain in ("", builtin.ONNX_DOMAIN):
            raise ExportError(f"custom_opsets has ONNX's own domain {domain!r}; pass opset_version={version}")
        if not isinstance(domain, str) or not isinstance(version, int) or version < 1:
            raise ExportError(
                f"custom_opsets has {domain!r}: {version!r}; write a domain and its version, "
                'for example {"mylibrary": 2}'
            )
        unknown = builtin.unknown_version(domain, version)
        if unknown and domain not in registry.domains():
            raise ExportError(unknown)


def set_opset_imports(
    model: onnx_ir.Model, emitted: Mapping[tuple[str, str], set[int]], custom_opsets: Mapping[str, int]
) -> None:
    """Set the version that the model imports of each domain.

    It is the user's where `custom_opsets` has one, and otherwise the highest version emitted.

    Parameters
    ----------
    emitted : mapping
        The versions in which each ``(domain, name)`` was emitted.

    Raises
    ------
    ExportError
        Nodes of one domain need different versions; the model has no node of a domain in `custom_opsets`; or an
        operator is not in ONNX at the model's opset version.
    """
    present = {(node.domain, node.op_type) for node in all_nodes(model)}
    unused = custom_opsets.keys() - {domain for domain, _ in present}
    if unused:
        used = ", ".join(sorted({domain for domain, _ in present} - {""})) or "none but ONNX's"
        raise ExportError(
            f"custom_opsets has {', '.join(sorted(unused))}, but the model has no node of that domain; it has {used}"
        )
    # torch imports the version of the first node of a domain, which may be lower than another node's.
    versions: dict[str, int] = {}
    for domain, name in present & emitted.keys():
        versions[domain] = max(versions.get(domain, 1), *emitted[domain, name])
    versions |= custom_opsets
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports.update({domain: version for domain, version in versions.items() if domain in imports})
    for domain, name in sorted(present & emitted.keys()):
        if domain not in custom_opsets:
            _check_meaning(domain, name, emitted[domain, name], versions[domain])
    _check_onnx_operators(model)


def _check_meaning(domain: str, name: str, emitted: set[int], version: int) -> None:
    meant = registry.find(domain, name, version)
    wrong = emitted - {meant.version} if meant else set()
    if wrong:
        raise ExportError(
            f"the model has {domain}::{name} of version {min(wrong)}, but imports version {version} of "
            f"{domain} for other nodes, where {name} means version {meant.version if meant else 0}; a model "
            "imports one version of a domain, so register the newer version of the operator"
        )


def _check_onnx_operators(model: onnx_ir.Model) -> None:
    opset_version = model.opset_imports.get("", 1)
    named = {node.op_type for node in all_nodes(model) if not node.domain}
    problems = [
        opset_too_old(name, opset_version)
        for name in sorted(named)
        if not onnx.defs.has(name, opset_version) and registry.find(builtin.ONNX_DOMAIN, name, opset_version) is None
    ]
    if problems:
        raise ExportError("; ".join(problems))


def validate_nodes(model: onnx_ir.Model, custom_opsets: Mapping[str, int]) -> None:
    """Name absent inputs before a variadic one, and validate each node against the declaration of its op.

    Nodes that a translation emits are validated when they are emitted, for the version that the translation names.
    The others come from ``torch.onnx.ops.symbolic``, an onnxscript function or the user's translation table.

    Parameters
    ----------
    custom_opsets : mapping
        What the user passed, named in the error.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes differ from the declaration; a domain of declared ops has no op of
        the node's name and version; or ONNX Runtime does not know a version that the model imports.
    """
    domains = registry.domains()
    declared = [node for node in all_nodes(model) if (node.domain or builtin.ONNX_DOMAIN) in domains]
    if not declared and model.opset_imports.keys() <= {""}:
        return
    _name_absent_inputs(model)
    proto = onnx.ModelProto()
    proto.graph.node.extend(map(onnx_ir.serde.serialize_node, declared))
    proto.opset_import.extend(onnx.helper.make_opsetid(*item) for item in model.opset_imports.items())
    proto.functions.extend(onnx.FunctionProto(domain=key[0], name=key[1]) for key in model.functions)
    problems = resolve(Model(b"", proto), {}, adoption.taken_domains()).problems
    if problems:
        asked = f"with custom_opsets={dict(custom_opsets)} " if custom_opsets else ""
        lines = "".join(f"\n  - {line}" for line in dict.fromkeys(problems))
        raise ExportError(f"{asked}the model and the declared ops disagree:{lines}")


def _name_absent_inputs(model: onnx_ir.Model) -> None:
    """Give absent inputs before a variadic one their empty names, which ONNX requires and torch trims."""
    for node in all_nodes(model):
        op = registry.find(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is not None and op.signature.inputs and op.signature.inputs[-1].variadic:
            node.resize_inputs(max(len(node.inputs), len(op.signature.inputs) - 1))
