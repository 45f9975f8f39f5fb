"""Calls of a kernel from several threads."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ..compiled.kernel import CompiledKernel
from . import variations
from .case import Case, NotRun, copies, quiet, spell_error, views
from .interleaving import interleaved
from .outputs import Outputs


def thread_safe(case: Case) -> str:
    """A call gives the same when another thread's call runs in between, after whichever line."""
    function = case.function
    if isinstance(function, CompiledKernel):
        function = function.plain
    attributes = case.attributes

    def call(given: Sequence[Any]) -> Any:
        own = {name: list(value) if isinstance(value, list) else value for name, value in attributes.items()}
        # A copy of the result: the other call may write to what the kernel returned.
        return deepcopy(function(*views(given), **own))

    def alone(given: Sequence[Any]) -> Outputs:
        with quiet():
            return case.checked(call(given), given)

    arrays = case.arrays, copies(variations.mixed(case.arrays))
    first = alone(arrays[0])
    try:
        expected = first, alone(arrays[1])
    except Exception:  # a kernel refuses by whatever it raises
        arrays, expected = (case.arrays, case.arrays), (first, first)

    count = 0
    with quiet():
        for place, *results in interleaved(lambda: call(arrays[0]), lambda: call(arrays[1])):
            for result, inputs, wanted in zip(results, arrays, expected, strict=True):
                if isinstance(result, Exception):
                    raise AssertionError(
                        f"the kernel raises {spell_error(result)} when another thread's call runs at {place}"
                    ) from result
                case.compare(case.checked(result, inputs), wanted, f"when another thread's call runs at {place}")
            count += 1
    if not count:
        raise NotRun("no line of the kernel can be stopped at: its code is in an installed package, or not in Python")
    return f"at {count} lines"
