"""Emission of nodes of any domain into the model that is being exported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir
import torch
from onnx.defs import OpSchema
from onnxscript import values
from onnxscript.tensor import Tensor

from pyops import Op
from pyops import _core as core
from pyops._onnx.op_schemas import attribute_proto, op_schema
from pyops._support.builtin_operators import ONNX_DOMAIN, first_opset, is_builtin
from pyops._support.element_types import ELEMENT_TYPES, from_onnx
from pyops.errors import InputError
from pyops.shapes import Dim, RuntimeDim, SymbolicDim, TensorSpec

from ..errors import ExportError
from . import emission_record


class Opset(values.Opset):
    """The operators of one domain; `opset` returns it.

    In a translation, a call of one emits a node. In an ``@onnxscript.script()`` function, it works like onnxscript's
    own opsets.
    """

    def __repr__(self) -> str:
        return f"opset({self.domain!r}, {self.version})"

    def __getitem__(self, name: str) -> values.Op | None:
        declared = self._declared(name)
        if declared is None:
            known: values.Op | None = super().__getitem__(name)  # type: ignore[no-untyped-call] # it has no types
            if known is None and self.domain in core.op_domains() and not is_builtin(self.domain, name):
                raise ExportError(core.describe_missing(self.domain, name, self.version))
            return known
        return values.Op(self, name, op_schema(declared.signature))

    def __contains__(self, name: str) -> bool:
        return self._declared(name) is not None or onnx.defs.has(name, self.version, self.domain)

    def _declared(self, name: str) -> Op[..., Any] | None:
        return core.find_op(self.domain, name, self.version)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no operator {name!r}")

        def emit_node(*inputs: Any, _outputs: int | None = None, **attributes: Any) -> Any:
            declared = self._declared(name)
            if declared is not None:
                if any(isinstance(value, Tensor) for value in inputs):
                    return _call_eagerly(declared, inputs, attributes)
                return emit(declared, inputs, attributes, _outputs)
            if onnx.defs.has(name, self.version, self.domain):
                _require_export(f"{self!r}.{name}")
                schema = onnx.defs.get_schema(name, self.version, self.domain)
                _check_arguments(repr(self), schema, inputs, attributes)
                called = schema if _outputs is None else _with_outputs(repr(self), schema, _outputs)
                return values.Op(self, name, called)(*inputs, **attributes)
            if not self.domain:
                first = first_opset(name)
                fix = f'; opset {first} is the first that has it: exporters.opset("", {first})' if first else ""
                raise ExportError(f"ONNX has no operator {name} in opset {self.version}{fix}")
            return _emit_undeclared(self, name, inputs, attributes, 1 if _outputs is None else _outputs)

        return emit_node


def _call_eagerly(op: Op[..., Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Call the op on arrays, as onnxscript does when a script function is called with arrays."""
    result = op(*[value.value if isinstance(value, Tensor) else value for value in inputs], **attributes)
    return tuple(map(Tensor, result)) if isinstance(result, tuple) else Tensor(result)


def opset(domain: str, version: int = 1) -> Opset:
    """Return the operators of a domain, to be called in a translation.

    Parameters
    ----------
    domain : str
        Any domain; ``""`` is ONNX's own.
    version : int
        Version of the domain that the model imports.

    Returns
    -------
    Opset
        Each attribute is a function that emits a node: ``opset("com.microsoft").Gelu(x)``. Positional arguments
        are inputs (None for an absent one), keyword arguments attributes. Without a schema, ``_outputs`` is the
        number of outputs (default 1). Calls of an operator that is declared with pyops, or known to onnx, are
        validated. A call returns the output, or a sequence of several.

    Raises
    ------
    ExportError
        Raised by calls: no export is running, an attribute cannot hold a value, or an operator known to onnx does
        not take the arguments.
    InputError
        Raised by calls: the arguments do not match the declaration of a declared operator.

    Examples
    --------
    >>> import exporters
    >>> @exporters.register_translation("aten::gelu")
    ... def gelu(x, *, approximate="none"):
    ...     return exporters.opset("com.microsoft").Gelu(x)
    """
    return Opset("" if domain == "ai.onnx" else domain, version)


