"""What declarations share: the element types of torch's operators on the CPU, and decorators for similar ops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast

import numpy as np
from array_api_compat import array_namespace
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from .. import Op, onnx_op
from ..shapes import TensorSpec, broadcast
from ._arrays import scipy, widened

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

Wide = TypeVar("Wide", np.float32, np.float64)
Float = TypeVar("Float", np.float16, bfloat16, np.float32, np.float64)
Index = TypeVar("Index", np.int32, np.int64)
Integer = TypeVar("Integer", np.int8, np.int16, np.int32, np.int64, np.uint8)
Real = TypeVar("Real", np.float16, bfloat16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8)
RealOrBool = TypeVar(
    "RealOrBool", np.float16, bfloat16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool
)
_UNSIGNED = (np.uint16, np.uint32, np.uint64)  # few of torch's operators support them
Number = TypeVar("Number", *RealOrBool.__constraints__, *_UNSIGNED)  # type: ignore[misc] # mypy wants a written list

EVERYWHERE: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")


def elementwise(
    types: Any,
    source: str | None = None,
    *,
    by: str | None = None,
    returns: Any = None,
    device_types: tuple[Literal["cpu", "cuda"], ...] = EVERYWHERE,
) -> Callable[[Callable[P, Any]], Op[P, NDArray[Any]]]:
    """Declare a function whose parameters are all arrays as an op of the domain ``pyops``; a decorator.

    Its name in CamelCase is the op type. Its docstring says what it computes; the sections about its inputs and output
    are added. It gets float16 and bfloat16 cast to float32, as torch does, and NumPy's floating-point warnings are off.

    Parameters
    ----------
    types : TypeVar
        The element types of the inputs; one for all of them.
    source : str, optional
        The equation of NIST's Digital Library of Mathematical Functions that defines it, such as ``"5.2.1"``.
    by : str, optional
        What computes it in place of the decorated function: a function of the arrays' namespace (``"gcd"``) or of a
        submodule of SciPy (``"special.erf"``).
    returns : type, optional
        The scalar type of the result, if it is not that of the inputs.
    device_types : tuple of str
        As for `onnx_op`.
    """
    array: Any = NDArray

    def declare(function: Callable[P, Any]) -> Op[P, NDArray[Any]]:
        @functools.wraps(function)
        def kernel(*arrays: Any) -> Any:
            return in_float32(_named(by, arrays[0]) if by else function, *arrays, returns=returns)

        names = list(inspect.signature(function).parameters)
        kernel.__annotations__ = dict.fromkeys(names, array[types]) | {"return": array[returns or types]}
        kernel.__doc__ = _docstring(inspect.getdoc(function) or "", names, types, source, returns)
        op = onnx_op(f"pyops::{_camel_case(function.__name__)}", device_types=device_types)(kernel)
        op.register_shape_inference(lambda *specs: broadcast_spec(*specs).like(dtype=returns))
        return cast("Op[P, NDArray[Any]]", op)

    return declare


def _named(function: str, array: Any) -> Any:
    submodule, _, name = function.rpartition(".")
    return getattr(scipy(submodule, array) if submodule else array_namespace(array), name)


def _camel_case(name: str) -> str:
    return "".join(part[0].upper() + part[1:] for part in name.split("_"))


def _docstring(text: str, names: list[str], types: Any, source: str | None, returns: Any) -> str:
    if source:
        section, _, equation = source.rpartition(".")
        text += f"\n\nDefined in DLMF {source}, https://dlmf.nist.gov/{section}.E{equation}."
    several = len(names) > 1
    *scalars, last = (scalar.__name__.strip("_") for scalar in types.__constraints__)
    return f"""{text}

Parameters
----------
{", ".join(names)} : array of {", ".join(scalars)} or {last}
    {"Of shapes that broadcast, and of one dtype." if several else "Of any shape."}

Returns
-------
array of {returns.__name__.strip("_") if returns else "the same dtype"}
    Of {"the shape that they broadcast to" if several else "the shape of the input"}.
"""


def first_spec(x: TensorSpec, *others: Any, **attributes: Any) -> TensorSpec:
    """Infer an output with the shape and the dtype of the first input."""
    return x


def broadcast_spec(*specs: TensorSpec) -> TensorSpec:
    """Infer an output with the dtype of the inputs and the shape that they broadcast to."""
    return specs[0].like(shape=broadcast(*specs))


def in_float32(function: Callable[..., Any], *arrays: Any, returns: Any = None) -> Any:
    """Call a function with `widened` arrays, and cast its result to the dtype of the first array or to `returns`."""
    dtype = arrays[0].dtype
    wide = [widened(array) for array in arrays]
    with np.errstate(all="ignore"):
        return array_namespace(wide[0]).asarray(function(*wide)).astype(returns or dtype, copy=False)


def variant(name: str, /, **words: str) -> Callable[[F], F]:
    """Give a function the name of one of the ops made from it, and fill in its docstring for that op; a decorator."""

    def named(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = str(function.__doc__).format(**words)
        return function

    return named
