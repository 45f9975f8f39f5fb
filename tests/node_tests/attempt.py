"""One of ONNX's node tests, run in a session and compared with what onnx expects."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import pyops
from pyops.errors import FilledNodeWarning

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCE = 2.0**-6
"""Of bfloat16, relative to each value and to the largest of its array: a few roundings to 8 bits."""

_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "output_datatype"}
_FLOAT = onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Result:
    """The outcome of a test.

    Attributes
    ----------
    problem : str
        Why it is not reproduced; empty if it is.
    warned : str
        The warning of the session about nodes that it filled.
    """

    name: str
    problem: str = ""
    warned: str = ""


@functools.cache
def node_tests() -> dict[str, Any]:
    """Return onnx's node tests by name; it computes what they expect, which takes seconds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {test.name: test for test in load_model_tests(kind="node")}


def attempt(name: str, *, fill_missing: bool, bfloat16: bool = False) -> Result | None:
    """Run a node test, or one with bfloat16 in place of float32, which must agree with float32.

    None for a test without float32, for an operator that ONNX does not define for bfloat16, and where float32 fails.
    """
    test = node_tests()[name]
    sets = [(arrays(inputs), arrays(outputs)) for inputs, outputs in test.data_sets]
    if not bfloat16:
        return _run(name, test.model, fill_missing, sets, test.rtol, test.atol)
    model = as_bfloat16(test.model)
    if model is None:
        return None
    given = [[_rounded(value) for value in inputs] for inputs, _ in sets]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FilledNodeWarning)
            session = pyops.InferenceSession(test.model, fill_missing=True)
        expected = [session.run(None, feed(session, [_as_float32(value) for value in values])) for values in given]
    except Exception:  # whatever it is: there is nothing to compare with
        return None
    narrow = [[_rounded(value) for value in values] for values in expected]
    return _run(name, model, fill_missing, list(zip(given, narrow, strict=True)), TOLERANCE, None)


def _run(
    name: str, model: onnx.ModelProto, fill_missing: bool, sets: list[tuple[Any, Any]], rtol: float, atol: float | None
) -> Result:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FilledNodeWarning)
        try:
            session = pyops.InferenceSession(model, fill_missing=fill_missing)
            warned = "\n".join(str(item.message) for item in caught if item.category is FilledNodeWarning)
            for inputs, expected in sets:
                found = session.run(None, feed(session, inputs))
                for item, one, other in zip(session.get_outputs(), found, expected, strict=True):
                    if problem := difference(one, other, rtol, atol):
                        return Result(name, f"{item.name}: {problem}", warned)
        except Exception as error:  # of ONNX Runtime, pyops or onnx: of various types
            return Result(name, f"{type(error).__name__}: {error}")
    return Result(name, "", warned)


def feed(session: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the feeds of a session for inputs in its order."""
    return dict(zip((item.name for item in session.get_inputs()), inputs, strict=True))


def difference(found: Any, expected: Any, rtol: float, atol: float | None) -> str:
    """Return how an output differs from what is expected; empty if it does not."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"not a list of {len(expected)}"
        return next(filter(None, (difference(*pair, rtol, atol) for pair in zip(found, expected, strict=True))), "")
    if expected is None or found is None:
        return "" if found is expected else f"{found!r}, not {expected!r}"
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind in "OUS" and expected.dtype.kind in "OUS":
        return "" if found.shape == expected.shape and (found == expected).all() else f"{found}, not {expected}"
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"{found.dtype}{list(found.shape)}, not {expected.dtype}{list(expected.shape)}"
    one, other = (array.astype(np.float64) for array in (found, expected))
    if found.dtype == BFLOAT16:  # as in the runner of onnx
        rtol = max(rtol, TOLERANCE)
    if atol is None:
        finite = np.abs(other[np.isfinite(other)])
        atol = rtol * float(finite.max(initial=0.0))
    if np.allclose(one, other, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"values differ by up to {np.nanmax(np.abs(one - other)):.3g}"


def arrays(value: Any) -> Any:
    """Return an input or output of a node test, which may be a list of them, as arrays."""
    if isinstance(value, (list, tuple)):
        return [arrays(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _rounded(value: Any) -> Any:
    return _converted(value, np.float32, BFLOAT16)


def _as_float32(value: Any) -> Any:
    return _converted(value, BFLOAT16, np.float32)


def _converted(value: Any, of: Any, to: Any) -> Any:
    if isinstance(value, list):
        return [_converted(item, of, to) for item in value]
    return value.astype(to) if isinstance(value, np.ndarray) and value.dtype == of else value


def as_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with bfloat16 in place of float32; None if it has none, or if that is not valid ONNX."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if not _retype(result):
        return None
    try:
        onnx.checker.check_model(result, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return result


def _retype(message: Any) -> bool:
    """Change the types, tensors and attributes in a message; return whether there were any."""
    changed = False
    if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == _FLOAT:
        message.elem_type, changed = onnx.TensorProto.BFLOAT16, True
    elif isinstance(message, onnx.TensorProto):
        if message.data_type == _FLOAT:
            tensor = onnx.numpy_helper.to_array(message).astype(BFLOAT16)
            message.CopyFrom(onnx.numpy_helper.from_array(tensor, message.name))
            changed = True
        return changed
    elif isinstance(message, onnx.AttributeProto):
        if message.name in _TYPE_ATTRIBUTES and message.i == _FLOAT:
            message.i, changed = onnx.TensorProto.BFLOAT16, True
        elif message.name in ("value_float", "value_floats"):
            value = message.f if message.name == "value_float" else list(message.floats)
            tensor = onnx.numpy_helper.from_array(np.array(value, BFLOAT16))
            message.CopyFrom(onnx.helper.make_attribute("value", tensor))
            changed = True
    for field, value in message.ListFields():
        if field.message_type is not None:
            items = [value] if isinstance(value, type(message)) or hasattr(value, "ListFields") else value
            for item in items:
                changed = _retype(item) or changed
    return changed
