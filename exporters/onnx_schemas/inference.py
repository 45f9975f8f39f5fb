"""An Op's shape function as the type and shape inference of its ONNX schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx
from onnx.shape_inference import InferenceError

from pyops import kernel, node
from pyops.errors import InputError, ShapeInferenceError, UnknownSizeError
from pyops.op import Op
from pyops.shapes import RuntimeDim, Spec, SymbolicDim
from pyops.types import DType, element_type, from_onnx

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext


def inference_function(op: Op[..., Any]) -> Callable[[InferenceContext], None]:
    """What ``onnx.defs.OpSchema.set_type_and_shape_inference_function`` takes.

    It tells the element types that follow from the declaration, and the shapes that the op's shape
    function gives. Where that needs a size that the model does not tell, shapes stay open. It raises
    ``onnx.shape_inference.InferenceError``, whatever onnx's ``strict_mode``, for a node that the
    declaration or the shape function refuses, since no session would run it.
    """

    def infer(context: InferenceContext) -> None:
        try:
            _infer(op, context)
        except (InputError, ShapeInferenceError) as error:
            # onnx carries the text of a Python exception of this class alone.
            raise InferenceError(f"a node of {op.signature.qualified_name}: {error}") from error

    return infer


def _infer(op: Op[..., Any], context: InferenceContext) -> None:
    present = [context.has_input(index) for index in range(context.get_num_inputs())]
    while present and not present[-1]:
        present.pop()
    types = [_tensor_type(context, index) if given else None for index, given in enumerate(present)]
    dtypes = [None if item is None else _dtype(item) for item in types]
    if any(given and dtype is None for given, dtype in zip(present, dtypes, strict=True)):
        return  # what gives this input is unknown to onnx
    declared = kernel.output_dtypes(op.signature, dtypes)
    count = context.get_num_outputs()
    for index in range(count):
        dtype = declared[min(index, len(declared) - 1)]
        if dtype is not None:
            _set_output(context, index, dtype, None)
    if op.shape_function is None or any(item is not None and not item.HasField("shape") for item in types):
        return
    specs = [
        None if item is None or dtype is None else Spec(tuple(map(_dim, item.shape.dim)), dtype)
        for item, dtype in zip(types, dtypes, strict=True)
    ]
    protos = [proto for item in op.signature.attributes if (proto := context.get_attribute(item.name)) is not None]
    try:
        outputs = op.infer_shapes(*specs, **node.read_attributes(onnx.NodeProto(attribute=protos), op.signature))
    except UnknownSizeError:
        return
    if count > len(outputs):
        raise ShapeInferenceError(f"it has {count} outputs, and the shape function gives {len(outputs)}")
    for index, spec in enumerate(outputs[:count]):
        _set_output(context, index, spec.dtype, spec.shape)


def _tensor_type(context: InferenceContext, index: int) -> onnx.TypeProto.Tensor:
    proto = context.get_input_type(index)
    return proto.tensor_type if proto is not None and proto.HasField("tensor_type") else onnx.TypeProto.Tensor()


def _dtype(item: onnx.TypeProto.Tensor) -> DType | None:
    row = from_onnx(item.elem_type)
    return row.dtype if row else None


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Any:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return SymbolicDim(dim.dim_param) if dim.dim_param else RuntimeDim()


def _set_output(context: InferenceContext, index: int, dtype: DType, shape: Sequence[Any] | None) -> None:
    row = element_type(dtype)
    assert row is not None
    # A dimension that only the result tells has no name: equal names would be equal sizes.
    dims = None if shape is None else [None if isinstance(dim, RuntimeDim) else _plain(dim) for dim in shape]
    context.set_output_type(index, onnx.helper.make_tensor_type_proto(row.onnx, dims))


def _plain(dim: Any) -> int | str:
    return dim if isinstance(dim, int) else str(dim)
