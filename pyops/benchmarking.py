"""What calls cost, side by side."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterable, Mapping

ROUNDS = 15
SECONDS = 0.02
"""Per contestant and round."""


def medians(
    calls: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    track: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> dict[str, float]:
    """Seconds per call, the median over rounds in which all contestants take turns.

    Other machines, and the same one at another time, give other times; what can be compared are the ratios
    within one result.

    Parameters
    ----------
    calls : mapping
        By name. Each is called once before anything is measured.
    rounds : int
    seconds : float
        For each contestant in each round, at least one call.
    track : callable
        Wraps the rounds, to show progress.
    """
    numbers = {}
    for name, call in calls.items():
        call()
        numbers[name] = max(1, round(seconds / max(timeit.timeit(call, number=1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(rounds)):
        for name, call in calls.items():
            times[name].append(timeit.timeit(call, number=numbers[name]) / numbers[name])
    return {name: statistics.median(values) for name, values in times.items()}
