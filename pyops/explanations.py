"""What ONNX Runtime's refusals mean, and what to type."""

from __future__ import annotations

import re


def explanations(message: str) -> list[str]:
    """What is known about an error message of ONNX Runtime; empty where nothing is."""
    old = [opset_too_old(match["name"], int(match["opset"])) for match in _OPSET_TOO_OLD.finditer(message)][:1]
    found = [(re.search(pattern, message), text) for pattern, text in _EXPLANATIONS]
    return old + [text.format(**match.groupdict()) for match, text in found if match]


def opset_too_old(name: str, opset: int) -> str:
    """What to say of an operator that ONNX's own domain does not have in this opset version."""
    import onnx

    if not onnx.defs.has(name):
        return f"no version of ONNX has an operator {name}: a node of another domain must name that domain"
    return (
        f"{name} came into ONNX after opset {opset}, which the model imports; export it with opset_version="
        f"{onnx.defs.get_schema(name).since_version} or a later one that this ONNX Runtime knows"
    )


_OPSET_TOO_OLD = re.compile(r"No Op registered for (?P<name>\w+) with domain_version of (?P<opset>\d+)")

_EXPLANATIONS = (
    (
        r"Domain already set in registry",
        "a library that the session options hold has operators in a domain in which ops are declared with pyops; "
        'declare these in another domain, or use engine="extensions", which hosts them elsewhere',
    ),
    (
        r"Conflicting with a registered kernel",
        "where the session options hold one library twice (register_custom_ops_library), make new options",
    ),
    (
        r"Failed to add kernel for (?P<name>\w+) (?P<domain>\S+) .*Conflicting with a registered kernel",
        "{domain}::{name} was declared twice with onnxruntime_extensions.onnx_op, which cannot replace an operator; "
        "restart Python, and declare it with @pyops.onnx_op, which can",
    ),
    (
        r"Error (?P<node>Node.*?)'s input (?P<input>\d+) is marked single but has an empty",
        "{node} leaves out its input {input}, which its operator requires; where the operator is yours, declare that "
        "input as `X | None = None`",
    ),
    (
        r"Could not find an implementation for (?P<name>\w+)\(\d+\) node with name '(?P<node>[^']*)'",
        "this ONNX Runtime has no kernel of {name} for the types in this model (see the node {node!r}); use float32 "
        "there, another execution provider, or take its place with a kernel of your own: "
        '@onnx_op("ai.onnx::{name}", override=True)',
    ),
    (
        r"Op \((?P<name>\w+)\) output arg \((?P<value>[^)]*)\) type inference failed",
        "ONNX Runtime does not know the type of {value!r}, which {name} gives, nor looks for it in a function of the "
        "model; add it to the model: model.graph.value_info.append(onnx.helper.make_tensor_value_info({value!r}, "
        "onnx.TensorProto.FLOAT, None)), for float32",
    ),
    (
        r"Unsupported model IR version: \d+, max supported IR version: (?P<newest>\d+)",
        "the installed onnx writes models in a newer form than this ONNX Runtime reads; set model.ir_version = "
        "{newest} before saving it",
    ),
    (
        r"(?:Unable to find attribute |attribute with name: *'?)(?P<name>\w+)",
        "a node lacks the attribute {name}, without which its operator has no kernel; where the operator is yours, "
        "give the attribute a default",
    ),
    (
        r"Type (?P<type>\w+) not supported by python customops api",
        "onnxruntime_extensions.onnx_op has no {type}; declare the operator with @pyops.onnx_op instead",
    ),
)
"""What to say where a pattern is found in a message; the text has the pattern's groups."""
