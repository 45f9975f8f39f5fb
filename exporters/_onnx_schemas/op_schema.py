"""Construction of an ONNX schema from a Signature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from pyops._schema.attribute import Attribute, AttributeKind
from pyops._schema.dtypes import element_type
from pyops._schema.signature import Input, Output, Signature


def op_schema(
    signature: Signature, *, inputs: int | None = None, outputs: int | None = None, doc: str = ""
) -> OpSchema:
    """Return the ONNX schema of an operator, without registering it.

    Parameters
    ----------
    inputs, outputs : int, optional
        Number of inputs and outputs of one node: a variadic parameter becomes that many single ones.
    doc : str
        The schema's documentation string.

    Returns
    -------
    onnx.defs.OpSchema
        With the default of each attribute whose default is a value other than None.

    Raises
    ------
    InputError
        The operator does not take that many inputs.
    """
    formal_inputs = [_formal(item) for item in signature.inputs] if inputs is None else list(_expand(signature, inputs))
    formal_outputs = [_formal(item) for item in signature.outputs]
    if outputs is not None and signature.outputs[-1].variadic:
        last = formal_outputs.pop()
        formal_outputs += [_single(f"{last.name}_{i}", last.type_str) for i in range(outputs - len(formal_outputs))]
    return OpSchema(
        signature.name,
        signature.domain,
        signature.version,
        doc,
        inputs=formal_inputs,
        outputs=formal_outputs,
        type_constraints=[
            (item.name, [_type_str(dtype) for dtype in item.dtypes], "")
            for item in signature.type_parameters
            if len(item.dtypes) > 1
        ]
        + _type_variables(signature, formal_inputs),
        attributes=[_attribute(item) for item in signature.attributes],
    )


def attribute_proto(attribute: Attribute, value: Any) -> onnx.AttributeProto:
    """Return an AttributeProto for `value`, which must come from `Attribute.convert`."""
    if attribute.kind is AttributeKind.TENSOR:
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif attribute.boolean:
        value = int(value)
    return onnx.helper.make_attribute(attribute.name, value, attr_type=attribute.kind.value)


def _attribute(attribute: Attribute) -> OpSchema.Attribute:
    if attribute.default is not None:
        return OpSchema.Attribute(attribute.name, attribute_proto(attribute, attribute.default))
    return OpSchema.Attribute(
        attribute.name, getattr(OpSchema.AttrType, attribute.kind.name), required=attribute.required
    )


def _formal(item: Input | Output) -> OpSchema.FormalParameter:
    option = OpSchema.FormalParameterOption.Single
    if item.variadic:
        option = OpSchema.FormalParameterOption.Variadic
    elif isinstance(item, Input) and item.optional:
        option = OpSchema.FormalParameterOption.Optional
    return OpSchema.FormalParameter(
        item.name,
        _reference(item),
        param_option=option,
        is_homogeneous=item.homogeneous,
        min_arity=int(option is OpSchema.FormalParameterOption.Single),
    )


def _expand(signature: Signature, count: int) -> Iterator[OpSchema.FormalParameter]:
    for index, item in enumerate(signature.parameters(count)):
        if not item.variadic:
            yield _formal(item)
        elif item.homogeneous or len(item.type.dtypes) == 1:
            yield _single(f"{item.name}_{index}", _reference(item))
        else:
            yield _single(f"{item.name}_{index}", f"{item.type.name}_{index}")


def _type_variables(
    signature: Signature, formal_inputs: list[OpSchema.FormalParameter]
) -> list[tuple[str, list[str], str]]:
    """Return a type variable for each tensor of a heterogeneous variadic input."""
    last = signature.inputs[-1] if signature.inputs else None
    if last is None or last.homogeneous or len(last.type.dtypes) == 1:
        return []
    prefix = f"{last.type.name}_"
    types = [_type_str(dtype) for dtype in last.type.dtypes]
    return [(item.type_str, types, "") for item in formal_inputs if item.type_str.startswith(prefix)]


def _single(name: str, type_str: str) -> OpSchema.FormalParameter:
    return OpSchema.FormalParameter(name, type_str)


def _reference(item: Input | Output) -> str:
    return item.type.name if len(item.type.dtypes) > 1 else _type_str(item.type.dtypes[0])


def _type_str(dtype: Any) -> str:
    row = element_type(dtype)
    assert row is not None
    return row.type_str