def emit(op: Op[..., Any], inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: int | None = None) -> Any:
    """Emit one node of a declared operator.

    Parameters
    ----------
    inputs : sequence
        Graph values and Python numbers; None for an absent input.
    attributes : mapping
        Attribute values; None means not given. Defaults are written onto the node too, so that a later change of
        a default does not change the model.
    outputs : int, optional
        Number of outputs of an operator with a variadic output; by default the shape function gives it.

    Returns
    -------
    value or sequence of values
        One value alone, unless the shape function gave the number.

    Raises
    ------
    ExportError
        No export is running, the op was redeclared with another signature, or an attribute's value is known only
        when the model runs.
    InputError
        The arguments do not match the declaration.
    """
    signature = op.signature
    if core.op_versions(op.domain, op.name).get(op.version, op) is not op:
        raise ExportError(
            f"{signature.qualified_name} was declared again with another signature since it was registered "
            "with the exporter; run exporters.custom_op(...) or exporters.register_translation(...) for it again"
        )
    given = {name: value for name, value in attributes.items() if value is not None}
    for name, value in given.items():
        refuse_symbolic(signature.qualified_name, name, value)
    converted = signature.convert_attributes(given)
    _check_inputs(signature, inputs)
    listed = signature.outputs[-1].variadic and outputs is None
    if listed:
        fix = "pass _outputs=..., as the number of outputs depends on them"
        outputs = len(op.infer_shapes(*(spec_of(signature.qualified_name, item, fix) for item in inputs), **given))
    protos = [
        attribute_proto(item, converted[item.name]) for item in signature.attributes if converted[item.name] is not None
    ]
    result = _emit(op_schema(signature, inputs=len(inputs), outputs=outputs), inputs, protos)
    recording = emission_record.current()
    returned = [result] if isinstance(result, onnx_ir.Value) else result
    if recording is not None:
        recording.keepers.keep(returned)
    return returned if listed else result


def _check_arguments(opset: str, schema: OpSchema, inputs: Sequence[Any], attributes: Iterable[str]) -> None:
    """Validate the arguments of an operator known to onnx; onnxscript silently drops those not in the schema."""
    named = {item.name for item in schema.inputs}
    unknown = set(attributes) - schema.attributes.keys() - named
    if unknown:
        raise ExportError(
            f"{opset}.{schema.name} has no attribute {', '.join(sorted(unknown))}; its attributes are: "
            f"{', '.join(sorted(schema.attributes)) or 'none'}"
        )
    given = len(inputs) + len(named.intersection(attributes))
    if not schema.min_input <= given <= schema.max_input:
        raise ExportError(
            f"{opset}.{schema.name} got {given} inputs; its inputs are: "
            f"{', '.join(item.name for item in schema.inputs) or 'none'}; pass attributes as keywords"
        )


def _with_outputs(opset: str, schema: OpSchema, count: int) -> OpSchema:
    """Return the schema of one node with `count` outputs, for an operator known to onnx."""
    outputs = list(schema.outputs)
    if not schema.min_output <= count <= schema.max_output:
        raise ExportError(
            f"{opset}.{schema.name} got _outputs={count}; its outputs are: {', '.join(item.name for item in outputs)}"
        )
    outputs += outputs[-1:] * (count - len(outputs))
    return OpSchema(
        schema.name,
        # With "ai.onnx" in place of "", torch's exporter does not count the outputs of some operators itself.
        schema.domain or ONNX_DOMAIN,
        schema.since_version,
        inputs=schema.inputs,
        outputs=[OpSchema.FormalParameter(f"output_{i}", item.type_str) for i, item in enumerate(outputs[:count])],
        type_constraints=[
            (item.type_param_str, item.allowed_type_strs, item.description) for item in schema.type_constraints
        ],
        attributes=list(schema.attributes.values()),
    )


