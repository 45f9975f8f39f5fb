"""The guard of an exported model whose capture fixed values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyops._ops.decorator import onnx_op
from pyops._tolerances import difference
from pyops.errors import GuardError, ModelError

from ._declarations import Number

_LONGEST = 100

if TYPE_CHECKING:  # where the constraints would have to be written out
    Guarded = TypeVar("Guarded", bound=np.generic)
    Asked = TypeVar("Asked", bound=np.generic)
else:
    Guarded, Asked = (TypeVar(name, *Number.__constraints__) for name in ("Guarded", "Asked"))


@onnx_op("pyops::Guard")
def guard(
    x: NDArray[Guarded],
    asked: NDArray[Asked],
    *,
    kind: Literal["branch", "number", "size", "values"],
    expected: str,
    line: str,
) -> NDArray[Guarded]:
    """Return x if a value is the one that an export fixed.

    Parameters
    ----------
    x : array
        Of any shape.
    asked : array
        What the model's Python code asked for.
    kind : str
        What the export fixed: whether it is true, its one number, its shape, or its values.
    expected : str
        The value that the export fixed, in JSON.
    line : str
        The line of the model's code, such as ``"model.py:12"``.

    Returns
    -------
    array
        x.

    Raises
    ------
    GuardError
        The value is a different one.
    ModelError
        `expected` is not JSON, or not for a tensor like `asked`.
    """
    try:
        found: Any = list(asked.shape) if kind == "size" else asked.tolist() if kind == "values" else asked.item()
        found = bool(found) if kind == "branch" else found
        fixed = json.loads(expected)
        is_equal = np.array_equal(found, fixed)
        is_float = kind in ("number", "values") and asked.dtype.kind not in "biu"
        if is_float and not is_equal and np.shape(fixed) == np.shape(found):
            # Floats may be rounded otherwise than in the export.
            is_equal = not difference(np.array(fixed, asked.dtype), np.array(found, asked.dtype)).wrong.any()
    except (AttributeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"the guard of {line} expects {_short(expected)!r}, which is not JSON for the {kind} of a tensor of shape "
            f"{asked.shape} ({error}): the model file is damaged; export the model again"
        ) from None
    if not is_equal:
        what = {"branch": "the condition", "number": "the number", "size": "the shape", "values": "the tensor"}[kind]
        raise GuardError(
            f"the model was exported with {what} {_short(fixed)} of {line}, and this run has {_short(found)}; export "
            "the model again with arguments like these, or avoid conditions in Python, for example with torch.where"
        )
    return x


@guard.register_shape_inference
def _(x: Any, asked: Any, **attributes: Any) -> Any:
    return x


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
