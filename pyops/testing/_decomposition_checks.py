"""Checks of an op against its decomposition: the kernel, and the body with which models run without pyops."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from .._core import Attribute, AttributeKind, Decomposition
from .._onnx import bodies
from .._support.builtin_operators import ONNX_DOMAIN
from .._support.element_types import describe
from .._tolerances import first_difference
from ..shapes import TensorSpec
from ._case import Case, NotRun, check_after, format_error, quiet, where_available
from ._sample import Sample

_ROUNDINGS = 10
_SCALES = (2.0**-20, 2.0**-10, 2.0**6)


@check_after("repeatable")
def decomposition(case: Case) -> str:
    """Check that the kernel returns what the decomposition does, for other sizes, types, numbers and attributes too."""
    compare(case, "for the sample's inputs", case.arrays, case.attributes, case.outputs)
    count = 1
    for what, arrays, attributes in _calls(case):
        outputs = case.vary(what, arrays, attributes).outputs
        if outputs is not None:
            with contextlib.suppress(Refusal):
                compare(case, what, arrays, attributes, outputs)
                count += 1
    return f"{count} calls"


@check_after("decomposition")
def body(case: Case) -> str:
    """Check that the body computes, without pyops, what the decomposition does, for every type."""
    _declared(case)
    if importlib.util.find_spec("onnxruntime") is None:
        raise NotRun("onnxruntime is not installed")
    if case.op.domain == ONNX_DOMAIN:
        raise NotRun("an op of ONNX's own domain has no body")
    calls = [("for the sample's inputs", case.arrays), *case.other_types(), *case.without_optional()]
    return "; ".join([f"{len(calls)} calls", *filter(None, (_check_body(case, *call) for call in calls))])


def _check_body(case: Case, what: str, arrays: Sequence[Any]) -> str:
    """Check the body for one call; return a note where ONNX Runtime cannot run it."""
    # The node has all attributes, because runtimes differ about the defaults of a function's attributes.
    sample = Sample(case.op, *arrays, **case.attributes)
    # The model of a sample has no shapes of outputs, which the checker requires.
    model = onnx.shape_inference.infer_shapes(model_with_body(sample), strict_mode=True)
    onnx.checker.check_model(model, full_check=True)
    if any(array is not None and array.dtype.type.__module__ == "ml_dtypes" for array in arrays):
        return f"{what} not run: onnxruntime takes no arrays of this type"
    import onnxruntime

    try:
        with quiet():
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            outputs = session.run(None, sample.feed)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        return f"{what} {format_error(error)}"
    compare(case, what, arrays, case.attributes, outputs, "the body")
    return ""


def model_with_body(sample: Sample) -> onnx.ModelProto:
    """Return the model of a sample with the body of its op, which has a decomposition."""
    model, attributes = sample.model(), sample.op.signature.convert_attributes(sample.attributes)
    specs = [None if array is None else TensorSpec.of(array) for array in sample.inputs]
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    assert sample.op.decomposition is not None
    with where_available():
        model.functions.append(bodies.body(sample.op.decomposition, specs, attributes, opset))
    return model


class Refusal(AssertionError):  # noqa: N818 - as NotRun
    """Raised where the decomposition rejects a call."""


def compare(
    case: Case,
    what: str,
    arrays: Sequence[Any],
    attributes: Mapping[str, Any],
    outputs: Sequence[Any],
    computed_by: str = "the kernel",
) -> None:
    """Raise an AssertionError unless outputs are those of the decomposition, in float64 where it computes that.

    They may differ by ten times the rounding error of the decomposition in the types of the inputs.

    Raises
    ------
    NotRun
        The op has no decomposition, or what computes it is not installed.
    Refusal
        The decomposition rejects the call.
    """
    declared = _declared(case)
    own = precise = _reference(declared, arrays, attributes, False)
    with contextlib.suppress(Refusal):  # it may not take float64
        precise = _reference(declared, arrays, attributes, True)
    expected = [_expected(*items) for items in zip(outputs, own, precise, strict=False)]
    expected += own[len(outputs) :]
    problem = first_difference(outputs, expected, case.names(len(expected)), case.rtol, case.atol)
    if problem is not None:
        given = ", ".join(map(describe, arrays))
        raise AssertionError(f"{what} ({given}) {computed_by} gives other outputs than {declared.name}: {problem}")


def _expected(output: Any, own: Any, precise: Any) -> Any:
    """Return the precise numbers in the type of the output, or its own where they are within the rounding error."""
    if "float" not in own.dtype.name or not output.shape == own.shape == precise.shape:
        return own
    with quiet():
        actual, rounded, exact = (array.astype(np.float64) for array in (output, own, precise))
        rounding = np.abs(rounded - exact)
        largest = rounding[np.isfinite(rounding)].max(initial=0)
        is_close = (np.abs(actual - exact) <= _ROUNDINGS * largest) | ~np.isfinite(rounded)
        return np.where(is_close, actual, exact).astype(own.dtype)


def _reference(
    declared: Decomposition, arrays: Sequence[Any], attributes: Mapping[str, Any], precise: bool
) -> list[Any]:
    try:
        with quiet(), where_available():
            return bodies.reference(declared, arrays, attributes, precise)
    except NotRun:
        raise
    except Exception as error:  # whatever the user's code raises
        raise Refusal(f"{declared.name} raises {format_error(error)}") from error


def _declared(case: Case) -> Decomposition:
    if case.op.decomposition is None:
        raise NotRun(f"no decomposition is registered (@{case.op.__name__}.register_decomposition)")
    return case.op.decomposition


def _calls(case: Case) -> Iterator[tuple[str, Sequence[Any], Mapping[str, Any]]]:
    """Yield calls that differ from the sample, in which a wrong size, axis, constant or branch of a kernel shows."""
    varied = [(item.what, item.arrays) for item in case.other_sizes]
    varied += [*case.other_types(), *case.without_optional(), *_other_numbers(case)]
    if case.signature.is_variadic:
        varied.append(("with one more input", (*case.arrays, case.arrays[-1])))
        varied.append(("with one input fewer", case.arrays[:-1]))
    yield from ((what, arrays, case.attributes) for what, arrays in varied)
    for attribute in case.signature.attributes:
        for value in _other_values(attribute, case.attributes[attribute.name]):
            yield f"with {attribute.name}={value!r}", case.arrays, case.attributes | {attribute.name: value}


def _other_numbers(case: Case) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the inputs with one of them smaller or larger, where a constant that is added to it shows."""
    for position, array in enumerate(case.arrays):
        for scale in _SCALES if array is not None and "float" in array.dtype.name else ():
            with quiet():
                scaled = (array.astype(np.float64) * scale).astype(array.dtype)
            yield f"with input {position} times {scale:.3g}", case.with_input(position, scaled)


def _other_values(attribute: Attribute, value: Any) -> Sequence[Any]:
    if attribute.choices:
        return [other for other in attribute.choices if other != value]
    if value is None:
        return []
    if attribute.is_list:
        return [type(value)(reversed(value))]
    if attribute.boolean:
        return [not value]
    if attribute.kind is AttributeKind.FLOAT:
        return [attribute.convert(other) for other in (2 * value + 0.25, value / 2)]
    return [value + 1, 0] if attribute.kind is AttributeKind.INT else []
