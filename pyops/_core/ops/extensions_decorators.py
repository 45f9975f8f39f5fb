"""Declarations in the form of onnxruntime-extensions: ``op_type=``, lists of type codes, ``attrs=``.

They come from `onnx_op`, which takes that form too, and from functions decorated with onnxruntime-extensions' own
``onnx_op``. The latter are adopted as Ops, and remain registered with onnxruntime-extensions.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._support.annotations import signature_of
from ..._support.element_types import from_onnx
from ...errors import DeclarationError, InputError
from ..schema.attribute import Attribute, AttributeKind
from ..schema.declaration import read_name
from ..schema.signature import Input, Output, Signature, TypeParameter, check_returns
from . import source_location
from .op import AnyOp, Op

DEFAULT_DOMAIN = "ai.onnx.contrib"
"""The domain of operators whose ``op_type`` has none, as in onnxruntime-extensions."""

# The domains of onnxruntime-extensions' C++ operators.
_BUILTIN_DOMAINS = {DEFAULT_DOMAIN, "com.microsoft.extensions"}

_ops: weakref.WeakKeyDictionary[Any, AnyOp | DeclarationError] = weakref.WeakKeyDictionary()


class PyCustomOpDef:
    """Element type codes, as in onnxruntime-extensions; they are those of ``onnx.TensorProto.DataType``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyops import PyCustomOpDef, onnx_op
    >>> @onnx_op(op_type="codes::Twice", inputs=[PyCustomOpDef.dt_int64], outputs=[PyCustomOpDef.dt_int64])
    ... def twice(x):
    ...     return x * 2
    >>> twice(np.array([4]))
    array([8])
    """

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
    """Read a declaration in the form of onnxruntime-extensions into a Signature.

    Parameters
    ----------
    op_type : str, optional
        ``"domain::Name"`` or ``"Name"``. The domain defaults to ``ai.onnx.contrib``, the name to the function's.
    inputs, outputs : sequence of int, optional
        Type codes (``PyCustomOpDef.dt_float``). The default is one float32 tensor.
    attrs : mapping of str to int, or sequence of str, optional
        Type codes by attribute name, or names alone, which declares string attributes.

    Raises
    ------
    DeclarationError
        Anything is wrong with the declaration.
    """
    given: Any = op_type or getattr(function, "__name__", "")
    qualified: Any = f"{DEFAULT_DOMAIN}::{given}" if isinstance(given, str) and "::" not in given else given
    domain, name = read_name(qualified, version)
    called = _python_signature(function, qualified)
    parameters = called.parameters
    positional = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    tensors = {"inputs": _types(qualified, "inputs", inputs), "outputs": _types(qualified, "outputs", outputs)}
    if not tensors["outputs"]:
        raise DeclarationError(f"{qualified}: outputs is empty; an operator has at least one output")
    names = positional + [f"input_{i}" for i in range(len(positional), len(tensors["inputs"]))]
    signature = Signature(
        domain,
        name,
        version,
        tuple(Input(name, type) for name, type in zip(names, tensors["inputs"], strict=False)),
        tuple(Output(f"output_{i}", type) for i, type in enumerate(tensors["outputs"])),
        tuple(_attributes(qualified, attrs, parameters)),
        returns_tuple=len(tensors["outputs"]) > 1,
    )
    _check_callable(function, called, signature)
    return signature


def as_kernel(
    function: Callable[..., Any], signature: Signature, current: Callable[[], Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    """Return a kernel that calls `function` the way onnxruntime-extensions does.

    The function receives writable copies of the inputs, and no keyword argument for an absent attribute.

    Parameters
    ----------
    current : callable, optional
        Returns the function to call now, if it may change from `function` to another one.
    """

    def kernel(*arrays: Any, **attributes: Any) -> Any:
        present = {name: value for name, value in attributes.items() if value is not None}
        called = function if current is None else current()
        return called(*(np.array(array) for array in arrays), **present)

    functools.update_wrapper(kernel, function)
    kernel.__name__ = getattr(function, "__name__", signature.name)
    return kernel


def _python_signature(function: Any, op_type: str) -> inspect.Signature:
    if not callable(function) or isinstance(function, type):
        raise DeclarationError(f"{op_type}: {function!r} is not a function; put @onnx_op on a function")
    try:
        return signature_of(function)
    except ValueError:  # some built-in functions, and ufuncs before NumPy 2.4, have no signature to inspect
        return inspect.signature(lambda *inputs, **attributes: None)


def _types(op_type: str, which: str, codes: Sequence[int] | None) -> list[TypeParameter]:
    if codes is None:
        codes = [PyCustomOpDef.dt_float]
    if not isinstance(codes, (list, tuple)):
        raise DeclarationError(f"{op_type}: {which} is {codes!r}; write a list, such as [PyCustomOpDef.dt_float]")
    types = []
    for index, code in enumerate(codes):
        row = from_onnx(code) if isinstance(code, int) else None
        if row is None:
            raise DeclarationError(
                f"{op_type}: {which}[{index}] is {code!r}; expected a type code such as PyCustomOpDef.dt_float"
            )
        types.append(TypeParameter(row.type_str, (row.dtype,)))
    return types


def _attributes(
    op_type: str, attrs: Mapping[str, int] | Sequence[str] | None, parameters: Mapping[str, inspect.Parameter]
) -> list[Attribute]:
    if not isinstance(attrs or (), (Mapping, list, tuple)):
        raise DeclarationError(
            f"{op_type}: attrs is {attrs!r}; write a dict, such as {{'axis': PyCustomOpDef.dt_int64}}"
        )
    kinds = dict(attrs) if isinstance(attrs, Mapping) else dict.fromkeys(attrs or (), PyCustomOpDef.dt_string)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    attributes = []
    for name, code in kinds.items():
        kind = _ATTRIBUTE_KINDS.get(code) if isinstance(code, int) else None
        if kind is None:
            raise DeclarationError(
                f"{op_type}: attribute {name!r} has type code {code!r}; ONNX attributes are dt_int64, dt_float or "
                'dt_string here; for other kinds declare the op with hints: @onnx_op("domain::Name")'
            )
        parameter = parameters.get(name)
        has_default = parameter is not None and parameter.default is not parameter.empty
        attribute = Attribute(name, kind, required=not (has_default or (parameter is None and takes_any)))
        if has_default and parameter is not None and parameter.default is not None:
            try:
                attribute = Attribute(name, kind, False, attribute.convert(parameter.default))
            except InputError as error:
                raise DeclarationError(
                    f"{op_type}: the default does not fit: {error}; change the default, or the type code in attrs"
                ) from None
        attributes.append(attribute)
    return attributes


def _check_callable(function: Callable[..., Any], called: inspect.Signature, signature: Signature) -> None:
    check_returns(function, signature.qualified_name)
    try:
        called.bind(*signature.inputs, **{a.name: None for a in signature.attributes})
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(
            f"{signature.qualified_name}: {name} cannot be called with the {len(signature.inputs)} "
            f"declared inputs and its attributes ({error}); make inputs=[...] and attrs=[...] match its parameters"
        ) from None


def adopted_ops(shipped: bool = True) -> dict[tuple[str, str], AnyOp | DeclarationError]:
    """Return the functions declared with onnxruntime-extensions as Ops, by domain and name.

    For a function that cannot be adopted, the value is the DeclarationError to report when a model uses it. Of several
    declarations of a name, the last one counts. ``onnxruntime_extensions.enable_py_op(False)`` does not disable them.

    Parameters
    ----------
    shipped : bool
        Whether to include the functions that onnxruntime-extensions itself declares.

    Warns
    -----
    RedeclarationWarning
        Another function has been declared under the name of an adopted one.
    """
    found: dict[tuple[str, str], AnyOp | DeclarationError] = {}
    # onnxruntime-extensions has no public list of declared functions, only this private registry.
    registry = getattr(sys.modules.get("onnxruntime_extensions"), "Opdef", None)
    for definition in list(getattr(registry, "_odlist", {}).values()):
        domain, _, name = str(definition.op_type).rpartition("::")
        key = domain or DEFAULT_DOMAIN, name
        if definition not in _ops:
            adopted, current = _adopt(definition), found.get(key)
            if isinstance(adopted, Op) and isinstance(current, Op):
                source_location.warn_of_takeover(adopted.signature.qualified_name, current, adopted)
            _ops[definition] = adopted
        found[key] = _ops[definition]
    return found if shipped else {key: op for key, op in found.items() if not _is_shipped(op)}


def taken_domains() -> set[str]:
    """Return the domains that onnxruntime-extensions' library registers; none if it has not been imported."""
    if "onnxruntime_extensions" not in sys.modules:
        return set()
    return _BUILTIN_DOMAINS | {domain for domain, _ in adopted_ops()}


def _adopt(definition: Any) -> AnyOp | DeclarationError:
    native = definition._nativedef
    try:
        signature = read_signature(
            definition.body, definition.op_type, native.input_types, native.output_types, native.attrs
        )
    except DeclarationError as error:
        return error
    # onnxruntime-extensions' own sessions ignore undeclared attributes too.
    signature = replace(signature, ignores_undeclared=True)
    # onnxruntime-extensions replaces a function by assigning to `body`.
    return Op(signature, as_kernel(definition.body, signature, lambda: definition.body))


def _is_shipped(op: AnyOp | DeclarationError) -> bool:
    return isinstance(op, Op) and f"{op.__module__}.".startswith("onnxruntime_extensions.")
