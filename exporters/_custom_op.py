"""Registration of an Op as an operator of torch.library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.library import CustomOpDef

from pyops import Op
from pyops import _core as core
from pyops.errors import InputError

from ._lowering import translations
from ._lowering.node_emission import emit
from ._operator_calls import DEVICE_TYPES, backward, device_of, flat, remember, run_fake, run_kernel
from ._torch.decomposition_calls import decomposition_in_torch
from ._torch.private.operators import call_instead, explain_mismatches, find_overload, forget_schema, overloads
from ._torch.torch_schema import check_name, torch_schema
from .errors import ExportError

_registered: dict[str, tuple[Op[..., Any], CustomOpDef]] = {}
# Names of operators whose Op has since been declared again with another signature, which they do not follow.
_outdated: set[str] = set()


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
        registered = torch.library.custom_op(name, _called_with_tensors(op, run_kernel), mutates_args=(), schema=schema)
    except (RuntimeError, ValueError, AttributeError, NotImplementedError) as error:
        raise ExportError(f"torch rejects {name!r} with the schema {schema}: {error}; choose another name") from error
    forget_schema(name)
    # A kernel may have side effects; without this, torch removes a call whose result is unused.
    torch.fx.node.has_side_effect(overloads(name)[0])
    registered.register_fake(_called_with_tensors(op, run_fake))
    if decomposition is not None:
        registered.register_autograd(functools.partial(backward, op), setup_context=functools.partial(remember, op))
    _registered.pop(name, None)
    _registered[name] = op, registered
    _outdated.discard(name)
    if replaced is not None:
        call_instead(replaced, lambda *args, **kwargs: _registered[name][1](*args, **kwargs))
    translations.register(name, lambda *args, **kwargs: emit(op, flat(signature, args), kwargs), op)
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
        tensors = flat(signature, args)
        given = {name: value for name, value in kwargs.items() if value is not None}
        try:
            outputs = compute(op, tensors, given, device_of(op, tensors))
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
    enabled = [name for name in DEVICE_TYPES if torch.is_autocast_enabled(name)]
    return next((name for name in enabled if torch.get_autocast_dtype(name) in dtypes), "")
