"""What torch's operator of an Op computes: with its kernels, for fake tensors, and the gradient."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pyops import Op
from pyops import _core as core
from pyops.errors import InputError, warn
from pyops.shapes import RuntimeDim, TensorSpec

from ._lowering.node_emission import symbolic_message
from ._torch.decomposition_calls import computed, decomposition_in_torch, gradients
from ._torch.tensors import as_array, as_tensor, numpy_dtype, torch_dtype
from .errors import ExportError

DEVICE_TYPES = ("cpu", "cuda")
_states: weakref.WeakKeyDictionary[Op[..., Any], core.States] = weakref.WeakKeyDictionary()


def run_kernel(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    """Return what the kernel for a device computes, or the decomposition if there is none for it."""
    signature, decomposition = op.signature, decomposition_in_torch(op)
    if device.type not in op.device_types and decomposition is not None:
        warn(f"{decomposition.name} computes tensors on {device}, for which the op has no kernel")
        return computed(decomposition, tensors, attributes)
    if device.type not in DEVICE_TYPES:
        raise InputError(f"{signature.qualified_name} got tensors on {device}; move them to cpu or cuda with .to(...)")
    if device.type == "cuda":
        return call_cuda_kernel(op, tensors, attributes, device)
    given = [None if tensor is None else as_array(tensor) for tensor in tensors]
    arrays, values = core.split_arguments(signature, given, attributes)
    return [as_tensor(output, device) for output in core.run_kernel(op, arrays, values, state=_states_of(op))]


def _states_of(op: Op[..., Any]) -> core.States:
    return _states.setdefault(op, core.States())


def call_cuda_kernel(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
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
    signature = op.signature
    cupy = core.cupy_with_gpu(f"the CUDA kernel of {signature.qualified_name}")
    stream = torch.cuda.current_stream(device)
    stay = _are_on_host(op, len(tensors))
    # torch and CuPy queue their work on one stream, so that neither has to wait for the other.
    with cupy.cuda.Device(stream.device_index), core.cupy_stream(cupy, stream.cuda_stream):
        given = [
            None if tensor is None else as_array(tensor.cpu() if stays else tensor)
            for tensor, stays in zip(tensors, stay, strict=True)
        ]
        arrays, values = core.split_arguments(signature, given, attributes)
        is_sized = signature.takes_out and op.shape_function is not None
        buffers = _cuda_buffers(op, tensors, attributes, device) if is_sized else []
        out = tuple(map(as_array, buffers))

        def with_out(kernel: Callable[..., Any]) -> Callable[..., Any]:
            return functools.partial(kernel, out=out if signature.returns_tuple else out[0]) if out else kernel

        outputs = core.run_kernel(op, arrays, values, "cuda", _states_of(op), with_out)
        return [
            buffers[index] if out and output is out[index] else _copied_from_cuda(cupy, output, device)
            for index, output in enumerate(outputs)
        ]


def _cuda_buffers(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    """Return tensors for the kernel to write to, or [] if their number or a shape is known only after it has run."""
    specs = op.infer_shapes(*map(_spec, tensors), **attributes)
    unknown = any(isinstance(dim, RuntimeDim) for spec in specs for dim in spec.shape)
    if unknown or op.signature.outputs[-1].variadic:
        return []
    return [torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device=device) for spec in specs]


def _spec(tensor: torch.Tensor | None) -> TensorSpec | None:
    return None if tensor is None else TensorSpec(tuple(tensor.shape), numpy_dtype(tensor.dtype))


def _copied_from_cuda(cupy: Any, array: Any, device: torch.device) -> torch.Tensor:
    """Return a contiguous tensor with a copy of a CuPy array, in memory allocated by torch."""
    tensor = torch.empty(array.shape, dtype=torch_dtype(array.dtype), device=device)
    core.copy_to_cupy(cupy, as_array(tensor), array)
    return tensor


def run_fake(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    """Return fake tensors of the outputs' shapes and types."""
    constants = {name: _constant(op.signature, name, value) for name, value in attributes.items()}
    decomposition = decomposition_in_torch(op)
    if op.shape_function is None and decomposition is not None:
        return computed(decomposition, tensors, constants)
    sizes: dict[RuntimeDim, Any] = {}
    return [
        torch.empty([_size(dim, sizes) for dim in spec.shape], dtype=torch_dtype(spec.dtype), device=device)
        for spec in op.infer_shapes(*map(_spec, tensors), **constants)
    ]


def remember(op: Op[..., Any], ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None) -> None:
    """Keep what the gradient of a call needs: torch's `setup_context`."""
    ctx.save_for_backward(*flat(op.signature, inputs))
    ctx.attributes = {name: value for name, value in (keyword_only_inputs or {}).items() if value is not None}


def backward(op: Op[..., Any], ctx: Any, *of_outputs: Any) -> tuple[Any, ...]:
    """Return the gradients of a call of the decomposition, which is what the op is."""
    decomposition, signature = decomposition_in_torch(op), op.signature
    assert decomposition is not None
    flat = of_outputs[0] if signature.outputs[-1].variadic else of_outputs
    found = gradients(decomposition, ctx.saved_tensors, ctx.attributes, flat)
    singles = len(signature.inputs) - 1
    return (*found[:singles], found[singles:]) if signature.is_variadic else tuple(found)


def flat(signature: core.Signature, args: Sequence[Any]) -> list[Any]:
    """Return one tensor or None per input, with the list of a variadic input flattened."""
    if signature.inputs and signature.inputs[-1].variadic:
        return [*args[:-1], *args[-1]]
    return list(args)


def _are_on_host(op: Op[..., Any], count: int) -> list[bool]:
    return [item.name in op.host_inputs for item in op.signature.parameters(count)]


def device_of(op: Op[..., Any], tensors: Sequence[torch.Tensor | None]) -> torch.device:
    """Return the device that the call runs on.

    On a GPU, inputs that stay on the host may be on either device.

    Raises
    ------
    InputError
        The other tensors are on several devices.
    """
    signature = op.signature
    stay = _are_on_host(op, len(tensors))
    found = {tensor.device for tensor in tensors if tensor is not None}
    deciding = {tensor.device for tensor, stays in zip(tensors, stay, strict=True) if tensor is not None and not stays}
    if {device.type for device in deciding} == {"cuda"}:
        found = deciding
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise InputError(f"{signature.qualified_name} got tensors on {names}; move them to one device with .to(...)")
    return found.pop() if found else torch.device("cpu")


def _constant(signature: core.Signature, name: str, value: Any) -> Any:
    """Convert torch's symbolic numbers in an attribute to constants for the shape function.

    Raises
    ------
    ExportError
        The value is symbolic during an export, where a constant would fix it silently.
    """
    if isinstance(value, (list, tuple)):
        return [_constant(signature, name, item) for item in value]
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if torch.onnx.is_in_onnx_export():
        raise ExportError(symbolic_message(signature.qualified_name, name))
    # The conversion makes torch.compile guard on the value and recompile for another one.
    constants = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return constants[type(value)](value)


def _size(dim: Any, sizes: dict[RuntimeDim, Any]) -> Any:
    """Return a dimension for torch: an int or a symbolic int, the same one for equal run-time dimensions."""
    if not isinstance(dim, RuntimeDim):
        return dim
    if dim not in sizes:
        sizes[dim] = torch.library.get_ctx().new_dynamic_size()
    return sizes[dim]