def _emit_undeclared(
    opset: Opset, name: str, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: int
) -> Any:
    """Emit a node of an undeclared operator: inputs and outputs of any type, attributes as given."""
    every = tuple(row.dtype for row in ELEMENT_TYPES)
    declared, protos = [], []
    for key, value in attributes.items():
        if value is None:
            continue
        refuse_symbolic(f"{opset.domain}::{name}", key, value)
        attribute = core.Attribute(key, _kind(f"{opset.domain}::{name}", key, value))
        declared.append(attribute)
        protos.append(attribute_proto(attribute, attribute.convert(value)))
    signature = core.Signature(
        opset.domain,
        name,
        opset.version,
        tuple(core.Input(f"input_{i}", core.TypeParameter(f"T{i}", every), optional=True) for i in range(len(inputs))),
        tuple(core.Output(f"output_{i}", core.TypeParameter(f"U{i}", every)) for i in range(outputs)),
        tuple(declared),
    )
    return _emit(op_schema(signature), inputs, protos)


def _emit(schema: OpSchema, inputs: Sequence[Any], attributes: Iterable[onnx.AttributeProto]) -> Any:
    _require_export(f"{schema.domain}::{schema.name}")
    recording = emission_record.current()
    if recording is not None:
        recording.add(schema.domain, schema.name, schema.since_version)
    node = values.Op(values.Opset(schema.domain, schema.since_version), schema.name, schema)
    return node(*inputs, **{proto.name: onnx_ir.serde.deserialize_attribute(proto) for proto in attributes})


def _require_export(name: str) -> None:
    """Raise ExportError unless a model is being exported."""
    if not torch.onnx.is_in_onnx_export():
        raise ExportError(
            f"{name} was called outside an export; it emits a node of the model that is being exported, so call it "
            "in a function registered with exporters.register_translation, and export with exporters.export"
        )


def _check_inputs(signature: core.Signature, inputs: Sequence[Any]) -> None:
    """Validate the number of inputs, and their types if all of them are known."""
    declared = list(signature.parameters(len(inputs)))
    for item, value in zip(declared, inputs, strict=True):
        if value is None and not item.optional:
            raise InputError(f"{signature.qualified_name}: input {item.name!r} is None, but it is not optional")
    if all(value is None or _dtype(value) is not None for value in inputs):
        core.output_dtypes(signature, [None if value is None else _dtype(value) for value in inputs])


def _dtype(value: Any) -> np.dtype[Any] | None:
    if not isinstance(value, onnx_ir.Value) or value.dtype is None:
        return None
    row = from_onnx(value.dtype.value)
    return row.dtype if row else None


def spec_of(name: str, value: onnx_ir.Value | None, fix: str) -> TensorSpec | None:
    """Return the spec of an input of a node, None for an absent one.

    Raises
    ------
    ExportError
        Its type or rank is unknown; the message begins with `name` and ends with `fix`.
    """
    if value is None:
        return None
    dtype = _dtype(value)
    if dtype is None or value.shape is None:
        raise ExportError(f"{name}: it has an input whose shape or element type is not known; {fix}")
    return TensorSpec(map(_dim, value.shape), dtype)


def _dim(dim: Any) -> Dim:
    if isinstance(dim, int):
        return dim
    return RuntimeDim() if dim.value is None else SymbolicDim(dim.value)


def refuse_symbolic(op_name: str, name: str, value: Any) -> None:
    """Raise ExportError if the value of an attribute, or one in a list, is a graph value."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, onnx_ir.Value) for item in items):
        raise ExportError(symbolic_message(op_name, name))


def symbolic_message(op_name: str, name: str) -> str:
    """Return the message for an attribute whose value is known only when the model runs."""
    return (
        f"{op_name}: attribute {name!r} is computed in the model, from a size or from data, but an attribute must be a "
        f"constant; make {name} an input (a parameter before the `*`: {name}: NDArray[np.int64], for example), and "
        "pass it as a tensor, or export with that size fixed"
    )


def _kind(op_name: str, name: str, value: Any) -> core.AttributeKind:
    """Return the attribute kind of a Python value."""
    if isinstance(value, np.ndarray):
        return core.AttributeKind.TENSOR
    with contextlib.suppress(TypeError, ValueError):
        return core.AttributeKind(onnx.helper.make_attribute(name, value).type)
    raise ExportError(
        f"{op_name}: attribute {name!r} is {value!r}; expected int, float, bool, str, a non-empty list of one "
        "of these, or an np.ndarray"
    )
