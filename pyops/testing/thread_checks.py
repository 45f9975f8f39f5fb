"""Calls of a kernel from several threads."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ..compiled.kernel import CompiledKernel
from . import variations
from .case import Case, copies, quiet, spell_error, views
from .interleaving import interleaved


def thread_safe(case: Case) -> str:
    """A call gives the same when another thread's call runs in between, after whichever line."""
    function = case.function
    if isinstance(function, CompiledKernel):
        function = function.plain
    arrays = case.arrays, copies(variations.mixed(case.arrays))
    if case.vary("with half of the elements", arrays[1]).outputs is None:
        arrays = case.arrays, case.arrays
    expected = case.call(arrays[0]), case.call(arrays[1])
    attributes = case.attributes

    def call(index: int) -> Any:
        own = {name: list(value) if isinstance(value, list) else value for name, value in attributes.items()}
        # A copy of the result: the other call may write to what the kernel returned.
        return deepcopy(function(*views(arrays[index]), **own))

    count = 0
    with quiet():
        for place, *results in interleaved(lambda: call(0), lambda: call(1)):
            for result, inputs, wanted in zip(results, arrays, expected, strict=True):
                if isinstance(result, Exception):
                    raise AssertionError(
                        f"the kernel raises {spell_error(result)} when another thread's call runs at {place}"
                    ) from result
                case.compare(case.checked(result, inputs), wanted, f"when another thread's call runs at {place}")
            count += 1
    return f"at {count} lines"
