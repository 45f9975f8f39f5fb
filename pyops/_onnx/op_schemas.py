"""ONNX schemas of the ops, with their inference functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.defs import OpSchema
from onnx.shape_inference import InferenceError

from .. import Op
from .. import _core as core
from .._support.element_types import DType, element_type, from_onnx
from ..errors import InputError, ShapeInferenceError, UnknownSizeError
from ..shapes import RuntimeDim, SymbolicDim, TensorSpec

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext


def op_schema(
    signature: core.Signature, *, inputs: int | None = None, outputs: int | None = None, doc: str = ""
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
        The schema, with the default of each attribute that has one other than None.

    Raises
    ------
    InputError
        The operator does not take that many inputs.
    """
    given: list[core.Input | core.Output] = list(signature.inputs if inputs is None else signature.parameters(inputs))
    returned: list[core.Input | core.Output] = list(signature.outputs)
    if outputs is not None and returned[-1].variadic:
        last = returned.pop()
        returned += [last] * (outputs - len(returned))
    optional = sum(item.optional for item in signature.inputs)
    formal_inputs = [_formal(item, None if inputs is None else index, -optional) for index, item in enumerate(given)]
    formal_outputs = [_formal(item, None if outputs is None else index) for index, item in enumerate(returned)]
    types = {
        formal.type_str: item.type.dtypes
        for formal, item in zip([*formal_inputs, *formal_outputs], [*given, *returned], strict=True)
        if len(item.type.dtypes) > 1
    }
    return OpSchema(
        signature.name,
        signature.domain,
        signature.version,
        doc,
        inputs=formal_inputs,
        outputs=formal_outputs,
        type_constraints=[(name, type_strs(dtypes), "") for name, dtypes in types.items()],
        attributes=[_attribute(item) for item in signature.attributes],
    )


def attribute_proto(attribute: core.Attribute, value: Any) -> onnx.AttributeProto:
    """Return an AttributeProto for `value`, which must come from `Attribute.convert`."""
    if attribute.kind is core.AttributeKind.TENSOR:
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif attribute.boolean:
        value = int(value)
    return onnx.helper.make_attribute(attribute.name, value, attr_type=attribute.kind.value)


def _attribute(attribute: core.Attribute) -> OpSchema.Attribute:
    if attribute.default is not None:
        return OpSchema.Attribute(attribute.name, attribute_proto(attribute, attribute.default))
    return OpSchema.Attribute(
        attribute.name, getattr(OpSchema.AttrType, attribute.kind.name), required=attribute.required
    )


def _formal(item: core.Input | core.Output, index: int | None, least: int = 0) -> OpSchema.FormalParameter:
    """Return a parameter of a schema; with an index, the single one in place of a variadic one.

    `least` is the least number of tensors of a variadic one. onnx counts all parameters before it as required, so that
    it is negative if some of them are optional.
    """
    options = OpSchema.FormalParameterOption
    option, name, type_name = options.Single, item.name, item.type.name
    if item.variadic and index is None:
        option = options.Variadic
    elif item.variadic:
        name = f"{name}_{index}"
        type_name = type_name if item.homogeneous else f"{type_name}_{index}"
    elif isinstance(item, core.Input) and item.optional:
        option = options.Optional
    return OpSchema.FormalParameter(
        name,
        type_name if len(item.type.dtypes) > 1 else type_strs(item.type.dtypes)[0],
        param_option=option,
        is_homogeneous=item.homogeneous,
        min_arity=least if option is options.Variadic else int(option is options.Single),
    )


def type_strs(dtypes: Sequence[DType]) -> list[str]:
    """Return ONNX's spellings of element types, without those that the installed onnx lacks."""
    rows = map(element_type, dtypes)
    return [row.type_str for row in rows if row is not None and row.onnx in onnx.TensorProto.DataType.values()]


def inference_function(op: Op[..., Any]) -> Callable[[InferenceContext], None]:
    """Return a function for ``onnx.defs.OpSchema.set_type_and_shape_inference_function``.

    It sets the element types that follow from the declaration, and the shapes from the op's shape function. If that
    needs a size that the model does not give, shapes stay unknown. For a node that the declaration or the shape
    function rejects, it raises ``onnx.shape_inference.InferenceError`` whatever onnx's ``strict_mode`` is, since no
    session would run the node.
    """

    def infer(context: InferenceContext) -> None:
        try:
            _infer(op, context)
        except (InputError, ShapeInferenceError) as error:
            # onnx keeps the message of a Python exception only if it is of this class.
            raise InferenceError(f"a node of {op.signature.qualified_name}: {error}") from error

    return infer


