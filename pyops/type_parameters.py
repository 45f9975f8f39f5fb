"""The type parameter that the hint of a tensor stands for."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from .hints import HintError, is_array, plain, scalar_of, spell, union_members
from .signature import TypeParameter
from .types import DType, element_type, expand, spell_scalar


def type_parameter(hint: Any, own_name: str) -> TypeParameter:
    """The type parameter behind ``NDArray[...]``.

    Parameters
    ----------
    own_name : str
        What it is called where it is this hint's alone, which an abstract class is.

    Raises
    ------
    HintError
        The hint is no ``NDArray[...]``, or ONNX lacks its element type.
    """
    if not is_array(hint):
        raise _no_tensor(hint)
    scalar = scalar_of(hint)
    if scalar is None or scalar is Any:
        raise _says_no_type("NDArray[Any]" if scalar is Any else "np.ndarray")
    if isinstance(scalar, TypeVar):
        return TypeParameter(scalar.__name__, _variable_dtypes(scalar))
    if len(union_members(scalar)) > 1:
        raise HintError(f"{spell(scalar)} is no element type", f"use {_variable(union_members(scalar))} and NDArray[T]")
    dtypes = _dtypes(scalar)
    row = element_type(dtypes[0])
    return TypeParameter(row.type_str if row and len(dtypes) == 1 else own_name, dtypes)


def is_abstract(hint: Any) -> bool:
    """Whether ``NDArray[...]`` holds an abstract class, which is a type of its own each time."""
    return is_array(hint) and _count(scalar_of(hint)) > 1


def _count(scalar: Any) -> int:
    """How many element types a NumPy class contains; 0 for anything else."""
    return len(expand(scalar)) if isinstance(scalar, type) and issubclass(scalar, np.generic) else 0


def _variable_dtypes(variable: TypeVar) -> tuple[DType, ...]:
    members = variable.__constraints__ or union_members(plain(variable.__bound__))
    if members == (None,):
        raise HintError(
            f"the TypeVar {variable.__name__} allows any type",
            f"constrain it: {_variable((np.float32, np.float64), variable.__name__)}",
        )
    try:
        # A dict keeps the order in which they are written, and each one once.
        return tuple(dict.fromkeys(dtype for member in members for dtype in _dtypes(plain(member))))
    except HintError as mistake:
        raise HintError(f"in the TypeVar {variable.__name__}, {mistake.problem}", mistake.fix) from None


def _dtypes(scalar: Any) -> tuple[DType, ...]:
    if not isinstance(scalar, type):
        raise HintError(f"{spell(scalar)} is no element type", "write a NumPy scalar type such as np.float32")
    # ml_dtypes' types derive from np.generic as well.
    if not issubclass(scalar, np.generic):
        raise HintError(f"{spell(scalar)} is no NumPy type", f"write {_numpy_name(scalar)}")
    dtypes = expand(scalar)
    if not dtypes:
        raise HintError(f"ONNX has no element type for {spell(scalar)}", "use one that ONNX has, such as float64")
    return dtypes


def _numpy_name(scalar: type[Any]) -> str:
    names = {float: "np.float32 or np.float64", int: "np.int64", bool: "np.bool_", str: "np.str_", object: "np.str_"}
    return names.get(scalar, "a NumPy scalar type such as np.float32")


def _no_tensor(hint: Any) -> HintError:
    if hint is np.ndarray:
        return _says_no_type("np.ndarray")
    members = tuple(map(plain, hint.__constraints__ if isinstance(hint, TypeVar) else union_members(hint)))
    if len(members) > 1 and all(map(is_array, members)):
        variable = _variable([scalar_of(member) for member in members])
        return HintError(f"{spell(hint)} is no tensor type", f"put the types inside: {variable} and NDArray[T]")
    return HintError(
        f"{spell(hint)} is not a tensor type",
        "annotate inputs as NDArray[...], outputs as that or a tuple or NamedTuple of them; attributes go after `*`",
    )


def _says_no_type(spelled: str) -> HintError:
    return HintError(
        f"{spelled} says no element type", "write NDArray[np.float32], or NDArray[np.generic] for an input of any type"
    )


def _variable(members: Any, name: str = "T") -> str:
    scalars = [spell_scalar(member) if _count(member) == 1 else spell(member) for member in members]
    return f'{name} = TypeVar("{name}", {", ".join(scalars)})'
