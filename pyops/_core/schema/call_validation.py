"""Calls of kernels: validation of the arguments, the call itself, and validation of the outputs.

All engines use these functions, so that a kernel behaves the same in each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..._support.element_types import (
    STRING,
    DType,
    describe,
    dtype_name,
    element_type,
    format_scalar,
    format_shape,
    holds_str,
    is_masked,
)
from ...errors import InputError, OutputError
from ..cuda.devices import is_cupy
from .node_validation import explain_read_only
from .signature import Input, Signature

Shapes = Sequence[tuple[int | None, ...]]
"""Output shapes; a size that is known only after the kernel has run is None."""


def split_arguments(
    signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Split the arguments of a plain call into inputs and attributes.

    Inputs may be passed by name, as in any Python call. They are returned as plain NumPy or CuPy arrays in the order
    of declaration, with None for absent ones; attributes are converted, defaults included.

    Raises
    ------
    InputError
        An input is passed twice or is not an array, or there are too many or too few; or an attribute is
        unknown, missing or of another type.
    """
    arrays = list(args)
    attributes = dict(kwargs)
    if signature.takes_out and attributes.pop("out", None) is not None:
        raise InputError(
            f"{signature.qualified_name} got out=, which is for ONNX Runtime's own buffers; use what the call returns"
        )
    if signature.takes_state and attributes.pop("state", None) is not None:
        raise InputError(
            f"{signature.qualified_name} got state=, which the setup function makes from the attributes; leave it out"
        )
    for position, item in enumerate(signature.inputs):
        if item.name not in attributes or item.variadic:
            continue
        if position < len(arrays):
            raise InputError(f"{signature.qualified_name} got input {item.name!r} twice")
        arrays += [None] * (position - len(arrays)) + [attributes.pop(item.name)]
    declared = signature.parameters(len(arrays))
    arrays = [_as_array(signature, item, value) for item, value in zip(declared, arrays, strict=True)]
    try:
        return arrays, signature.convert_attributes(attributes)
    except InputError as error:
        raise InputError(f"{signature.qualified_name}: {error}") from None


def _as_array(signature: Signature, item: Input, value: Any) -> Any:
    value = _plain(value)
    if value is not None and not isinstance(getattr(value, "dtype", None), np.dtype):
        of_torch = type(value).__module__.partition(".")[0] == "torch"
        hint = '; for torch tensors, call exporters.custom_op(op, "ns::name")' if of_torch else ""
        raise InputError(
            f"{signature.qualified_name}: input {item.name!r} is {describe(value)}; pass an array, for example "
            f"{_as_array_of(value, item)}{hint}"
        )
    if is_masked(value):
        raise InputError(
            f"{signature.qualified_name}: input {item.name!r} is a masked array, but ONNX has no masks; pass "
            f"{item.name}.filled(...)"
        )
    if isinstance(value, np.ndarray) and value.dtype.kind in "UT":
        value = value.astype(STRING)
    if isinstance(value, np.ndarray) and not holds_str(value):
        raise InputError(
            f"{signature.qualified_name}: input {item.name!r} is an object array with elements other than str; pass "
            f"{item.name}.astype(str), or numbers as an array of numbers"
        )
    return value


def _as_array_of(value: Any, item: Input) -> str:
    """Return the code that makes an array of a value, in the declared type that is nearest to its data."""
    if type(value).__module__.partition(".")[0] == "onnxruntime" and hasattr(value, "numpy"):
        return f"{item.name}.numpy()"
    # NumPy makes float64 of a Python float, but almost every model has float32.
    float32 = np.dtype(np.float32)
    try:
        own = np.asarray(value).dtype
    except Exception:  # NumPy cannot make an array of it
        own = item.type.dtypes[0]
    near = (float32 if own == np.float64 else STRING if own.kind in "UT" else own, float32, *item.type.dtypes)
    return f"np.asarray({item.name}, {format_scalar(next(dtype for dtype in near if dtype in item.type.dtypes))})"


