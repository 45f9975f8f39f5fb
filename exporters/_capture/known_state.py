"""Values of parameters and buffers that a model's code reads while ``torch.export`` captures it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .._torch_private.operators import OpOverload, TorchDispatchMode
from .._torch_private.tracing import known_values
from .._torch_private.trees import tensor_leaves
from .calls import calling_place
from .decisions import CaptureDecision, Kind, decision, spell_value
from .questions import is_question


@contextmanager
def known_state(model: torch.nn.Module) -> Iterator[list[CaptureDecision]]:
    """Context manager: let the captured code read values that follow from the model's state only.

    Yields
    ------
    list of CaptureDecision
        The values that the code read.
    """
    state = [*model.parameters(), *model.buffers()]
    with known_values(state) as copies, _Known(copies) as known:
        yield known.decisions


class _Known(TorchDispatchMode):
    """A mode that follows what torch computes from the copies of the state, and records what code reads of it."""

    supports_higher_order_operators = True

    def __init__(self, copies: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no types for it
        self._copies = copies
        self._results: dict[int, torch.Tensor] = {}  # by id; kept here so that no other tensor gets the id
        self.decisions: list[CaptureDecision] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = tensor_leaves((args, kwargs))
        if any(id(item) in self._results or any(item is copy for copy in self._copies) for item in given):
            if is_question(func):
                kind: Kind = "branch" if isinstance(result, bool) else "number"
                self.decisions.append(decision(kind, spell_value(result), calling_place(), "state"))
            else:
                self._results |= {id(item): item for item in tensor_leaves(result)}
        return result
