"""An Op's CUDA kernel on torch's tensors: on their own memory, and on torch's own stream."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pyops._ops.cuda_kernel import check_given, extra_references, on_host, returning_cupy
from pyops._ops.op import Op, kernel_of, output_shapes
from pyops._schema import cupy_arrays, devices, validation

from .tensors import as_array, holding_tensor, torch_dtype


def call(
    op: Op[..., Any],
    tensors: Sequence[torch.Tensor | None],
    attributes: Mapping[str, Any],
    device: torch.device,
) -> list[torch.Tensor]:
    """Run the CUDA kernel on torch's current stream.

    An `out` is memory of torch's. What the kernel returns otherwise is copied only where somebody else has
    it too: an input, a constant, a part of a larger array.

    Parameters
    ----------
    tensors : sequence
        One per input; host inputs may lie on either device.

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
    # Both queue their work on one stream, and neither waits for the other.
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
            buffers[index] if out and outputs[index] is out[index] else _taken(cupy, outputs, index, device)
            for index in range(len(outputs))
        ]


def _buffers(
    op: Op[..., Any], arrays: Sequence[Any], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    """Tensors for the kernel to write to; none where it takes no `out`, or the shapes are not known."""
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


def _taken(cupy: Any, outputs: list[Any], index: int, device: torch.device) -> torch.Tensor:
    """A contiguous tensor with an array's elements, in memory that nobody else has."""
    others = extra_references(outputs)[index]
    array = outputs[index]
    dtype = torch_dtype(array.dtype)
    memory = [array.data.mem]
    # What comes from elsewhere, torch for one, may have another owner.
    is_cupy_s_own = isinstance(memory[0], (cupy.cuda.memory.Memory, cupy.cuda.memory.PooledMemory))
    # The array's own pointer refers to its memory too.
    is_alone = array.base is None and not others and extra_references(memory) == [1]
    if is_cupy_s_own and is_alone and array.size and array.flags.c_contiguous:
        return holding_tensor(array)
    tensor = torch.empty(array.shape, dtype=dtype, device=device)
    cupy_arrays.copyto(cupy, as_array(tensor), array)
    return tensor
