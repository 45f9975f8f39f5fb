"""Registration of an Op as an operator of torch.library."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.library import CustomOpDef

from pyops import Op
from pyops import _core as core
from pyops.errors import InputError, warn
from pyops.shapes import RuntimeDim, TensorSpec

from ._lowering import translations
from ._lowering.node_emission import emit, symbolic_message
from ._torch.decomposition_calls import computed, decomposition_in_torch, gradients
from ._torch.private.operators import call_instead, explain_mismatches, find_overload, forget_schema, overloads
from ._torch.tensors import as_array, as_tensor, numpy_dtype, torch_dtype
from ._torch.torch_schema import check_name, torch_schema
from .errors import ExportError

_DEVICE_TYPES = ("cpu", "cuda")
_registered: dict[str, tuple[Op[..., Any], CustomOpDef]] = {}
# Names of operators whose Op has since been declared again with another signature, which they do not follow.
_outdated: set[str] = set()
_states: weakref.WeakKeyDictionary[Op[..., Any], core.States] = weakref.WeakKeyDictionary()


def registered_for(op: Op[..., Any]) -> tuple[str, CustomOpDef] | None:
    """Return the torch operator that `custom_op` registered last for an Op, with its name, or None."""
    found = [(name, registered) for name, (known, registered) in _registered.items() if known is op]
    return found[-1] if found else None


def custom_op(op: Op[..., Any], name: str) -> CustomOpDef:
    """Register an Op as a torch operator that runs, traces and exports.

    Its CPU and CUDA implementations call the Op's kernels on the tensors' own memory, its fake implementation
    calls the Op's shape function, and its ONNX translation is one node of the Op. A kernel that is registered later
    takes effect at once. If the Op has a decomposition in torch, it has the gradient of the decomposition, which also
    stands for a missing shape function, and for a missing kernel, with a warning. `name` may be registered again after
    the Op has been declared again; operators returned by earlier registrations of the name then call the newest.

    Parameters
    ----------
    op : Op
        An Op with a shape function. A decomposition in torch is enough, unless the number of outputs is variable.
    name : str
        ``"ns::name"``, which becomes ``torch.ops.ns.name``.

    Returns
    -------
    torch.library.CustomOpDef
        Takes tensors in place of arrays, a variadic input as one list of tensors, and attributes as keyword
        arguments. Returns new contiguous tensors, all of them in one list if an output is variadic. Register a backward
        formula, or another one than that of the decomposition, with its ``register_autograd``.

    Raises
    ------
    ExportError
        `op` is not an Op or has no shape function, the name is that of another Op's operator, or torch rejects the name
        or the schema.
    InputError, OutputError
        Raised by calls of the operator, as by calls of the Op.

    Examples
    --------
    >>> import exporters, numpy as np, pyops, torch
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("mylibrary::Halve")
    ... def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x / np.float32(2)
    >>> @halve.register_shape_inference
    ... def _(x):
    ...     return x
    >>> torch_halve = exporters.custom_op(halve, "mylibrary::halve")
    >>> torch_halve(torch.tensor([3.0]))
    tensor([1.5000])
    """
    if not isinstance(op, Op):
        raise ExportError(f"custom_op got {op!r}; pass an operator declared with @pyops.onnx_op")
    check_name(name)
    signature = op.signature
    decomposition = decomposition_in_torch(op)
    if op.shape_function is None and (decomposition is None or signature.outputs[-1].variadic):
        raise ExportError(
            f"{signature.qualified_name} has no shape function, without which torch cannot trace it; register one "
            f"with @{op.__name__}.register_shape_inference before exporters.custom_op"
        )
    known = _registered[name][0] if name in _registered else op
    if (known.domain, known.name) != (op.domain, op.name):
        raise ExportError(
            f"{name!r} is already the torch operator of {known.signature.qualified_name}; with "
            f"{signature.qualified_name} under that name, its calls would compute something else: choose another name"
        )
    schema = torch_schema(signature)
    replaced = find_overload(name)
    try:
        registered = torch.library.custom_op(name, _called_with_tensors(op, _run), mutates_args=(), schema=schema)
    except (RuntimeError, ValueError, AttributeError, NotImplementedError) as error:
        raise ExportError(f"torch rejects {name!r} with the schema {schema}: {error}; choose another name") from error
    forget_schema(name)
    # A kernel may have side effects; without this, torch removes a call whose result is unused.
    torch.fx.node.has_side_effect(overloads(name)[0])
    registered.register_fake(_called_with_tensors(op, _fake))
    if decomposition is not None:
        registered.register_autograd(functools.partial(_backward, op), setup_context=functools.partial(_remember, op))
    _registered.pop(name, None)
    _registered[name] = op, registered
    _outdated.discard(name)
    if replaced is not None:
        call_instead(replaced, lambda *args, **kwargs: _registered[name][1](*args, **kwargs))
    translations.register(name, lambda *args, **kwargs: emit(op, _flat(signature, args), kwargs), op)
    return registered


def _tell_outdated(declared: Op[..., Any]) -> None:
    """Make the operators of earlier declarations of an Op explain why torch rejects a call of them."""
    for name, (op, _) in tuple(_registered.items()):
        same = (op.domain, op.name, op.version) == (declared.domain, declared.name, declared.version)
        overload = find_overload(name)
        if same and op is not declared and name not in _outdated and overload is not None:
            _outdated.add(name)
            explain_mismatches(overload, functools.partial(_mismatch, op.signature, name))


core.op_listeners.append(_tell_outdated)


def _mismatch(signature: core.Signature, name: str) -> InputError:
    now = core.op_versions(signature.domain, signature.name).get(signature.version)
    return InputError(
        f"{name} is registered for {signature}, which has been declared again as "
        f'{now.signature if now else "another op"}; call exporters.custom_op(op, "{name}") again'
    )


def _called_with_tensors(op: Op[..., Any], compute: Callable[..., list[torch.Tensor]]) -> Callable[..., Any]:
    """Return an implementation for torch, which calls `compute` on flattened arguments.

    `compute` gets the Op, one tensor or None per input, the attributes that are not None, and the device.
    """
    signature = op.signature

    def call(*args: Any, **kwargs: Any) -> Any:
        tensors = _flat(signature, args)
        given = {name: value for name, value in kwargs.items() if value is not None}
        try:
            outputs = compute(op, tensors, given, _device(op, tensors))
        except InputError as error:
            if device_type := _autocast(tensors):
                error.args = (
                    f'{error}; under torch.autocast, call register_autocast("{device_type}", torch.float32) on what '
                    "exporters.custom_op returned, so that torch casts its inputs",
                )
            raise
        if signature.outputs[-1].variadic:
            return outputs
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return call


def _autocast(tensors: Sequence[torch.Tensor | None]) -> str:
    """Return the device type for which torch.autocast may have converted one of the tensors, or an empty string."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    enabled = [name for name in _DEVICE_TYPES if torch.is_autocast_enabled(name)]
    return next((name for name in enabled if torch.get_autocast_dtype(name) in dtypes), "")


