"""Which version of each domain an exported model imports."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir

from pyops import builtin, registry
from pyops import model as models
from pyops.explanations import opset_too_old
from pyops.resolution import resolve

from ..errors import ExportError
from ..translating.nodes import Emitted
from .optimization import all_nodes


def check_custom_opsets(custom_opsets: Mapping[str, int]) -> None:
    """Check what the user gave as ``custom_opsets``.

    Raises
    ------
    ExportError
        It is no mapping of domains to versions, holds ONNX's own domain, or a version that ONNX
        Runtime does not know.
    """
    for domain, version in custom_opsets.items():
        if domain in ("", builtin.ONNX_DOMAIN):
            raise ExportError(f"custom_opsets has ONNX's own domain {domain!r}; pass opset_version={version}")
        if not isinstance(domain, str) or not isinstance(version, int) or version < 1:
            raise ExportError(
                f"custom_opsets has {domain!r}: {version!r}; write a domain and its version, "
                'for example {"mylibrary": 2}'
            )
    _check_known(custom_opsets)


def settle(model: onnx_ir.Model, emitted: Emitted, custom_opsets: Mapping[str, int]) -> None:
    """Import of each domain the version that the user gave, or under which all its nodes mean what was emitted.

    Raises
    ------
    ExportError
        No version of a domain means that, its nodes do not fit the declarations of the version
        that the user gave, ONNX Runtime does not know the version, or ONNX has no such operator in the
        opset version of the model.
    """
    present = {(node.domain, node.op_type) for node in all_nodes(model)}
    unused = custom_opsets.keys() - {domain for domain, _ in present}
    if unused:
        used = ", ".join(sorted({domain for domain, _ in present} - {""})) or "none but ONNX's"
        raise ExportError(
            f"custom_opsets has {', '.join(sorted(unused))}, of which the model has no node; it has {used}"
        )
    # Torch imports the first version of a domain that it meets.
    versions: dict[str, int] = {}
    for domain, name in present & emitted.keys():
        versions[domain] = max(versions.get(domain, 1), *emitted[domain, name])
    versions |= custom_opsets
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports.update({domain: version for domain, version in versions.items() if domain in imports})
    for domain, name in sorted(present & emitted.keys()):
        if domain not in custom_opsets:
            _check_meaning(domain, name, emitted[domain, name], versions[domain])
    _check_fit(model, custom_opsets)
    _check_known(model.opset_imports)
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


def _check_fit(model: onnx_ir.Model, custom_opsets: Mapping[str, int]) -> None:
    """Check the nodes of these domains against the operators that the versions mean."""
    proto = onnx.ModelProto()
    proto.graph.node.extend(
        onnx_ir.serde.serialize_node(node) for node in all_nodes(model) if node.domain in custom_opsets
    )
    proto.opset_import.extend(onnx.helper.make_opsetid(*item) for item in custom_opsets.items())
    proto.functions.extend(onnx.FunctionProto(domain=key[0], name=key[1]) for key in model.functions)
    problems = resolve(models.Model(b"", proto), {}, set()).problems
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise ExportError(f"with custom_opsets={dict(custom_opsets)} the model does not fit the operators:\n{lines}")


def _check_known(imports: Mapping[str, int]) -> None:
    others = {domain: version for domain, version in imports.items() if domain not in registry.domains()}
    problems = [builtin.unknown_version(*item) for item in others.items()]
    if any(problems):
        raise ExportError("; ".join(filter(None, problems)))


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
