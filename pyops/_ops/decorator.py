"""The decorator that declares an op."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast, overload

from .._compiled.kernel import Compile, FastMath
from .._compiled.kernel import make as make_kernel
from .._schema import pycustomopdef
from .._schema.declaration import read_signature, with_may_inplace
from .._schema.devices import DeviceType, check_device_types
from ..errors import DeclarationError
from . import registry
from .builtin import DOMAINS, is_builtin
from .cuda_kernel import check_host_inputs
from .op import Op

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
    """Decorator: declare a Python function as an ONNX operator.

    Two forms: ``@onnx_op("domain::Name", version=1)``, where the function's hints are the
    declaration, and that of onnxruntime-extensions, ``@onnx_op(op_type=..., inputs=[...],
    outputs=[...], attrs={...})``, where lists of type codes are.

    Parameters
    ----------
    op_type : str
        ``"domain::Name"``.
    version : int
        The opset version of the domain from which on this declaration is meant.
    override : bool
        Take the place of an operator that ONNX Runtime has itself.
    may_inplace : mapping of str to str, optional
        Output name to input name: ONNX Runtime may give the output that input's memory. The kernel
        must not read the input once it has begun to write its `out`.
    device_types : sequence of str
        Which arrays the function takes: ``("cpu",)`` NumPy's, ``("cuda",)`` CuPy's, ``("cpu", "cuda")`` either,
        where it is written against their namespace (``array_api_compat.array_namespace(x)``).
    host_inputs : sequence of str
        Inputs that the function takes as NumPy arrays on a GPU too: small ones whose values decide
        what it does, such as sizes.
    compile : bool, "try" or "debug"
        Compile the function with numba, for ONNX Runtime to call it directly. ``"try"`` runs the plain
        function where that cannot be done; ``"debug"`` checks the bounds of every index.
    parallel : str, optional
        For a compiled kernel: which dimensions belong together, in NumPy's notation for generalized
        ufuncs (``"(n)->(n)"`` for rows, ``"(),()->()"`` for elements). Parts along all others, the
        leading ones, are computed by the threads of the session.
    fastmath : bool or collection of str
        As for ``numba.njit``: what LLVM may change of floating-point results to gain speed. Sums are
        vectorised with ``{"reassoc"}`` only.
    inputs, outputs, attrs
        As in onnxruntime-extensions; see `pyops._schema.pycustomopdef.read_signature`.

    Returns
    -------
    callable
        Takes the function and returns its `Op`. An op of the same domain, name and version is
        replaced; where its signature is equal, it is the same object with a new body.

    Raises
    ------
    DeclarationError
        Anything wrong with the declaration, when it is made.
    MissingDependencyError
        The kernel is to be compiled, and numba is not installed.

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
    # Hints may use names that are local to the function in which the op is declared.
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
    unknown = set(kwargs) - (
        {"version", "may_inplace", "device_types", "host_inputs", *_COMPILING}
        if args
        else {"op_type", "inputs", "outputs", "attrs", "version"}
    )
    if unknown:
        form = '"domain::Name", version=1' if args else "op_type=..., inputs=..., outputs=..., attrs=..."
        raise DeclarationError(f"onnx_op got an unknown argument {min(unknown)!r}; its form is @onnx_op({form})")

    def declare(function: Callable[P, R]) -> Op[P, R]:
        kernel_function: Callable[..., Any] = function
        device_types: tuple[str, ...] = ("cpu",)
        host_inputs: tuple[str, ...] = ()
        if args:
            signature = read_signature(function, args[0], kwargs.get("version", 1), localns)
            signature = with_may_inplace(signature, kwargs.get("may_inplace") or {})
            device_types = check_device_types(kwargs.get("device_types", device_types), args[0])
            host_inputs = check_host_inputs(signature, kwargs.get("host_inputs", ()), device_types)
            compiling = {name: value for name, value in kwargs.items() if name in _COMPILING}
            if device_types != ("cpu",) and any(compiling.values()):
                raise DeclarationError(
                    f"{args[0]}: compile, parallel and fastmath are for the CPU; leave device_types out and register "
                    'the CUDA kernel with register_kernel("cuda")'
                )
            kernel_function = make_kernel(signature, function, function, **compiling)
        else:
            signature = pycustomopdef.read_signature(function, **kwargs)
            kernel_function = pycustomopdef.as_kernel(function, signature)
        if not override and signature.domain in DOMAINS and is_builtin(signature.domain, signature.name):
            raise DeclarationError(
                f"{signature.qualified_name} is an operator of ONNX Runtime's own; to take its place, write "
                f'@onnx_op("{signature.qualified_name}", override=True)'
            )
        return cast("Op[P, R]", registry.declare(Op(signature, kernel_function, device_types, host_inputs)))

    return declare