def _run(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    signature, decomposition = op.signature, decomposition_in_torch(op)
    if device.type not in op.device_types and decomposition is not None:
        warn(f"{decomposition.name} computes tensors on {device}, for which the op has no kernel")
        return computed(decomposition, tensors, attributes)
    if device.type not in _DEVICE_TYPES:
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


def _fake(
    op: Op[..., Any], tensors: Sequence[torch.Tensor | None], attributes: Mapping[str, Any], device: torch.device
) -> list[torch.Tensor]:
    constants = {name: _constant(op.signature, name, value) for name, value in attributes.items()}
    decomposition = decomposition_in_torch(op)
    if op.shape_function is None and decomposition is not None:
        return computed(decomposition, tensors, constants)
    sizes: dict[RuntimeDim, Any] = {}
    return [
        torch.empty([_size(dim, sizes) for dim in spec.shape], dtype=torch_dtype(spec.dtype), device=device)
        for spec in op.infer_shapes(*map(_spec, tensors), **constants)
    ]


def _remember(op: Op[..., Any], ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None) -> None:
    ctx.save_for_backward(*_flat(op.signature, inputs))
    ctx.attributes = {name: value for name, value in (keyword_only_inputs or {}).items() if value is not None}


def _backward(op: Op[..., Any], ctx: Any, *of_outputs: Any) -> tuple[Any, ...]:
    """Return the gradients of a call of the decomposition, which is what the op is."""
    decomposition, signature = decomposition_in_torch(op), op.signature
    assert decomposition is not None
    flat = of_outputs[0] if signature.outputs[-1].variadic else of_outputs
    found = gradients(decomposition, ctx.saved_tensors, ctx.attributes, flat)
    singles = len(signature.inputs) - 1
    return (*found[:singles], found[singles:]) if signature.is_variadic else tuple(found)


def _flat(signature: core.Signature, args: Sequence[Any]) -> list[Any]:
    """Return one tensor or None per input, with the list of a variadic input flattened."""
    if signature.inputs and signature.inputs[-1].variadic:
        return [*args[:-1], *args[-1]]
    return list(args)


def _are_on_host(op: Op[..., Any], count: int) -> list[bool]:
    return [item.name in op.host_inputs for item in op.signature.parameters(count)]


def _device(op: Op[..., Any], tensors: Sequence[torch.Tensor | None]) -> torch.device:
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
