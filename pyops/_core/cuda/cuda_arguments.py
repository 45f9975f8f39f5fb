"""Validation of CUDA kernels' arrays: CuPy arrays, except for host inputs, which are NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..._support.element_types import describe, format_scalar
from ...errors import DeclarationError, DeviceCopyWarning, InputError, OutputError, warn
from ..schema.signature import Signature
from .devices import asarray, asnumpy, cupy_with_gpu, is_cupy


def check_host_inputs(signature: Signature, names: Any, device_types: Sequence[str]) -> tuple[str, ...]:
    """Validate the ``host_inputs`` of a declaration and return them as a tuple.

    Raises
    ------
    DeclarationError
        A name is not that of an input, the input is variadic, or the kernel is not for CUDA.
    """
    where = f"{signature.qualified_name}: host_inputs"
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise DeclarationError(f'{where} is {names!r}; write a tuple of names: host_inputs=("shape",)')
    named = tuple(names)
    inputs = {item.name: item for item in signature.inputs}
    for name in named:
        if name not in inputs:
            raise DeclarationError(f"{where} names {name!r}; the inputs are: {', '.join(inputs) or 'none'}")
        if inputs[name].variadic:
            raise DeclarationError(
                f"{where} names {name!r}, which is variadic, and ONNX Runtime can place only single inputs on the "
                "host; leave it out and use cupy.asnumpy in the kernel"
            )
    if named and "cuda" not in device_types:
        raise DeclarationError(
            f"{where} is for CUDA kernels, because every input of a CPU kernel is on the host; leave it out, or add "
            '"cuda" to device_types'
        )
    return named


def on_host(signature: Signature, count: int, host_inputs: Sequence[str]) -> list[bool]:
    """Return for each of `count` inputs whether it is a host input."""
    return [item.name in host_inputs for item in signature.parameters(count)]


def check_given(signature: Signature, arrays: Sequence[Any], host_inputs: Sequence[str]) -> None:
    """Raise if the arrays of a call are not on the devices where the CUDA kernel expects them.

    Raises
    ------
    InputError
        A host input is a CuPy array, or another input is a NumPy array.
    """
    for item, array in zip(signature.parameters(len(arrays)), arrays, strict=True):
        if is_cupy(array) and item.name in host_inputs:
            raise InputError(
                f"{signature.qualified_name}: input {item.name!r} is a host input of the CUDA kernel, but it is a "
                f"CuPy array; pass cupy.asnumpy({item.name})"
            )
        if isinstance(array, np.ndarray) and item.name not in host_inputs:
            raise InputError(
                f"{signature.qualified_name}: input {item.name!r} is a NumPy array, but others are CuPy arrays; pass "
                f"cupy.asarray({item.name})"
            )


def returning_cupy(signature: Signature, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that calls `kernel` and checks its result with `check_returned`."""

    def checked(*inputs: Any, **attributes: Any) -> Any:
        result = kernel(*inputs, **attributes)
        check_returned(signature, result)
        return result

    return checked


def check_returned(signature: Signature, result: Any) -> None:
    """Raise if an output of a CUDA kernel is not a CuPy array.

    None and nested tuples pass: `call_validation.check_outputs` has the message for them.

    Raises
    ------
    OutputError
        An output is not a CuPy array.
    """
    outputs = result if isinstance(result, tuple) else () if signature.returns_tuple else (result,)
    for index, output in enumerate(outputs):
        if output is None or isinstance(output, tuple) or is_cupy(output):
            continue
        item = signature.output(index)
        returned = "a NumPy array" if isinstance(output, (np.ndarray, np.generic)) else describe(output)
        dtypes = () if hasattr(output, "dtype") else item.type.dtypes
        dtype = f", {format_scalar(dtypes[0])}" if len(dtypes) == 1 else ""
        raise OutputError(
            f"{signature.qualified_name}: the CUDA kernel returned {returned} for {item.name!r}; return a CuPy "
            f"array, for example cupy.asarray(result{dtype})"
        )


class CopyingKernel:
    """The CPU kernel of an op that has only a CUDA kernel: copies inputs to the GPU, and outputs back.

    The first call warns with `DeviceCopyWarning`.

    Parameters
    ----------
    signature : Signature
        The op's signature.
    function : callable
        The CUDA kernel.
    host_inputs : sequence of str
        The inputs that the CUDA kernel takes as NumPy arrays.
    """

    def __init__(self, signature: Signature, function: Callable[..., Any], host_inputs: Sequence[str]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._signature = signature
        self._name = signature.qualified_name
        self._host_inputs = host_inputs
        self._warned = False

    def __call__(self, /, *inputs: Any, **attributes: Any) -> Any:
        """Run the kernel on NumPy arrays.

        Raises
        ------
        MissingDependencyError
            CuPy is not installed.
        DeviceError
            There is no GPU.
        OutputError
            The kernel returned something other than CuPy arrays.
        """
        cupy = cupy_with_gpu(f"{self._name}, which has only a CUDA kernel,")
        if not self._warned:
            self._warned = True
            warn(
                f"{self._name} has only a CUDA kernel and is run on the CPU: its inputs are copied to the GPU and its "
                'outputs back. Run it in a session with providers=["CUDAExecutionProvider"], or register a kernel for '
                'the CPU: register_kernel("cpu")',
                DeviceCopyWarning,
            )
        attributes.pop("out", None)  # host memory, which a CUDA kernel cannot write to
        are_host = on_host(self._signature, len(inputs), self._host_inputs)
        given = [x if x is None or is_host else asarray(cupy, x) for x, is_host in zip(inputs, are_host, strict=True)]
        result = self.function(*given, **attributes)
        check_returned(self._signature, result)
        if not isinstance(result, tuple):
            return asnumpy(result)
        outputs = map(asnumpy, result)
        return type(result)(*outputs) if hasattr(result, "_fields") else tuple(outputs)
