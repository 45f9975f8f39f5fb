"""Construction of a torch schema from a Signature."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from pyops._core import Attribute, AttributeKind, Signature, TypeParameter
from pyops._support.element_types import dtype_name

from ..errors import ExportError
from .tensors import TORCH_DTYPES

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*", re.ASCII)
# Words of torch's schemas.
_RESERVED = {"Ellipsis", "NoneType"}

# torch.export fixes an ``int``, ``float`` or ``bool`` of a schema to its example value, for the last two
# silently. SymInt and Scalar stay symbolic, so that the export of such a value can be rejected.
_TYPES = {
    AttributeKind.INT: "SymInt",
    AttributeKind.FLOAT: "Scalar",
    AttributeKind.STRING: "str",
    AttributeKind.INTS: "SymInt[]",
    AttributeKind.FLOATS: "Scalar[]",
    AttributeKind.STRINGS: "str[]",
}


def check_name(name: object) -> None:
    """Raise ExportError unless `name` is ``"ns::name"``; a dot in it, which torch allows, would break later exports."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExportError(
            f'{name!r} is not a name that torch can register; write "ns::name" of letters, digits and _, for example '
            '"mylibrary::add_round"'
        )


def torch_schema(signature: Signature) -> str:
    """Return the torch schema of an Op, without the name: ``(Tensor x, *, SymInt decimals=0) -> Tensor``.

    An input is a ``Tensor``, ``Tensor?`` if optional, or ``Tensor[]`` if variadic. An attribute is keyword-only; a
    default that torch's schemas cannot express (infinity, a list of str) becomes None. Tensor attributes are left out,
    since torch has none.

    Raises
    ------
    ExportError
        torch cannot express the signature: a tensor attribute has no default, an input or output is a string tensor, or
        torch has no parameter of such a name.
    """
    parameters = []
    for item in signature.inputs:
        _check_parameter(signature, item.name, _RESERVED)
        _check_dtypes(signature, f"input {item.name!r}", item.type)
        if item.variadic:
            parameters.append(f"Tensor[] {item.name}")
        elif item.optional:
            # A variadic input has no default, and a schema allows no parameter without one after a default.
            parameters.append(f"Tensor? {item.name}" + ("" if signature.inputs[-1].variadic else "=None"))
        else:
            parameters.append(f"Tensor {item.name}")
    attributes = [item for item in signature.attributes if _has_torch_type(signature, item)]
    for attribute in attributes:
        # By name, `self` would be the operator itself.
        _check_parameter(signature, attribute.name, {*_RESERVED, "self"})
    if attributes:
        parameters += ["*", *map(_parameter, attributes)]
    for output in signature.outputs:
        _check_dtypes(signature, f"output {output.name!r}", output.type)
    # With a variadic one, all outputs are in one list, since torch's exporter takes no list among other outputs.
    outputs = "Tensor[]" if signature.outputs[-1].variadic else ", ".join(["Tensor"] * len(signature.outputs))
    return f"({', '.join(parameters)}) -> {f'({outputs})' if ',' in outputs else outputs}"


def _check_parameter(signature: Signature, name: str, reserved: Collection[str]) -> None:
    if not name.isascii() or name in reserved:
        raise ExportError(
            f"{signature.qualified_name}: torch's operators cannot have a parameter named {name!r}; rename it in the "
            f"declaration, in ASCII letters, digits and _ (other than {', '.join(sorted(reserved))})"
        )


def _check_dtypes(signature: Signature, where: str, parameter: TypeParameter) -> None:
    if not any(dtype.name in TORCH_DTYPES for dtype in parameter.dtypes):
        names = ", ".join(map(dtype_name, parameter.dtypes))
        raise ExportError(
            f"{signature.qualified_name}: {where} is {names}, and torch has no such tensors; "
            "the op runs in ONNX Runtime, but cannot be a torch operator"
        )


def _has_torch_type(signature: Signature, attribute: Attribute) -> bool:
    if attribute.kind is not AttributeKind.TENSOR:
        return True
    if attribute.required:
        raise ExportError(
            f"{signature.qualified_name}: attribute {attribute.name!r} is a tensor, and torch's schemas have no "
            f"tensor attributes; make it an input ({attribute.name}: NDArray[...] before the `*`), which a module "
            "can hold as a buffer, or give it a default, which the torch operator then always uses"
        )
    return False


def _parameter(attribute: Attribute) -> str:
    kind = "Scalar" if attribute.boolean else _TYPES[attribute.kind]
    if attribute.required:
        return f"{kind} {attribute.name}"
    default = _default(attribute)
    return f"{kind}? {attribute.name}=None" if default is None else f"{kind} {attribute.name}={default}"


def _default(attribute: Attribute) -> str | None:
    """Return the default in the syntax of torch's schemas, or None if they cannot express it."""
    value: Any = attribute.default
    if value is None or attribute.boolean or attribute.kind in (AttributeKind.FLOATS, AttributeKind.STRINGS):
        return None
    if attribute.kind is AttributeKind.STRING:
        return json.dumps(value) if value.isascii() and value.isprintable() else None
    if attribute.kind is AttributeKind.FLOAT:
        # The shortest decimal that gives this float32: 0.1, not 0.10000000149011612.
        return str(np.float32(value)) if math.isfinite(value) else None
    return f"[{', '.join(map(str, value))}]" if attribute.kind is AttributeKind.INTS else str(value)
