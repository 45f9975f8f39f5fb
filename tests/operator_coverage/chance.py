"""Detection of calls whose result their arguments do not determine, so that no export can be compared with them."""

from __future__ import annotations

import re
from typing import Any

import torch

from exporters._torch.private.operators import TorchDispatchMode, is_random
from exporters._torch.private.trees import clone_tensors, flatten
from exporters._torch.single_call import SingleCall
from exporters._torch.tensors import as_pairs
from tests.operator_coverage.plan import TOLERANCES

# Many, because a result of few random bits is often the same with another seed.
_SEEDS = range(1, 17)
_UNINITIALISED = re.compile(r"aten::(new_)?empty(_\w+)?")


def chance(sample: SingleCall) -> str:
    """Return ``"random"``, ``"uninitialised"``, or ``""`` for a call whose arguments determine the result.

    A call is random if another seed before every operator that torch tags ``nondeterministic_seeded`` changes the
    result by more than the tolerances. It is uninitialised if other content of every tensor that ``empty``,
    ``empty_like``, ``new_empty`` and the like return changes it. A dropout that drops nothing is neither, nor is an
    ``empty`` that is filled, or a randomised algorithm that always converges to the same result.
    """
    usual = _result(sample, seed=0, content=0)
    if not all(_same(usual, _result(sample, seed, content=0)) for seed in _SEEDS):
        return "random"
    return "" if _same(usual, _result(sample, seed=0, content=1)) else "uninitialised"


def _result(sample: SingleCall, seed: int, content: int) -> Any:
    with _Decided(seed, content):
        return sample(*clone_tensors(sample.tensors))


class _Decided(TorchDispatchMode):
    """A mode that seeds random operators and fills uninitialised tensors."""

    def __init__(self, seed: int, content: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types for it
        self._seed, self._content = seed, content

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_random(func):
            torch.manual_seed(self._seed)
        result = func(*args, **(kwargs or {}))
        if _UNINITIALISED.fullmatch(func.name().partition(".")[0]):
            result.fill_(self._content)
        return result


def _same(one: Any, other: Any) -> bool:
    return all(map(_equal, flatten(one), flatten(other)))


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    one, other = as_pairs(one), as_pairs(other)
    rtol, atol = TOLERANCES.get(one.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError:
        return False
    return True