def _plain(value: Any) -> Any:
    """Return NumPy scalars, array subclasses and other holders of a NumPy dtype (pandas columns) as plain arrays."""
    has_dtype = isinstance(getattr(value, "dtype", None), np.dtype)
    is_own = is_masked(value) or is_cupy(value)
    return np.asarray(value) if has_dtype and not is_own else value


def output_dtypes(signature: Signature, inputs: Sequence[DType | None]) -> tuple[DType | None, ...]:
    """Return the dtype of each declared output for the given dtypes of the inputs.

    Parameters
    ----------
    inputs : sequence of numpy.dtype or None
        One per input of the call, None if absent.

    Returns
    -------
    tuple of numpy.dtype or None
        One per declared output; None for a heterogeneous variadic one.

    Raises
    ------
    InputError
        An input has an undeclared dtype, a required input is absent, or inputs that share a type parameter
        have different dtypes.
    """
    bound: dict[str, tuple[str, DType]] = {}
    for item, dtype in zip(signature.parameters(len(inputs)), inputs, strict=True):
        if dtype is None:
            if not item.optional:
                raise InputError(f"{signature.qualified_name}: input {item.name!r} is None; it is not optional")
            continue
        if dtype not in item.type.dtypes:
            near = min(item.type.dtypes, key=lambda known: known != np.float32)
            raise InputError(
                f"{signature.qualified_name}: input {item.name!r} is {dtype_name(dtype)}; declared as {item.type}: "
                f"convert it, in NumPy with {item.name}.astype({format_scalar(near)})"
            )
        if not item.homogeneous:
            continue
        first, known = bound.setdefault(item.type.name, (item.name, dtype))
        if known != dtype:
            raise InputError(
                f"{signature.qualified_name}: input {item.name!r} is {dtype_name(dtype)} and {first!r} is "
                f"{dtype_name(known)}; both are declared {item.type.name}, which is one type per call"
            )
    dtypes: list[DType | None] = []
    for output in signature.outputs:
        if not output.homogeneous:
            dtypes.append(None)
            continue
        if len(output.type.dtypes) > 1 and output.type.name not in bound:
            raise InputError(
                f"{signature.qualified_name}: no input is present from which to infer the type of output "
                f"{output.name!r}"
            )
        dtypes.append(bound[output.type.name][1] if len(output.type.dtypes) > 1 else output.type.dtypes[0])
    return tuple(dtypes)


