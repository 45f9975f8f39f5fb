"""Which declared op each node of a model means, and what is missing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from .._ops import adoption, plugins, registry
from .._ops.builtin import DOMAINS, is_builtin, unknown_version
from .._ops.op import AnyOp
from .._schema.node import misfits
from ..errors import DeclarationError
from .model import Key, Model, key_of

IMPORT_IT = "import the module that declares it before creating the session"


def import_plugins(model: Model) -> None:
    """Import the installed plug-ins of the domains of which the model needs an op that is not declared.

    Raises
    ------
    PluginError
        One of them is broken.
    """
    functions = model.functions()
    keys = {(*key_of(node), opset) for node, opset in model.nodes()}
    undeclared = {key[:2] for key in keys if registry.find(*key) is None} - functions
    plugins.import_for(domain for domain, name in undeclared if not is_builtin(domain, name))


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

    ops: dict[Key, AnyOp] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def resolve(model: Model, adopted: Mapping[Key, AnyOp | DeclarationError], shared: set[str]) -> Resolution:
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
    ours = registry.domains() - shared - DOMAINS
    missing: dict[str, int] = {}
    opsets: dict[Key, int] = {}
    for node, opset in model.nodes():
        key = key_of(node)
        if key in functions:
            continue
        op = registry.find(*key, opset) or adopted.get(key)
        if isinstance(op, DeclarationError):
            result.problems.append(str(op))
        elif op is not None:
            result.problems += misfits(node, op.signature)
            if result.ops.setdefault(key, op) is not op:
                mixed = _describe_mixed(result.ops[key], opsets[key], op, opset)
                result.problems += [mixed] if mixed not in result.problems else []
            opsets.setdefault(key, opset)
        elif key[0] in ours and not is_builtin(*key):
            problem = describe_missing(*key, opset)
            missing[problem] = missing.get(problem, 0) + 1
    result.problems += [f"{text} ({count} node{'s'[: count > 1]})" for text, count in missing.items()]
    hosted = {domain for domain, _ in result.ops}
    unknown = [unknown_version(*item) for item in sorted(model.imports()) if item[0] not in hosted]
    result.problems += filter(None, unknown)
    return result


def _describe_mixed(op: AnyOp, opset: int, other: AnyOp, other_opset: int) -> str:
    # ONNX Runtime would run one of them for both.
    return (
        f"{op.signature.qualified_name} is version {op.version} where the model imports version {opset} of "
        f"{op.domain!r}, and version {other.version} where it imports version {other_opset}; let the graph and the "
        "model's functions import the same version (opset_import)"
    )


def describe_missing(domain: str, name: str, opset: int) -> str:
    """What to say of an operator that is not declared: the version that is, or the nearest name."""
    wanted = f"{domain}::{name}"
    versions = sorted(registry.versions(domain, name))
    if versions:
        return (
            f"{wanted} is declared from version {versions[0]} on; the model imports version {opset} of {domain!r}: "
            f"export it with that version, or declare the op with version={opset}"
        )
    if adoption.is_disabled(domain, name):
        return (
            f"{wanted} is a function that onnxruntime_extensions.enable_py_op(False) disables; call "
            "onnxruntime_extensions.enable_py_op(True) before creating the session"
        )
    if provider := registry.provider(domain):
        return f"{wanted} is not declared: {provider.refusal(name)}"
    if domain == "aten" or domain.startswith("torch."):
        namespace = domain.removeprefix("torch.")
        call = "" if domain == "aten" else f'"{namespace}"'
        return (
            f"{wanted} is the operator of torch's namespace {namespace!r} that fell back in the export; import "
            f"exporters and call exporters.register_fallback({call}) before creating the session"
        )
    if held_back := plugins.held_back(domain):
        return (
            f"{wanted} is not declared; {held_back} provides this domain, and {plugins.VARIABLE}=0 keeps it from "
            "being imported"
        )
    # One that takes the place of ONNX Runtime's own says nothing of what else there is.
    declared = [op.signature for op in registry.latest() if not is_builtin(op.domain, op.name)]
    elsewhere = [signature.qualified_name for signature in declared if signature.name == name]
    beside = difflib.get_close_matches(name, [signature.name for signature in declared if signature.domain == domain])
    nearest = elsewhere or [f"{domain}::{near}" for near in beside]
    if nearest:
        return f"{wanted} is not declared; did you mean {nearest[0]}?"
    return f"{wanted} is not declared; {IMPORT_IT}"
