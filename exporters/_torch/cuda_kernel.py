"""Calls of an Op's CUDA kernel on torch's tensors, in their memory and on torch's stream."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pyops._ops.cuda_kernel import check_given, on_host, returning_cupy
from pyops._ops.op import Op, kernel_of, output_shapes
from pyops._schema import devices, validation

from .tensors import as_array, torch_dtype


def call(
    op: Op[..., Any],
    tensors: Sequence[torch.Tensor | None],
    attributes: Mapping[str, Any],
    device: torch.device,
) -> list[torch.Tensor]:
    """Run the CUDA kernel on torch's current stream.

    Buffers for `out` are allocated by torch. Other results are copied, as in ONNX Runtime.

    Parameters
    ----------
    tensors : sequence
        One tensor or None per input; host inputs may be on either device.

    Raises
    ------
    MissingDependencyError
        CuPy is not installed.
    DeviceError
        CuPy finds no GPU.
    """
    signature, function = op.signature, kernel_of(op, "cuda")
    cupy = devices.cupy_with_gpu(f"the CUDA kernel of {signature.qualified_name}")
    stream = torch.cuda.current_stream(device)
    stay = on_host(signature, len(tensors), op.host_inputs)
    # torch and CuPy queue their work on one stream, so that neither has to wait for the other.
    with cupy.cuda.Device(stream.device_index), devices.stream(cupy, stream.cuda_stream):
        given = [
            None if tensor is None else as_array(tensor.cpu() if stays else tensor)
            for tensor, stays in zip(tensors, stay, strict=True)
        ]
        arrays, values = validation.split_arguments(signature, given, attributes)
        check_given(signature, arrays, op.host_inputs)
        buffers = _buffers(op, arrays, values, device)
        out = tuple(map(as_array, buffers))
        if out:
            function = functools.partial(function, out=out if signature.returns_tuple else out[0])
        outputs = list(validation.call(signature, returning_cupy(signature, function), arrays, values))
        return [
            buffers[index] if out and output is out[index] else _copied(cupy, output, device)
            for index, output in enumerate(outputs)
        ]


def _buffers(
    op: Op[..., Any], arrays: Sequence[Any], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    """Return tensors for the kernel to write to, or [] if it takes no `out` or a shape is unknown."""
    if not op.signature.takes_out or op.shape_function is None:
        return []
    shapes = output_shapes(op, arrays, attributes)
    if any(None in shape for shape in shapes):
        return []
    inputs = [None if array is None else array.dtype for array in arrays]
    dtypes = validation.output_dtypes(op.signature, inputs)
    if len(dtypes) != len(shapes) or None in dtypes:  # a variadic output
        return []
    return [
        torch.empty([dim or 0 for dim in shape], dtype=torch_dtype(dtype), device=device)
        for shape, dtype in zip(shapes, dtypes, strict=True)
        if dtype is not None
    ]


def _copied(cupy: Any, array: Any, device: torch.device) -> torch.Tensor:
    """Return a contiguous tensor with a copy of a CuPy array, in memory allocated by torch."""
    tensor = torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=device)
    devices.copyto(cupy, as_array(tensor), array)
    return tensor