def call(
    signature: Signature, function: Callable[..., Any], arrays: Sequence[Any], attributes: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Run a kernel on plain arrays.

    Parameters
    ----------
    arrays : sequence
        One per input, None if absent. The kernel receives read-only views.
    attributes : mapping
        As returned by `Signature.convert_attributes`.

    Returns
    -------
    tuple of arrays
        One per output, each of its declared dtype and writable.

    Raises
    ------
    InputError
        The dtypes of the inputs do not match the declaration.
    OutputError
        The result of the kernel does not match it.
    """
    dtypes = output_dtypes(signature, [None if array is None else array.dtype for array in arrays])
    try:
        result = function(*map(_read_only, arrays), **attributes)
    except ValueError as error:
        explain_read_only(error)
        raise
    outputs = check_outputs(signature, dtypes, result)
    writable = map(_writable, outputs)
    return type(outputs)(*writable) if hasattr(outputs, "_fields") else tuple(writable)


def _writable(output: Any) -> Any:
    # A kernel that returns a view of an input returns the caller's memory, marked read-only.
    return output.copy() if isinstance(output, np.ndarray) and not output.flags.writeable else output


def _read_only(array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        return array
    # Sessions pass plain arrays too; on a subclass operators may differ, such as * on np.matrix.
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def check_outputs(signature: Signature, dtypes: Sequence[DType | None], result: Any) -> tuple[Any, ...]:
    """Validate what a kernel returned, and return it as a tuple with one array per output.

    Parameters
    ----------
    dtypes : sequence of numpy.dtype or None
        As returned by `output_dtypes`.
    result : object
        What the kernel returned; a NamedTuple remains one.

    Raises
    ------
    OutputError
        The type, a dtype or the number of outputs differs from the declaration.
    """
    if not signature.returns_tuple:
        if type(result) is np.ndarray and result.dtype is dtypes[0] and dtypes[0] is not STRING:
            return (result,)
        return (_check_output(signature, 0, dtypes[0], result),)
    if not isinstance(result, tuple):
        raise OutputError(
            f"{signature.qualified_name} is declared to return a tuple of {len(dtypes)} arrays and returned "
            f"{describe(result)}; write return {', '.join(item.name for item in signature.outputs)}"
        )
    if not signature.has_outputs(len(result)):
        raise OutputError(
            f"{signature.qualified_name} is declared to return {len(dtypes)} arrays and returned {len(result)}; "
            "return as many as the return type names"
        )
    checked = (_check_output(signature, i, dtypes[min(i, len(dtypes) - 1)], value) for i, value in enumerate(result))
    return type(result)(*checked) if hasattr(result, "_fields") else tuple(checked)


def output_count_error(signature: Signature, outputs: Sequence[Any], count: int) -> OutputError:
    """Return the error for a variadic op that did not return the `count` outputs that its node has."""
    return OutputError(
        f"{signature.qualified_name} returned {len(outputs)} arrays; the model's node has {count} outputs"
    )


def check_shapes(signature: Signature, shapes: Shapes, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raise if the shapes of outputs differ from those that the op's shape function returned.

    Parameters
    ----------
    shapes : Shapes
        One per output; None allows any size.

    Raises
    ------
    OutputError
        A shape or the number of outputs differs.
    """
    given = [output.shape for output in outputs]
    if given == list(shapes) or (len(given) == len(shapes) and all(map(_fits, given, shapes))):
        return
    returned, expected = (", ".join(map(format_shape, items)) for items in (given, shapes))
    raise OutputError(
        f"{signature.qualified_name}: for inputs {', '.join(map(describe, inputs))} the kernel returned shapes "
        f"{returned} and the shape function gives {expected}; one of the two is wrong"
    )


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(b in (a, None) for a, b in zip(shape, expected, strict=True))


def _check_output(signature: Signature, index: int, dtype: DType | None, value: Any) -> Any:
    output = signature.output(index)
    if dtype is None:  # one of several possible types
        row = element_type(value.dtype) if isinstance(getattr(value, "dtype", None), np.dtype) else None
        dtype = row.dtype if row and row.dtype in output.type.dtypes else output.type.dtypes[0]
    if (type(value) is np.ndarray or is_cupy(value)) and value.dtype == dtype and dtype is not STRING:
        return value
    declared = f"{signature.qualified_name}: {output.name!r} is declared {dtype_name(dtype)}"
    if is_masked(value):
        raise OutputError(f"{declared} and is a masked array, but ONNX has no masks; return value.filled(...)")
    value = _plain(value)
    # Tests for NumPy and CuPy arrays without importing CuPy; the dtypes of torch and others are not np.dtype.
    if not isinstance(getattr(value, "dtype", None), np.dtype) or not hasattr(value, "shape"):
        fix = f"return np.asarray(result, {format_scalar(dtype)})"
        if value is None:
            fix = "return an array"
        elif isinstance(value, tuple):
            fix = "return one array, or declare -> tuple[...]"
        raise OutputError(f"{declared} and the kernel returned {describe(value)}; {fix}")
    if dtype is STRING:
        return _check_strings(declared, value)
    if value.dtype != dtype:
        known = element_type(value.dtype)
        hint = "" if known is None or known.dtype == dtype else f", or declare it NDArray[{format_scalar(value.dtype)}]"
        raise OutputError(
            f"{declared} and the kernel returned {describe(value)}; return result.astype({format_scalar(dtype)}){hint}"
        )
    return value


def _check_strings(declared: str, value: Any) -> Any:
    if value.dtype.kind not in "UT" and value.dtype != STRING:
        raise OutputError(f"{declared} and the kernel returned {describe(value)}; return an array of str")
    if value.dtype is not STRING:  # an unpickled dtype, or one with metadata, is equal but not identical
        value = value.astype(STRING)
    for item in value.flat:
        if not isinstance(item, str):
            raise OutputError(f"{declared} and the kernel returned an array that holds {describe(item)}; return str")
    return value