def _infer(op: Op[..., Any], context: InferenceContext) -> None:
    types = [_tensor_type(context, index) for index in range(context.get_num_inputs())]
    required = [not (item.optional or item.variadic) for item in op.signature.inputs]
    if any(item is None and needed for item, needed in zip(types, required, strict=False)):
        return  # older releases of onnx report an input of unknown type as absent
    while types and types[-1] is None:
        types.pop()
    dtypes = [None if item is None else _dtype(item) for item in types]
    if any(item is not None and dtype is None for item, dtype in zip(types, dtypes, strict=True)):
        return  # onnx does not know the type of an input
    declared = core.output_dtypes(op.signature, dtypes)
    count = context.get_num_outputs()
    for index in range(count):
        dtype = declared[min(index, len(declared) - 1)]
        if dtype is not None:
            context.set_output_type(index, tensor_type(dtype, None))
    if op.shape_function is None or any(item is not None and not item.HasField("shape") for item in types):
        return
    specs = [
        None if item is None or dtype is None else _spec(context, index, item, dtype)
        for index, (item, dtype) in enumerate(zip(types, dtypes, strict=True))
    ]
    protos = [proto for item in op.signature.attributes if (proto := context.get_attribute(item.name)) is not None]
    try:
        outputs = op.infer_shapes(*specs, **core.read_attributes(onnx.NodeProto(attribute=protos), op.signature))
    except UnknownSizeError:
        return
    if count > len(outputs):
        raise ShapeInferenceError(f"it has {count} outputs, but the shape function gives {len(outputs)}")
    for index, spec in enumerate(outputs[:count]):
        context.set_output_type(index, tensor_type(spec.dtype, spec.shape))


def _tensor_type(context: InferenceContext, index: int) -> onnx.TypeProto.Tensor | None:
    """Return what onnx knows about an input, or None if the node does not have it."""
    if not context.has_input(index):
        return None
    proto = context.get_input_type(index)
    return proto.tensor_type if proto is not None and proto.HasField("tensor_type") else onnx.TypeProto.Tensor()


def _dtype(item: onnx.TypeProto.Tensor) -> DType | None:
    row = from_onnx(item.elem_type)
    return row.dtype if row else None


def _spec(context: InferenceContext, index: int, item: onnx.TypeProto.Tensor, dtype: DType) -> TensorSpec:
    """Return the spec of an input, with its value if it is a small constant that the model itself holds."""
    proto = context.get_input_data(index)
    is_here = proto is not None and proto.data_location != onnx.TensorProto.EXTERNAL
    # onnx 1.19 gives the numbers of value_ints without their dimension.
    if is_here and len(proto.dims) == len(item.shape.dim) and math.prod(proto.dims) <= TensorSpec.MAX_VALUES:
        found = TensorSpec.of(onnx.numpy_helper.to_array(proto))
        if found.dtype == dtype:  # older releases of onnx read some types as others
            return found
    return spec_of(item)


def spec_of(item: onnx.TypeProto.Tensor) -> TensorSpec:
    """Return the spec of a tensor whose type and rank are known."""
    dtype = _dtype(item)
    assert dtype is not None
    return TensorSpec(tuple(map(_dim, item.shape.dim)), dtype)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Any:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return SymbolicDim(dim.dim_param) if dim.dim_param else RuntimeDim()


def tensor_type(dtype: DType, shape: Sequence[Any] | None) -> onnx.TypeProto:
    """Return the type of a tensor; a shape of None is unknown."""
    row = element_type(dtype)
    assert row is not None
    dims = shape
    if shape is not None:
        # A dimension known only at run time gets no name, because equal names mean equal sizes.
        named = [None if isinstance(dim, RuntimeDim) else dim for dim in shape]
        dims = [dim if dim is None or isinstance(dim, int) else str(dim) for dim in named]
    return onnx.helper.make_tensor_type_proto(row.onnx, dims)
