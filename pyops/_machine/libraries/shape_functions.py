"""Shape functions as machine code: numba's type for a `TensorSpec`, whose sizes are ints when a kernel runs."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import (
    intrinsic,
    make_attribute_wrapper,
    models,
    overload_attribute,
    overload_method,
    register_model,
)
from numba.np.numpy_support import as_dtype

from ..._core import AnyOp
from ..._support.element_types import format_scalar
from ...errors import CompileError
from ...shapes import RuntimeDim, TensorSpec, broadcast, new_dim
from ..compiled.callback_source import CODE_NAMES, format_tuple
from ..compiled.compilation import define, format_arguments, make_dispatcher, positional
from ..compiled.intrinsics import INNER, for_compiled_code, overload
from ..compiled.specialization import Specialization

_OPTIONS = {"nogil": True, "error_model": "numpy"} | INNER
_UNKNOWN = -(1 << 40)  # with which arithmetic stays negative


class SpecType(types.Type):
    """numba's type for specs of a dtype and a rank."""

    def __init__(self, dtype: Any, rank: int) -> None:
        self.dtype, self.rank = dtype, rank
        super().__init__(name=f"TensorSpec({dtype}, {rank})")

    @property
    def shape(self) -> Any:
        """Return the type of its shape."""
        return types.UniTuple(types.intp, self.rank)


@register_model(SpecType)
class _SpecModel(models.StructModel):
    def __init__(self, manager: Any, kind: SpecType) -> None:
        super().__init__(manager, kind, [("shape", kind.shape)])


make_attribute_wrapper(SpecType, "shape", "shape")


@overload_attribute(SpecType, "ndim")
def _(spec: Any) -> Any:
    rank = spec.rank
    return lambda spec: rank


@overload_attribute(SpecType, "dtype")
def _(spec: Any) -> Any:
    dtype = as_dtype(spec.dtype)
    return lambda spec: dtype


@intrinsic
def make_spec(typingctx: Any, shape: Any, dtype: Any) -> Any:
    """Return the spec of a shape (a tuple of ints) and a dtype."""
    if not isinstance(shape, types.BaseTuple) or not all(isinstance(size, types.Integer) for size in shape):
        raise CompileError(f"a shape has the type {shape}; write a tuple of ints")
    kind = SpecType(dtype.dtype, len(shape))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(kind)(context, builder)
        made.shape = context.cast(builder, args[0], signature.args[0], kind.shape)
        return made._getvalue()

    return kind(shape, dtype), codegen


@overload_method(SpecType, "like", strict=False)
def _like(spec: Any, shape: Any = None, dtype: Any = None) -> Any:
    own = as_dtype(spec.dtype).type
    match _is_given(shape), _is_given(dtype):
        case True, True:
            return lambda spec, shape=None, dtype=None: make_spec(shape, dtype)
        case True, False:
            return lambda spec, shape=None, dtype=None: make_spec(shape, own)
        case False, True:
            return lambda spec, shape=None, dtype=None: make_spec(spec.shape, dtype)
    return lambda spec, shape=None, dtype=None: spec


def _is_given(kind: Any) -> bool:
    return not isinstance(kind, (types.NoneType, types.Omitted, type(None)))


@overload(new_dim)
def _new_dim() -> Any:
    return lambda: _UNKNOWN


def _broadcast(*specs: Any) -> Any:
    return lambda *specs: _shape_of_all(specs)


_broadcast.__annotations__.clear()  # numba compares those of a variadic parameter, and a lambda has none
overload(broadcast)(_broadcast)


@numba.extending.register_jitable
def _shape_of_all(specs: Any) -> Any:
    return np.broadcast_shapes(*_shapes(specs))


@for_compiled_code
def _shapes(specs: Any) -> Any:
    if len(specs) == 1:
        return lambda specs: (specs[0].shape,)
    return lambda specs: (specs[0].shape, *_shapes(specs[1:]))


def sizes_are_known(op: AnyOp, specialization: Specialization, attributes: dict[str, Any]) -> bool:
    """Return whether the op's shape function gives all sizes before the kernel runs, as far as trials show."""
    for size in (4, 12, 1):
        specs = [None if item is None else TensorSpec([size] * item[1], item[0]) for item in specialization.inputs]
        try:
            results = op.infer_shapes(*specs, **attributes)
        except Exception:  # from the user's function, which may need other sizes
            continue
        return not any(isinstance(size, RuntimeDim) for spec in results for size in spec.shape)
    return False


class CompiledShapes:
    """The machine code of a shape function for one specialization.

    Attributes
    ----------
    ranks : tuple of int
        The ranks of the outputs.
    shape_of : numba dispatcher
        Writes the sizes of all outputs, as `callback_source` calls it; -1 stands for a size that is known only
        after the kernel has run.

    Raises
    ------
    Exception
        numba cannot compile the function.
    """

    def __init__(self, op: AnyOp, specialization: Specialization) -> None:
        cpu_target.typing_context.refresh()  # or what is declared above may not be known yet
        specs, at = [], 0
        for item in specialization.inputs:
            if item is None:
                specs.append("None")
            else:
                specs.append(f"make_spec(tuple_at(key + {8 * at}, {item[1]}), {format_scalar(item[0])})")
                at += item[1]
        values = format_tuple([code for _, code in specialization.attributes])
        function = op.shape_function
        assert function is not None
        called = f"function({', '.join(format_arguments(function, op.signature, False))})"
        names = CODE_NAMES | {
            "make_spec": make_spec,
            "function": make_dispatcher(positional(function), _OPTIONS, {}),
        }
        code = (
            f"def specs(key, attributes):\n    inputs, values = {format_tuple(specs)}, {values}\n    return {called}\n"
        )
        self._specs = numba.njit(**_OPTIONS)(define("specs", code, names))
        self._specs.compile((types.intp, types.intp))
        result = self._specs.overloads[types.intp, types.intp].signature.return_type
        kinds = tuple(result) if isinstance(result, types.BaseTuple) else (result,)
        if not all(isinstance(kind, SpecType) for kind in kinds):
            raise CompileError(f"the shape function returns {result}; return a spec for each output")
        self.ranks = tuple(kind.rank for kind in kinds)
        lines, at = ["def shape_of(key, shapes, attributes):", "    result = specs(key, attributes)"], 0
        for i, rank in enumerate(self.ranks):
            spec = f"result[{i}]" if isinstance(result, types.BaseTuple) else "result"
            lines += [f"    store(shapes, {at + axis}, max({spec}.shape[{axis}], -1))" for axis in range(rank)]
            at += rank
        made = define("shape_of", "\n".join([*lines, "    return 0"]), names | {"specs": self._specs})
        self.shape_of = numba.njit(**_OPTIONS)(made)
