"""The read-only mark of inputs, which numba loses in places: a kernel could write to the caller's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import errors
from numba.core.imputils import lower_cast
from numba.core.typing import templates
from numba.core.typing.collections import SetItemSequence
from numba.core.typing.npydecl import NumpyRulesInplaceArrayOperator
from numba.extending import intrinsic
from numba.np import arrayobj, linalg

from .intrinsics import overload

_AS_LAYOUT = arrayobj._as_layout_array_intrinsic._defn


def _as_layout(typingctx: Any, array: Any, layout: Any) -> Any:
    """Return an array of a layout, as numba's function of this purpose, but an array that may be read-only is."""
    signature, code = _AS_LAYOUT(typingctx, array, layout)
    if not array.mutable and array.layout == "A" and array.ndim:  # copied only at run time if need be; here, always
        return signature, arrayobj._array_copy
    same = array.ndim < 2 or array.layout == layout.literal_value
    return signature.return_type.copy(readonly=same and not array.mutable)(*signature.args), code


def _check_is_mutable(array: Any) -> None:
    if not array.mutable:
        raise errors.NumbaTypeError(f"Cannot modify readonly array of type: {array}; write to array.copy()")


def _cast_array(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    if wanted.mutable:
        _check_is_mutable(given)
    return value


def _checked(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Return numba's typing of a way to write to an array, which is an error for a read-only one."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        target = args[0].array_type if isinstance(args[0], types.NumpyFlatType) else args[0]
        if isinstance(target, types.Array):
            _check_is_mutable(target)
        return typed(self, args, kws)

    return generic


def _views(self: Any) -> Any:
    marks = [not getattr(array, "mutable", True) for array in self.arrays]
    return [types.Array(dtype, 0, "C", readonly=mark) for dtype, mark in zip(self.dtypes, marks, strict=True)]


def _nan_to_num(x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Type ``np.nan_to_num`` of a read-only array: numba's own takes the copy that it writes to for read-only too."""
    copies = getattr(copy, "literal_value", getattr(copy, "value", copy is True))  # a constant, a default or neither
    if not copies or not isinstance(x, types.Array) or x.mutable:
        return None
    return lambda x, copy=True, nan=0.0, posinf=None, neginf=None: np.nan_to_num(x.copy(), False, nan, posinf, neginf)


def keep_read_only() -> None:
    """Make numba keep the read-only mark of arrays, in all that this process compiles from now on.

    numba loses it in ``np.ascontiguousarray``, ``np.asfortranarray``, ``x.flat``, ``np.nditer``, ``np.dot``, and its
    containers and classes. A kernel could write to the caller's arrays, and to a model's weights.
    """
    dot = linalg.dot_3

    @functools.wraps(dot)  # numba compares the names of parameters
    def typed_dot(a: Any, b: Any, out: Any) -> Any:
        _check_is_mutable(out)
        return dot(a, b, out)

    for template in (SetItemSequence, NumpyRulesInplaceArrayOperator):
        template.generic = _checked(template.generic)
    types.NumpyNdIterType.views = property(_views)
    arrayobj._as_layout_array_intrinsic = intrinsic(_as_layout)
    for template in templates.builtin_registry.functions:
        if getattr(template, "_overload_func", None) is dot:
            template._overload_func = staticmethod(typed_dot)
    lower_cast(types.Array, types.Array)(_cast_array)
    overload(np.nan_to_num, target="cpu", prefer_literal=True)(_nan_to_num)
