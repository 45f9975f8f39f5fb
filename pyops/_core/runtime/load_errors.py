"""Explanations of why ONNX Runtime rejects a model, in terms of its operators."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..._support.builtin_operators import is_builtin, opset_too_old
from ..._support.element_types import describe, dtype_name, format_scalar, from_type_str
from ..._support.text_tables import printable
from ...errors import EngineError, ModelError
from ..models.model import Key, Model
from ..models.op_resolution import FILL_IT, Resolution, describe_missing
from ..satellites import satellite
from .native import ort_custom_op


def explanations(message: str) -> list[str]:
    """Return explanations of an ONNX Runtime error message; empty if the message is not recognized."""
    old = [opset_too_old(match["name"], int(match["opset"])) for match in _OPSET_TOO_OLD.finditer(message)][:1]
    found = [(re.search(pattern, message), text) for pattern, text in _EXPLANATIONS]
    return old + [text.format(**match.groupdict()) for match, text in found if match]


_OPSET_TOO_OLD = re.compile(r"No Op registered for (?P<name>\w+) with domain_version of (?P<opset>\d+)")

_NOT_CAPTURED = "not been partitioned to the CUDAExecutionProvider"
_WRONG_TYPE = r"Type '(?P<type>[^']*)' of input parameter \((?P<value>[^)]*)\) of operator \((?P<name>\w+)\)"
_EXPLANATIONS = (
    (
        r"Opset (?P<opset>\d+) is under development[\s\S]* domain (?P<domain>\S+) is till opset (?P<last>\d+)",
        "the model imports opset {opset} of {domain}, and this ONNX Runtime supports opsets up to {last}; export the "
        "model with opset_version={last}, or upgrade onnxruntime",
    ),
    (
        _WRONG_TYPE,
        "{value!r}, an input of {name}, is {type} in the model, which {name} does not take; convert it with a Cast "
        "node, or, if the operator is yours, declare it for that type",
    ),
    (
        r"Domain already set in registry",
        "operators of one domain come from two libraries in the session options, or from a library and from pyops; "
        'give one of them another domain, or, for ops of pyops, use engine="extensions", which hosts them elsewhere',
    ),
    (
        r"Conflicting with a registered kernel",
        "if a library is registered twice in the session options (register_custom_ops_library), create new options",
    ),
    (
        r"Failed to add kernel for (?P<name>\w+) (?P<domain>\S+) .*Conflicting with a registered kernel",
        "{domain}::{name} was declared twice with onnxruntime_extensions.onnx_op, which cannot replace an operator; "
        "restart Python, and declare it with @pyops.onnx_op, which can",
    ),
    (
        r"Error (?P<node>Node.*?)'s input (?P<input>\d+) is marked single but has an empty",
        "{node} leaves out its input {input}, which its operator requires; if the operator is yours, declare that "
        "input as `X | None = None`",
    ),
    (
        # The second is what a session of several execution providers says.
        r"(?:Could not find an implementation|Provider type) for (?P<name>\w+)(?:\(\d+\))? node with name "
        r"'(?P<node>[^']*)'",
        "this ONNX Runtime has no kernel of {name} for the types in this model (see node {node!r}); let pyops compute "
        f"it ({FILL_IT}), use float32 there, or replace it with your own kernel: "
        '@onnx_op("ai.onnx::{name}", override=True)',
    ),
    (
        _NOT_CAPTURED,
        "with enable_cuda_graph every node must run on the GPU, and ONNX Runtime, or a library in the session options, "
        "has no CUDA kernel for some node; remove enable_cuda_graph from the provider's options",
    ),
    (
        r"Op \((?P<name>\w+)\) output arg \((?P<value>[^)]*)\) type inference failed",
        "ONNX Runtime cannot infer the type of {value!r}, an output of {name}, and does not infer it from a "
        "function of the model; add it to the model: "
        "model.graph.value_info.append(onnx.helper.make_tensor_value_info({value!r}, onnx.TensorProto.FLOAT, None)), "
        "for float32",
    ),
    (
        r"(?:Unable to find attribute |attribute with name: *'?)(?P<name>\w+)",
        "a node lacks the attribute {name}, which its operator requires; if the operator is yours, "
        "give the attribute a default",
    ),
    (
        r"Type (?P<type>\w+) not supported by python customops api",
        "onnxruntime_extensions.onnx_op has no {type}; declare the operator with @pyops.onnx_op instead",
    ),
)
"""Pairs of a pattern to find in an error message and an explanation, formatted with the pattern's groups."""


