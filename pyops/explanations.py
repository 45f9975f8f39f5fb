"""What ONNX Runtime's refusals mean, and what to type."""

from __future__ import annotations

import re
from collections.abc import Callable

_Match = re.Match[str]


def explanations(message: str) -> list[str]:
    """What is known about an error message of ONNX Runtime; empty where nothing is."""
    return [explain(match) for pattern, explain in _EXPLANATIONS if (match := pattern.search(message))]


def opset_too_old(name: str, opset: int) -> str:
    """What to say of an operator that ONNX's own domain does not have in this opset version."""
    import onnx

    if not onnx.defs.has(name):
        return f"no version of ONNX has an operator {name}: a node of another domain must name that domain"
    return (
        f"{name} came into ONNX after opset {opset}, which the model imports; export it with opset_version="
        f"{onnx.defs.get_schema(name).since_version} or a later one that this ONNX Runtime knows"
    )


def _opset_too_old(match: _Match) -> str:
    return opset_too_old(match["name"], int(match["opset"]))


def _declared_twice(match: _Match) -> str:
    return (
        f"{match['domain']}::{match['name']} was declared twice with onnxruntime_extensions.onnx_op, which cannot "
        "replace an operator; restart Python, and declare it with @pyops.onnx_op, which can"
    )


def _absent_input(match: _Match) -> str:
    return (
        f"{match['node']} leaves out its input {match['input']}, which its operator requires; where the operator is "
        "yours, declare that input as `X | None = None`"
    )


def _no_kernel(match: _Match) -> str:
    name = match["name"]
    return (
        f"this ONNX Runtime has no kernel of {name} for the types in this model (see the node {match['node']!r}); use "
        f"float32 there, another execution provider, or take its place with a kernel of your own: "
        f'@onnx_op("ai.onnx::{name}", override=True)'
    )


def _ir_version(match: _Match) -> str:
    return (
        f"the installed onnx writes models in a newer form than this ONNX Runtime reads; set model.ir_version = "
        f"{match['newest']} before saving it"
    )


_EXPLANATIONS: tuple[tuple[re.Pattern[str], Callable[[_Match], str]], ...] = (
    (re.compile(r"No Op registered for (?P<name>\w+) with domain_version of (?P<opset>\d+)"), _opset_too_old),
    (
        re.compile(r"Failed to add kernel for (?P<name>\w+) (?P<domain>\S+) .*Conflicting with a registered kernel"),
        _declared_twice,
    ),
    (re.compile(r"Error (?P<node>Node.*?)'s input (?P<input>\d+) is marked single but has an empty"), _absent_input),
    (
        re.compile(r"Could not find an implementation for (?P<name>\w+)\(\d+\) node with name '(?P<node>[^']*)'"),
        _no_kernel,
    ),
    (re.compile(r"Unsupported model IR version: \d+, max supported IR version: (?P<newest>\d+)"), _ir_version),
    (
        re.compile(r"Unable to find attribute (?P<name>\w+)|attribute with name: *'?(?P<other>\w+)"),
        lambda match: (
            f"a node lacks the attribute {match['name'] or match['other']}, without which its operator has no kernel; "
            "where the operator is yours, give the attribute a default"
        ),
    ),
    (
        re.compile(r"Type (?P<type>\w+) not supported by python customops api"),
        lambda match: (
            f"onnxruntime_extensions.onnx_op has no {match['type']}; declare the operator with @pyops.onnx_op instead"
        ),
    ),
)
