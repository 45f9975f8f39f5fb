"""Ops for single nodes, computed by onnx's reference implementation."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import numpy as np
import onnx

from .. import Op
from .._core import AnyOp, Input, Output, Signature, TypeParameter
from .._onnx.type_inference import NEWEST, opset_ids
from .._support.element_types import STRING, DType, from_type_str
from .definitions import Types, definition, one_node, type_name

DOMAIN = "pyops.filled"
"""The domain of the ops that compute nodes which ONNX Runtime has no kernel for."""

_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
# NumPy supports few operations on these. The wider type has all of their values, and results are rounded once.
_WIDE = dict.fromkeys(_FLOATS, np.dtype(np.float32)) | dict.fromkeys(("int4", "uint4"), np.dtype(np.int32))
# The results of these operators depend on the element types themselves.
_TYPED = {"BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}

# Of recurrent layers, it computes these activations alone, and ignores these attributes.
_ACTIVATIONS = {"RNN": [b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}
_IGNORED = ("clip", "activation_alpha", "activation_beta", "input_forget")

_numbers = itertools.count()


@functools.cache
def reference_op(
    domain: str, alone: bytes, opsets: tuple[tuple[str, int], ...], inputs: Types, outputs: Types
) -> AnyOp | str:
    """Return an op that computes a node with inputs and outputs of these types, or the reason why there is none.

    Parameters
    ----------
    alone : bytes
        The serialized result of `definitions.bare`.
    opsets : tuple of (str, int)
        The versions of domains that the model imports.
    """
    from onnx.reference import ReferenceEvaluator

    rows = [from_type_str(type) if type else None for type in (*inputs, *outputs)]
    for type, row in zip((*inputs, *outputs), rows, strict=True):
        if type and (row is None or row.ort is None):
            return f"custom operators of ONNX Runtime cannot have an input or output of {type_name(type)}"
    node = onnx.NodeProto.FromString(alone)
    if problem := _known_problem(node, inputs):
        return f"onnx's reference implementation {problem}"
    opset = dict(opsets).get(domain, 1)
    now, newest = (definition(domain, node.op_type, version) for version in (opset, NEWEST))
    if now is None or newest is None or now.text != newest.text:
        return f"onnx's reference implementation implements a different definition from that of opset {opset}"
    model = onnx.helper.make_model(one_node(node, inputs, outputs), opset_imports=opset_ids(dict(opsets)))
    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:  # of various types
        return f"onnx's reference implementation refuses it ({error})"
    dtypes = [row.dtype if row else np.dtype(np.float32) for row in rows]
    parameters = [TypeParameter(str(dtype), (dtype,)) for dtype in dtypes]
    results = list(zip(node.output, dtypes[len(inputs) :], strict=True))
    widens = node.op_type not in _TYPED

    def compute(*arrays: Any) -> tuple[Any, ...]:
        given = zip(node.input, arrays, strict=False)
        feeds = {name: _widened(array) if widens else array for name, array in given if name}
        with np.errstate(all="ignore"):  # as in ONNX Runtime
            found = dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))
        return tuple(_as(found.get(name, np.empty(0)), dtype) for name, dtype in results)

    signature = Signature(
        DOMAIN,
        f"{node.op_type}_{next(_numbers)}",
        1,
        tuple(Input(f"x{index}", parameters[index], optional=not name) for index, name in enumerate(node.input)),
        tuple(Output(f"y{index}", type) for index, type in enumerate(parameters[len(inputs) :])),
        returns_tuple=True,
    )
    return Op(signature, compute)


def _widened(array: Any) -> Any:
    wide = _WIDE.get(array.dtype.name)
    return array if wide is None else array.astype(wide)


def _as(value: Any, dtype: DType) -> Any:
    """Return a result with the type of the output; NumPy computes some in a wider type."""
    array = np.asarray(value)
    is_same_kind = array.dtype.kind == dtype.kind or array.dtype == _WIDE.get(dtype.name)
    return array.astype(dtype) if is_same_kind and dtype is not STRING else array


def _known_problem(node: onnx.NodeProto, inputs: Types) -> str:
    """Return what is wrong with the reference implementation where ONNX Runtime has no kernel; empty if nothing is."""
    op_type, is_integer = node.op_type, "int" in str(inputs[:1])
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    if op_type in _ACTIVATIONS:
        activations = attributes.get("activations", [])
        if activations != (_ACTIVATIONS[op_type] * 2)[: len(activations)]:
            return "supports only the default activations"
        ignored = [name for name in _IGNORED if attributes.get(name)] + ["sequence_lens"] * any(inputs[4:5])
        if ignored:
            return f"ignores {', '.join(ignored)}"
    if op_type == "Adam" and len(inputs) > 6 and "tensor(double)" in inputs:
        return "computes several tensors only in float32"
    if op_type == "GlobalMaxPool":
        return "pools over two dimensions only"
    if op_type == "Upsample":
        return "does not support most modes and scales"
    if op_type == "Unique" and attributes.get("sorted") == 0:
        return "fails for sorted=0"
    if op_type == "Resize" and attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        return "is wrong for tf_crop_and_resize"
    if op_type == "Gemm" and is_integer and any(attributes.get(name, 1) % 1 for name in ("alpha", "beta")):
        return "drops the fractions that alpha and beta make of integers"
    if op_type == "MaxUnpool" and len(inputs) == 3:
        return "and ONNX Runtime disagree on what its output_shape means"
    if op_type == "MeanVarianceNormalization":
        return "computes it only in float32"
    if is_integer and (
        op_type == "GridSample" or (op_type == "Resize" and attributes.get("mode", b"nearest") != b"nearest")
    ):
        return "interpolates between integers in integer arithmetic"
    if op_type == "LRN":
        return "normalizes as many channels as the batch has items"
    strides, kernel = attributes.get("strides", ()), attributes.get("kernel_shape", ())
    skips = len(kernel) < len(strides) or any(map(operator.gt, strides, kernel))
    is_padded = attributes.get("auto_pad", b"NOTSET") in {b"SAME_UPPER", b"SAME_LOWER"}
    if op_type == "ConvTranspose":
        if attributes.get("group", 1) != 1:
            return "is wrong for groups"
        if "output_shape" in attributes and not is_padded:
            return "pads nothing for output_shape"
        if skips and is_padded:
            return "is wrong for auto_pad with strides longer than the kernel, or with strides and no kernel_shape"
    if op_type in {"AveragePool", "LpPool"}:
        if attributes.get("ceil_mode"):
            return "is wrong for ceil_mode"
        is_dilated = any(dilation != 1 for dilation in attributes.get("dilations", ()))
        if (is_dilated and attributes.get("auto_pad", b"NOTSET") != b"NOTSET") or (skips and is_padded):
            return "is wrong for auto_pad with dilations, or with strides longer than the kernel"
    return ""
