"""What ONNX Runtime tells of a node when it creates the kernel for it."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from .. import kernel
from ..errors import InputError, PyopsError
from ..node import describe_node
from ..signature import Signature
from ..types import DType
from .attributes import read_attributes, read_text
from .c_api import Api
from .workspace import dtype_of


@dataclass(frozen=True)
class NodeInfo:
    """A node of a session.

    Attributes
    ----------
    attributes : dict
        As the kernel gets them, defaults included.
    input_dtypes : tuple
        One per input of the node, None where it is absent.
    output_dtypes : tuple
        One per output of the kernel.
    output_count : int
        How many of them the node has; the model need not use the last ones.
    """

    name: str
    signature: Signature
    attributes: dict[str, Any]
    input_dtypes: tuple[DType | None, ...]
    output_dtypes: tuple[DType, ...]
    output_count: int


def read_node_info(api: Api, info: int, signature: Signature) -> NodeInfo:
    """Read an ``OrtKernelInfo*``, which lives no longer than the creation of the kernel.

    Raises
    ------
    InputError
        The node's attributes or input types do not match the declaration.
    """
    name = read_text(api, api.KernelInfo_GetNodeName, info)
    try:
        attributes = read_attributes(api, info, signature)
        input_count = api.get(c_size_t, api.KernelInfo_GetInputCount, info)
        inputs = tuple(_input_dtype(api, info, index) for index in range(input_count))
        declared = kernel.output_dtypes(signature, inputs)
    except PyopsError as error:
        error.add_note(describe_node(name, signature))
        raise
    output_count = api.get(c_size_t, api.KernelInfo_GetOutputCount, info)
    outputs = [
        declared[min(index, len(declared) - 1)] or _dtype(api, api.KernelInfo_GetOutputTypeInfo, info, index)
        for index in range(max(output_count, len(declared) - signature.outputs[-1].variadic))
    ]
    return NodeInfo(name, signature, attributes, inputs, tuple(outputs), output_count)


def _input_dtype(api: Api, info: int, index: int) -> DType | None:
    if not read_text(api, api.KernelInfo_GetInputName, info, index):
        return None
    return _dtype(api, api.KernelInfo_GetInputTypeInfo, info, index)


def _dtype(api: Api, function: Callable[[int, int, int], int | None], info: int, index: int) -> DType:
    type_info = api.get(c_void_p, function, info, index)
    try:
        tensor_info = api.get(c_void_p, api.CastTypeInfoToTensorInfo, type_info)
        if not tensor_info:
            raise InputError(f"number {index} is no tensor; custom operators have tensors only")
        code = api.get(c_int, api.GetTensorElementType, tensor_info)
    finally:
        api.ReleaseTypeInfo(type_info)
    return dtype_of(code)
