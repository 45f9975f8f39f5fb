"""One call of an op by onnxruntime-extensions: what its kernel returned or raised, as that takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OutputError
from ..node import add_note, describe_node
from ..op import AnyOp
from ..op import compute as compute_op
from ..signature import Signature
from ..types import STRING
from . import extensions_runs
from .extensions_hook import NOTHING, Answer, HookCall


def compute(op: AnyOp, call: HookCall, attributes: Mapping[str, Any], name: str = "", host: Any = None) -> Answer:
    """The outputs of a node, or `NOTHING` where its run has failed, or now fails.

    Parameters
    ----------
    name : str
        The node's, where it is known.
    host : SessionHost, optional
        Of the session, if it is ours.
    """
    if extensions_runs.failed(host):
        return NOTHING
    try:
        return _answer(op.signature, compute_op(op, call.inputs, op.signature.convert_attributes(attributes)))
    except BaseException as error:  # which would end the process
        add_note(error, describe_node(name, op.signature, call.inputs))
        extensions_runs.fail(error, host)
        return NOTHING


def _answer(signature: Signature, outputs: Sequence[Any]) -> Answer:
    """What a kernel returned, as onnxruntime-extensions takes it."""
    result: list[Any] = [0]
    for item, array in zip(signature.outputs, outputs, strict=True):
        result += [array.shape, _strings(signature, item.name, array) if array.dtype is STRING else _flat(array)]
    return tuple(result).__iter__


def _flat(array: Any) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else array.flatten()


def _strings(signature: Signature, name: str, array: Any) -> list[bytes]:
    texts = [text.encode() for text in array.flat]
    if any(b"\0" in text for text in texts):
        raise OutputError(
            f"{signature.qualified_name}: {name!r} holds a NUL character, at which onnxruntime-extensions cuts strings "
            "off; the native engine carries it"
        )
    return texts
