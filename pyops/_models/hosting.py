"""Under which domain and op type a session hosts an op: its own, unless those are not free.

The model is changed accordingly before ONNX Runtime sees it. Two things are in the way: where a
session's options hold onnxruntime-extensions' library, its domains are taken, since ONNX Runtime
refuses a domain that is registered twice; and ONNX Runtime's optimizers take an operator that is
called like some of ONNX's for that one, whatever its domain, and remove it, replace it or crash. Which
ones differs from release to release, so that none of ONNX's names is free.
"""

from __future__ import annotations

from typing import NamedTuple

from .._ops.builtin import ONNX_DOMAIN, is_builtin
from .._ops.op import AnyOp
from .._schema.signature import Signature

_PREFIX = "pyops"
# Found by running a node of each ONNX operator's name in another domain, alone and in the patterns that are fused.
_MISTAKEN = {
    *("Add", "Cast", "Constant", "Conv", "ConvTranspose", "DequantizeLinear", "Div", "Expand", "Gather", "Gemm"),
    *("Identity", "If", "Mul", "Shape", "Sub", "Transpose", "Where"),
}


class Host(NamedTuple):
    """An op, and the domain and op type that ONNX Runtime knows it by."""

    domain: str
    name: str
    op: AnyOp


def host(op: AnyOp, taken: set[str]) -> Host:
    """Where to host an op.

    Parameters
    ----------
    taken : set of str
        Domains that another library may register.
    """
    domain = f"{_PREFIX}.hosted.{op.domain}" if op.domain in taken else op.domain
    is_free = op.domain == ONNX_DOMAIN or not is_builtin(ONNX_DOMAIN, op.name)
    return Host(domain, op.name if is_free else f"{_PREFIX}_{op.name}", op)


def all_hosts(op: AnyOp) -> set[Host]:
    """Every place where a session may have hosted an op: a saved model may have any of them."""
    return {Host(op.domain, op.name, op), host(op, set()), host(op, {op.domain})}


def plain_hosts(op: AnyOp) -> set[Host]:
    """Where sessions that take models as they are find an op: its own name if it does, and that in saved models."""
    return {host(op, set())} if is_mistaken(op) else {Host(op.domain, op.name, op), host(op, set())}


def is_mistaken(op: AnyOp | Signature) -> bool:
    """Whether ONNX Runtime's optimizers are known to take the op for one of ONNX's."""
    return op.domain != ONNX_DOMAIN and op.name in _MISTAKEN


def declared_name(name: str) -> str:
    """The op type behind one that ONNX Runtime knows."""
    bare = name.removeprefix(f"{_PREFIX}_")
    return bare if bare == name or is_builtin(ONNX_DOMAIN, bare) else name
