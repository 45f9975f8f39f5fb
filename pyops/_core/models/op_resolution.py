"""Resolution of a model's nodes to declared ops, and the messages for those that have none."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..._support.builtin_operators import DOMAINS, is_builtin, unknown_version
from ...errors import DeclarationError, ModelError
from .. import satellites
from ..ops import op_registry, plugins
from ..ops.extensions_decorators import taken_domains
from ..ops.op import AnyOp
from ..schema.node_validation import find_mismatch
from .model import Key, Model

IMPORT_IT = "import the module that declares it before creating the session"
FILL_IT = "fill_missing=True"


def import_plugins_of(model: Model, in_libraries: Collection[Key] = ()) -> None:
    """Import the installed plug-ins for the domains of undeclared ops in the model.

    Parameters
    ----------
    in_libraries : collection of Key
        Ops that a library in the session has, which need no declaration.

    Raises
    ------
    PluginError
        A plug-in is broken.
    """
    known = model.functions() | set(in_libraries)
    undeclared = {key for key, opset in model.uses if op_registry.find_op(*key, opset) is None} - known
    plugins.import_plugins_for(domain for domain, name in undeclared if not is_builtin(domain, name))


@dataclass
class Resolution:
    """The ops of a model's custom nodes.

    Attributes
    ----------
    ops : dict
        (domain, name) to the op, for the nodes whose op is declared.
    problems : list of str
        A message for each op that is missing, and each node that does not match its op.
    """

    ops: dict[Key, AnyOp] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def resolve_ops(
    model: Model,
    adopted: Mapping[Key, AnyOp | DeclarationError],
    shared: set[str] | None = None,
    in_libraries: Collection[Key] = (),
) -> Resolution:
    """Find the declared op of each node.

    Parameters
    ----------
    adopted : mapping
        The result of `extensions_decorators.adopted_ops`.
    shared : set of str, optional
        Domains in which other libraries may have operators; an undeclared op in them is not a problem. Those of
        onnxruntime-extensions by default.
    in_libraries : collection of Key
        Ops that a library in the session has; it runs their nodes.
    """
    result = Resolution()
    functions = model.functions()
    ours = op_registry.op_domains() - (taken_domains() if shared is None else shared) - DOMAINS
    missing: dict[str, int] = {}
    opsets: dict[Key, int] = {}
    for (key, opset), nodes in model.uses.items():
        # A function that has the name of a declared op is what the op is without pyops.
        if key in in_libraries or (key in functions and op_registry.find_op(*key, opset) is None):
            continue
        op = op_registry.find_op(*key, opset) or adopted.get(key)
        if isinstance(op, DeclarationError):
            result.problems += [str(op)] * len(nodes)
        elif op is not None:
            result.problems += filter(None, (find_mismatch(node, op.signature) for node in nodes))
            if result.ops.setdefault(key, op) is not op:
                result.problems.append(_describe_mixed(result.ops[key], opsets[key], op, opset))
            opsets.setdefault(key, opset)
        elif key[0] in ours and not is_builtin(*key):
            problem = describe_missing(*key, opset)
            missing[problem] = missing.get(problem, 0) + len(nodes)
    result.problems += [f"{text} ({count} node{'s'[: count > 1]})" for text, count in missing.items()]
    hosted = {domain for domain, _ in result.ops}
    unknown = [unknown_version(*item) for item in sorted(model.imports()) if item[0] not in hosted]
    result.problems += filter(None, unknown)
    return result


def _describe_mixed(op: AnyOp, opset: int, other: AnyOp, other_opset: int) -> str:
    # A session hosts one version of an op, so ONNX Runtime would run that version for both nodes.
    return (
        f"{op.signature.qualified_name} is version {op.version} where the model imports version {opset} of "
        f"{op.domain!r}, and version {other.version} where it imports version {other_opset}; let the graph and the "
        "model's functions import the same version (opset_import)"
    )


def describe_missing(domain: str, name: str, opset: int) -> str:
    """Return the message for an undeclared operator, with the most likely reason or the most similar name."""
    wanted = f"{domain}::{name}"
    versions = sorted(op_registry.op_versions(domain, name))
    if versions:
        return (
            f"{wanted} is declared from version {versions[0]} on; the model imports version {opset} of {domain!r}: "
            f"export it with version {versions[0]}, or declare the op with version={opset}"
        )
    if provider := satellites.providers.get(domain):
        try:
            provider().provide(name)
        except ModelError as error:
            return f"{wanted} is not declared: {error}"
    if domain == "aten" or domain.startswith("torch."):
        namespace = domain.removeprefix("torch.")
        call = "" if domain == "aten" else f'"{namespace}"'
        return (
            f"{wanted} calls an operator of torch's namespace {namespace!r}, to which the export fell back; import "
            f"exporters and call exporters.register_fallback({call}) before creating the session"
        )
    if package := plugins.disabled_package(domain):
        return (
            f"{wanted} is not declared; {package} provides this domain, and {plugins.VARIABLE}=0 keeps it from "
            "being imported"
        )
    # Ops that replace built-in operators of ONNX Runtime are poor suggestions.
    declared = [op.signature for op in op_registry.latest() if not is_builtin(op.domain, op.name)]
    elsewhere = [signature.qualified_name for signature in declared if signature.name == name]
    beside = difflib.get_close_matches(name, [signature.name for signature in declared if signature.domain == domain])
    nearest = elsewhere or [f"{domain}::{near}" for near in beside]
    if nearest:
        return f"{wanted} is not declared; did you mean {nearest[0]}?"
    return f"{wanted} is not declared; {IMPORT_IT}"
