"""The declaration form of onnxruntime-extensions: ``op_type=``, lists of type codes, ``attrs=``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .declaration import check_version, split_op_type
from .errors import DeclarationError
from .signature import Attribute, AttributeKind, Input, Output, Signature, TypeParameter
from .types import from_onnx

DEFAULT_DOMAIN = "ai.onnx.contrib"
"""Where onnxruntime-extensions puts an operator whose name gives no domain."""


class PyCustomOpDef:
    """The element type codes of onnxruntime-extensions, which are ONNX's."""

    undefined = 0
    dt_float = 1
    dt_uint8 = 2
    dt_int8 = 3
    dt_uint16 = 4
    dt_int16 = 5
    dt_int32 = 6
    dt_int64 = 7
    dt_string = 8
    dt_bool = 9
    dt_float16 = 10
    dt_double = 11
    dt_uint32 = 12
    dt_uint64 = 13
    dt_complex64 = 14
    dt_complex128 = 15
    dt_bfloat16 = 16


_ATTRIBUTE_KINDS = {
    PyCustomOpDef.dt_int64: AttributeKind.INT,
    PyCustomOpDef.dt_int32: AttributeKind.INT,
    PyCustomOpDef.dt_float: AttributeKind.FLOAT,
    PyCustomOpDef.dt_string: AttributeKind.STRING,
}


def read_signature(
    function: Callable[..., Any],
    op_type: str | None = None,
    inputs: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    attrs: Mapping[str, int] | Sequence[str] | None = None,
    version: int = 1,
) -> Signature:
    """The Signature of a declaration in the form of onnxruntime-extensions.

    Parameters
    ----------
    op_type : str, optional
        ``"domain::Name"``; without a domain it is ``ai.onnx.contrib``, and without a name the function's.
    inputs, outputs : sequence of int, optional
        Type codes (``PyCustomOpDef.dt_float``), one float each unless given.
    attrs : mapping of str to int, or sequence of str, optional
        Attribute names and their type codes; strings where only names are given.

    Raises
    ------
    DeclarationError
        Anything wrong with the declaration.
    """
    op_type = op_type or function.__name__
    if "::" not in op_type:
        op_type = f"{DEFAULT_DOMAIN}::{op_type}"
    domain, name = split_op_type(op_type)
    check_version(version, op_type)
    parameters = inspect.signature(function).parameters
    positional = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    codes = {"inputs": inputs, "outputs": outputs}
    tensors = {
        which: [
            _tensor_type(op_type, which, i, code)
            for i, code in enumerate([PyCustomOpDef.dt_float] if listed is None else listed)
        ]
        for which, listed in codes.items()
    }
    if not tensors["outputs"]:
        raise DeclarationError(f"{op_type}: outputs is empty; an operator has at least one output")
    names = positional + [f"input_{i}" for i in range(len(positional), len(tensors["inputs"]))]
    signature = Signature(
        domain,
        name,
        version,
        tuple(Input(name, type) for name, type in zip(names, tensors["inputs"], strict=False)),
        tuple(Output(f"output_{i}", type) for i, type in enumerate(tensors["outputs"])),
        tuple(_attributes(op_type, attrs, parameters)),
        returns_tuple=len(tensors["outputs"]) > 1,
    )
    _check_callable(function, signature)
    return signature


def as_kernel(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function` called as onnxruntime-extensions calls it.

    Its inputs are copies that it may write to, and absent attributes are left out.
    """

    def kernel(*arrays: Any, **attributes: Any) -> Any:
        present = {name: value for name, value in attributes.items() if value is not None}
        return function(*(np.array(array) for array in arrays), **present)

    kernel.__dict__.update(__wrapped__=function, __name__=function.__name__, __doc__=function.__doc__)
    kernel.__qualname__ = function.__qualname__
    return kernel


def _tensor_type(op_type: str, which: str, index: int, code: Any) -> TypeParameter:
    row = from_onnx(int(code))
    if row is None:
        raise DeclarationError(
            f"{op_type}: {which}[{index}] is {code!r}; expected a type code such as PyCustomOpDef.dt_float"
        )
    return TypeParameter(row.type_str, (row.dtype,))


def _attributes(
    op_type: str, attrs: Mapping[str, int] | Sequence[str] | None, parameters: Mapping[str, inspect.Parameter]
) -> list[Attribute]:
    kinds = dict.fromkeys(attrs or (), PyCustomOpDef.dt_string)
    if isinstance(attrs, Mapping):
        kinds = dict(attrs)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    attributes = []
    for name, code in kinds.items():
        kind = _ATTRIBUTE_KINDS.get(int(code))
        if kind is None:
            raise DeclarationError(
                f"{op_type}: attribute {name!r} has type code {code!r}; ONNX attributes are dt_int64, dt_float or "
                'dt_string here; for other kinds declare the op with hints: @onnx_op("domain::Name")'
            )
        parameter = parameters.get(name)
        has_default = parameter is not None and parameter.default is not parameter.empty
        attribute = Attribute(name, kind, required=not (has_default or (parameter is None and takes_any)))
        if has_default and parameter is not None and parameter.default is not None:
            attribute = Attribute(name, kind, False, attribute.convert(parameter.default))
        attributes.append(attribute)
    return attributes


def _check_callable(function: Callable[..., Any], signature: Signature) -> None:
    try:
        inspect.signature(function).bind(*signature.inputs, **{a.name: None for a in signature.attributes})
    except TypeError as error:
        raise DeclarationError(
            f"{signature.qualified_name}: {function.__qualname__} cannot be called with the {len(signature.inputs)} "
            f"declared inputs and its attributes ({error}); make inputs=[...] and attrs=[...] match its parameters"
        ) from None
