"""The decorator `onnx_op`, which declares ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast, overload

from ..._support.builtin_operators import DOMAINS, is_builtin
from ...errors import DeclarationError, did_you_mean
from ..cuda.cuda_arguments import check_host_inputs
from ..cuda.devices import DeviceType, check_device_types
from ..schema.declaration import Compile, FastMath, read_signature
from . import extensions_decorators, op_registry
from . import op_pickling as op_pickling  # registers how ops are pickled
from .op import Op, as_kernel

P = ParamSpec("P")
R = TypeVar("R")

_COMPILING = {"compile", "parallel", "fastmath"}


@overload
def onnx_op(
    op_type: str,
    /,
    *,
    version: int = 1,
    override: bool = False,
    may_inplace: Mapping[str, str] | None = None,
    device_types: Sequence[DeviceType] = ("cpu",),
    host_inputs: Sequence[str] = (),
    compile: Compile = False,
    parallel: str | None = None,
    fastmath: FastMath = False,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
@overload
def onnx_op(
    *,
    op_type: str | None = None,
    inputs: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    attrs: Mapping[str, int] | Sequence[str] | None = None,
    version: int = 1,
    override: bool = False,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
def onnx_op(*args: Any, **kwargs: Any) -> Callable[[Callable[P, R]], Op[P, R]]:
    """Declare the decorated Python function as an ONNX operator.

    There are two forms: ``@onnx_op("domain::Name", version=1)`` takes inputs, outputs and attributes from the
    function's type hints; ``@onnx_op(op_type=..., inputs=[...], outputs=[...], attrs={...})``, the form of
    onnxruntime-extensions, takes them from type codes.

    Parameters
    ----------
    op_type : str
        ``"domain::Name"``.
    version : int
        The first opset version of the domain to which this declaration applies.
    override : bool
        Whether the op may replace a built-in operator of ONNX Runtime.
    may_inplace : mapping of str to str, optional
        Output name to input name: ONNX Runtime may place the output in that input's memory. The kernel
        must not read the input once it has begun to write to `out`.
    device_types : sequence of str
        The arrays that the function accepts: ``("cpu",)`` for NumPy arrays, ``("cuda",)`` for CuPy arrays, and
        ``("cpu", "cuda")`` for both, if it uses their namespace (``array_api_compat.array_namespace(x)``).
    host_inputs : sequence of str
        Inputs that the function receives as NumPy arrays on a GPU too: small ones whose values decide
        what it does, such as sizes.
    compile : bool, "try" or "debug"
        Whether to compile the function with numba, so that ONNX Runtime calls machine code. ``"try"`` runs the
        plain function if it cannot be compiled; ``"debug"`` checks the bounds of every index.
    parallel : str, optional
        For a compiled kernel: the dimensions that must be computed together, in NumPy's notation for generalized ufuncs
        (``"(n)->(n)"`` for rows, ``"(),()->()"`` for elements). The session's threads share the work along the leading
        dimensions, which the notation leaves out.
    fastmath : bool or collection of str
        As for ``numba.njit``: the changes to floating-point results that LLVM may make for speed. Sums in loops are
        vectorized only with ``{"reassoc"}``.
    inputs, outputs, attrs
        As in onnxruntime-extensions: lists of type codes (`PyCustomOpDef`), and type codes by attribute name.

    Returns
    -------
    callable
        Takes the function and returns its `Op`. An op of the same domain, name and version is replaced;
        if its signature is equal, the existing object is returned, with the new kernels.

    Raises
    ------
    DeclarationError
        Anything is wrong with the declaration.
    MissingDependencyError
        `compile` is True or ``"debug"``, and numba is not installed.

    Warns
    -----
    RedeclarationWarning
        The op replaces one of another module or another qualified name.

    Examples
    --------
    >>> import numpy as np
    >>> from numpy.typing import NDArray
    >>> @onnx_op("mylibrary::Halve")
    ... def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x / np.float32(2)
    >>> halve(np.array([3.0], np.float32))
    array([1.5], dtype=float32)
    """
    # Hints may refer to local variables of the function that declares the op.
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    localns = dict(caller.f_locals) if caller else {}
    if args and callable(args[0]):
        raise DeclarationError('onnx_op needs the operator\'s name; write @onnx_op("domain::Name")')
    if len(args) > 1:
        raise DeclarationError(
            f"onnx_op got {len(args)} positional arguments; it takes the operator's name alone: "
            '@onnx_op("domain::Name", version=1)'
        )

    override = kwargs.pop("override", False)
    known = (
        {"version", "may_inplace", "device_types", "host_inputs", *_COMPILING}
        if args
        else {"op_type", "inputs", "outputs", "attrs", "version"}
    )
    for name in sorted(set(kwargs) - known):
        form = '"domain::Name", version=1' if args else "op_type=..., inputs=..., outputs=..., attrs=..."
        meant = did_you_mean(name, sorted(known | {"override"}))
        raise DeclarationError(f"onnx_op got an unknown argument {name!r}{meant}; its form is @onnx_op({form})")

    def declare(function: Callable[P, R]) -> Op[P, R]:
        kernel_function: Callable[..., Any] = function
        device_types: tuple[str, ...] = ("cpu",)
        host_inputs: tuple[str, ...] = ()
        if args:
            signature = read_signature(function, args[0], kwargs.get("version", 1), localns)
            signature = signature.with_may_inplace(kwargs.get("may_inplace") or {})
            device_types = check_device_types(kwargs.get("device_types", device_types), args[0])
            host_inputs = check_host_inputs(signature, kwargs.get("host_inputs", ()), device_types)
            compiling = {name: value for name, value in kwargs.items() if name in _COMPILING}
            signature.check_callable(function, signature.kernel_keywords)
            kernel_function = as_kernel(signature, function, function, device_types, **compiling)
        else:
            signature = extensions_decorators.read_signature(function, **kwargs)
            kernel_function = extensions_decorators.as_kernel(function, signature)
        if not override and signature.domain in DOMAINS and is_builtin(signature.domain, signature.name):
            raise DeclarationError(
                f"{signature.qualified_name} is a built-in operator of ONNX Runtime; to replace it, write "
                f'@onnx_op("{signature.qualified_name}", override=True)'
            )
        return cast("Op[P, R]", op_registry.declare_op(Op(signature, kernel_function, device_types, host_inputs)))

    return declare
