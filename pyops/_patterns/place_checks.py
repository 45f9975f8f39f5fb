"""Whether an op computes what the nodes of a place do: on the model's own values, and on inputs drawn for the place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .._core import Model
from .._onnx import bodies
from .._support.progress import track
from ..errors import InputError
from ..testing._model_session import session_of
from ..testing._wrong_node import ModelValues
from .places import Candidate

_ROUNDINGS = 10
_COARSE = 2.0**-6  # the rounding error, relative to the largest value, beyond which that of the nodes counts
_SCALES = (1.0, 1e-3, 1e3, 0.0)
_AT_ONCE = 16  # places whose values are in memory

Arrays = Sequence[np.ndarray[Any, Any]]


def differences(
    model: Model, feed: Mapping[str, Any], candidates: Sequence[Candidate]
) -> Iterator[tuple[Candidate, float | str]]:
    """Yield the largest difference of each place, relative to its largest value, or why it is refused."""
    values = ModelValues(model, feed, session_of)
    for begin in track(range(0, len(candidates), _AT_ONCE), "comparing places"):
        part = candidates[begin : begin + _AT_ONCE]
        names = {str(v.name) for item in part for v in (item.output, *(bound.value for bound in item.inputs))}
        known = {name: array for name, array in feed.items() if name in names}
        known = {name: constant for item in part for name, constant in _constants(item) if name in names} | known
        try:
            known |= values.run(sorted(names - known.keys()))
        except Exception as error:  # ONNX Runtime's, of many classes
            raise InputError(
                f"the model does not run with these inputs: {error}; pass inputs= with which it does"
            ) from error
        for candidate in part:
            yield candidate, _difference(values, known, candidate)


def _constants(candidate: Candidate) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for value, _ in candidate.inputs:
        if value.const_value is not None and value.producer() is None:
            yield str(value.name), value.const_value.numpy()


def _difference(values: ModelValues, known: Mapping[str, Any], candidate: Candidate) -> float | str:
    """Compare one place, first on the model's own values."""
    name, sources = str(candidate.output.name), [str(bound.value.name) for bound in candidate.inputs]
    given = {item: np.asarray(known[item]) for item in sources}
    largest = 0.0
    random = np.random.default_rng(0)
    for which, feed in [("the model's own values", given), *_drawn(given, candidate, random)]:
        nodes = known[name] if feed is given else values.run_alone(name, feed)[1]
        arrays = [
            feed[item].transpose(bound.permutation) if bound.permutation else feed[item]
            for item, bound in zip(sources, candidate.inputs, strict=True)
        ]
        try:
            with np.errstate(all="ignore"):
                exact = own = bodies.reference(candidate.decomposition, arrays, candidate.attributes, precise=False)[0]
                with contextlib.suppress(Exception):  # constants in onnxscript may not take float64
                    exact = bodies.reference(candidate.decomposition, arrays, candidate.attributes)[0]
                computed = candidate.op(*arrays, **candidate.attributes)
        except Exception as error:  # whatever a kernel raises
            return f"for {which} the op raises {type(error).__name__}: {error}"
        if nodes is None or (computed.dtype, computed.shape) != (nodes.dtype, nodes.shape):
            there = "nothing" if nodes is None else f"{nodes.dtype}{[*nodes.shape]}"
            return f"for {which} the op returns {computed.dtype}{[*computed.shape]}, the nodes {there}"
        found, allowed = _compared(nodes, computed, own, exact)
        if not found <= allowed:
            return f"for {which} the op differs by up to {found:.3g} (allowed is {allowed:.3g})"
        size = np.abs(nodes[np.isfinite(nodes)].astype(np.float64)).max(initial=0) if nodes.dtype.kind == "f" else 0
        largest = max(largest, found / size if size else 0.0)
    return largest


def _drawn(
    given: Mapping[str, Any], candidate: Candidate, random: np.random.Generator
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield inputs of the same sizes: random numbers of several scales, zeros, and integers in another order.

    Multiples of an input, which the nodes may read in its place, are among them.
    """
    for scale in _SCALES:
        feed = {}
        for name, array in given.items():
            numbers = np.asarray(random.standard_normal(array.shape) * scale)
            other = random.permutation(array.reshape(-1)).reshape(array.shape)
            feed[name] = numbers.astype(array.dtype) if "float" in array.dtype.name else other
        for name, (source, ratio, dtype) in candidate.multiples.items():
            if name not in given:
                feed[name] = np.asarray(feed[source].astype(dtype) * dtype.type(ratio))
        yield (f"random inputs times {scale:g}" if scale else "inputs that are 0"), feed


def _compared(nodes: Any, computed: Any, own: Any, exact: Any) -> tuple[float, float]:
    """Return the largest difference, and the allowed one.

    Allowed is ten times the rounding error of the decomposition in the types of the call, or that of the nodes where
    the decomposition's is coarse: it may overflow only where the nodes do, too.
    """
    if "float" not in nodes.dtype.name:
        return float(np.any(nodes != computed)), 0.0
    with np.errstate(all="ignore"):
        a, b, rounded, true = (np.asarray(item).astype(np.float64) for item in (nodes, computed, own, exact))
        if np.any(np.isfinite(a) & ~np.isfinite(true)):
            return np.inf, 0.0
        finite = np.isfinite(rounded) & np.isfinite(true)
        eps = float(ml_dtypes.finfo(nodes.dtype).eps)  # type: ignore[no-untyped-call]  # it has no types
        largest = np.abs(true[finite]).max(initial=0)
        of_nodes = max(np.nan_to_num(np.abs(a - true)[finite], nan=np.inf).max(initial=0), largest * _COARSE)
        allowed = _ROUNDINGS * max(min(np.abs(rounded - true)[finite].max(initial=0), of_nodes), eps * largest)
        found = np.abs(a - b)[finite | np.isfinite(a)]
    return float(np.nan_to_num(found, nan=np.inf).max(initial=0)), float(allowed)
