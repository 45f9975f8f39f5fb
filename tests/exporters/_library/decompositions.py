"""The parts of the results of a decomposition that are determined; its vectors are free in sign, phase and order."""

from typing import Any

import numpy as np

from tests.exporters._library.kernel_calls import Call, arrays

Results = list[np.ndarray[Any, Any]]


def singular_values(call: Call, results: Results) -> Results:
    s, (u, vh) = results[1], (_numbers(call, x) for x in results[::2])
    if not u.size and not vh.size:
        return [s]
    k = s.shape[-1]
    return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], u.conj().mT @ u, vh @ vh.conj().mT]


def symmetric_eigenvalues(call: Call, results: Results) -> Results:
    values, vectors = results[0], _numbers(call, results[1])
    if not vectors.size:
        return [values]
    adjoint = vectors.conj().mT
    return [values, (vectors * values[..., None, :]) @ adjoint, adjoint @ vectors]


def eigenvalues(call: Call, results: Results) -> Results:
    """The sums of their powers, of which there are as many as eigenvalues; what the equation leaves; the norms."""
    values, *vectors = map(_of_pairs, results)
    largest = np.abs(values).max(-1, keepdims=True, initial=0)
    powers = np.arange(1, values.shape[-1] + 1, dtype=results[0].dtype)
    sums = ((values / largest)[..., None] ** powers).sum(-2)
    found = [largest, sums.real, sums.imag]
    matrix = _numbers(call, *arrays(call.args))
    for v in vectors:
        found += [np.abs(matrix @ v - v * values[..., None, :]), np.linalg.norm(v, axis=-2)]
    return found


def scaled(call: Call, results: Results) -> Results:
    """Each matrix divided by its largest element, to which its rounding errors are proportional."""
    return [x / np.abs(x).max((-2, -1), keepdims=True, initial=1) for x in (_numbers(call, x) for x in results)]


def _numbers(call: Call, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return matrices as they are in the call: as complex numbers, or as the reals that they are."""
    return _of_pairs(x) if call.args[0].is_complex() else x


def _of_pairs(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(x[..., 0] + 1j * x[..., 1])
