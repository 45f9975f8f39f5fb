"""The domain and op type under which ONNX Runtime knows an op.

A session hosts an op under its own domain and op type, unless they would conflict, and renames the model's nodes
accordingly before it passes the model to ONNX Runtime. There are two kinds of conflicts:

- ONNX Runtime rejects a domain that is registered twice, so the domains of onnxruntime-extensions' library are
  taken in a session whose options have that library.
- ONNX Runtime's optimizers compare op types without domains. They mistake some custom operators for the ONNX operator
  of the same name and remove them, replace them or crash. Which names are affected varies between releases, so every op
  with the name of an ONNX operator is renamed.
"""

from __future__ import annotations

from typing import NamedTuple

from ..._support.builtin_operators import ONNX_DOMAIN, is_builtin
from ..ops.op import AnyOp
from ..schema.signature import Signature

_PREFIX = "pyops"
# Found by running nodes with the name of each ONNX operator in another domain, alone and in patterns that are fused.
_MISTAKEN = {
    *("Add", "Cast", "Constant", "Conv", "ConvTranspose", "DequantizeLinear", "Div", "Expand", "Gather", "Gemm"),
    *("Identity", "If", "Mul", "Shape", "Sub", "Transpose", "Where"),
}


class Host(NamedTuple):
    """An op, with the domain and op type under which ONNX Runtime knows it."""

    domain: str
    name: str
    op: AnyOp


def host_of(op: AnyOp, taken: set[str]) -> Host:
    """Return the domain and op type under which to host an op.

    Parameters
    ----------
    taken : set of str
        Domains that another library registers in the session.
    """
    domain = f"{_PREFIX}.hosted.{op.domain}" if op.domain in taken else op.domain
    is_free = op.domain == ONNX_DOMAIN or not is_builtin(ONNX_DOMAIN, op.name)
    return Host(domain, op.name if is_free else f"{_PREFIX}_{op.name}", op)


def all_hosts(op: AnyOp) -> set[Host]:
    """Return every host that a session may have chosen for an op, since a saved model may refer to any of them."""
    return {Host(op.domain, op.name, op), host_of(op, set()), host_of(op, {op.domain})}


def plain_hosts(op: AnyOp) -> set[Host]:
    """Return the hosts of an op for sessions that do not rename the model's nodes.

    These are the op's own name, unless optimizers mistake it for an ONNX operator, and the name in saved models.
    """
    return {host_of(op, set())} if is_mistaken(op) else {Host(op.domain, op.name, op), host_of(op, set())}


def is_mistaken(op: AnyOp | Signature) -> bool:
    """Return whether ONNX Runtime's optimizers are known to mistake the op for an ONNX operator of that name."""
    return op.domain != ONNX_DOMAIN and op.name in _MISTAKEN


def declared_name(name: str) -> str:
    """Return the declared op type for the op type that ONNX Runtime knows."""
    bare = name.removeprefix(f"{_PREFIX}_")
    return bare if bare == name or is_builtin(ONNX_DOMAIN, bare) else name