_LONGEST = 4000  # characters
_LIBRARY_TWICE = ("Domain already set in registry", "Conflicting with a registered kernel")


def explained(
    error: Exception,
    source: Model,
    resolution: Resolution,
    engine: str,
    filling: Any = None,
    in_libraries: Collection[Key] = (),
) -> BaseException:
    """Return the error to raise when ONNX Runtime rejects a model.

    It is an `EngineError` or `ModelError` with `error` as its cause where the operators at fault can be named, and
    `error` itself otherwise.

    Raises
    ------
    ModelError
        A text of the model is not UTF-8, which ONNX Runtime cannot tell.
    """
    if isinstance(error, UnicodeDecodeError):
        source.check_texts()
    is_twice = any(text in str(error) for text in _LIBRARY_TWICE)
    lines = [node.problem for node in filling.nodes if node.problem] if filling else []
    if engine == "extensions" and is_twice:
        lines.append(
            "the extensions engine registers onnxruntime-extensions' library itself, and a library registered in the "
            "options has the same domains; leave it out of the options, or register pyops.get_library_path() in new "
            "options after all ops are declared"
        )
    if _NOT_CAPTURED in str(error):
        from ..cuda.cuda_provider import on_cpu  # it imports onnxruntime

        lines += [
            f"{op.signature.qualified_name} {reason} and would run on the CPU; with enable_cuda_graph every node must "
            f"run on the GPU: {fix}"
            for op, reason, fix in on_cpu(resolution.ops.values(), engine)
        ]
    if not is_twice:
        lines += _unknown_operators(source, resolution, in_libraries)
    if not lines:
        lines += explanations(str(error))
    is_supported, hosted_by = ort_custom_op.is_supported, None
    if engine == "extensions":  # which hosts every op under one op type
        is_supported, hosted_by = satellite("extensions").is_supported, satellite("extensions").HOST_OP_TYPE
    for op in resolution.ops.values():
        dtypes = dict.fromkeys(dtype for parameter in op.signature.type_parameters for dtype in parameter.dtypes)
        missing = ", ".join(dtype_name(dtype) for dtype in dtypes if not is_supported(dtype))
        is_needed = missing or not lines or re.search(_WRONG_TYPE, str(error))
        if (hosted_by or op.name) in str(error) and is_needed:
            lacking = f"; the {engine} engine does not support {missing}" if missing else ""
            lines.append(f"{op.signature} is declared{lacking}")
    if filling and filling.untyped:
        lines.append(filling.untyped_message)
    if not lines:
        return error
    kind = EngineError if engine == "extensions" and is_twice else ModelError
    explained = kind(listing(f"ONNX Runtime rejects the model ({error})", lines))
    explained.__cause__ = error
    return explained


def listing(headline: str, lines: list[str]) -> str:
    """Return a headline and indented lines as one message, made printable."""
    return "\n".join(map(_readable, [f"{headline}:", *(f"  - {line}" for line in lines)]))


def _readable(text: str) -> str:
    """Escape control characters (names come from the model) and truncate very long text."""
    text = printable(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _unknown_operators(model: Model, resolution: Resolution, in_libraries: Collection[Key]) -> list[str]:
    """Return one line per operator that neither the model, ONNX Runtime, a library nor a declared op provides."""
    known = model.functions() | resolution.ops.keys() | set(in_libraries)
    keys = {key: opset for key, opset in model.uses if key not in known and not is_builtin(*key)}
    return [describe_missing(*key, opset) for key, opset in keys.items()]


def note_mistyped(error: Exception, inputs: Sequence[Any], feed: Any) -> None:
    """Add a note to ONNX Runtime's rejection of a feed for each input of the wrong type, with the fix."""
    if not isinstance(feed, Mapping):
        return
    for item in inputs:
        row, value = from_type_str(item.type), feed.get(item.name, error)
        if row is None or value is error:
            continue
        if value is None:
            error.add_note(f"input {item.name!r} is None; the model needs an array of {dtype_name(row.dtype)}")
            continue
        if row.dtype.kind == "O" or getattr(value, "dtype", row.dtype) == row.dtype:
            continue
        given = f"{item.name}.detach()" if getattr(value, "requires_grad", False) else item.name
        error.add_note(
            f"input {item.name!r} is {describe(value)}; the model needs {dtype_name(row.dtype)}: "
            f"np.asarray({given}, {format_scalar(row.dtype)})"
        )
