"""State of nodes: what the function registered with `Op.register_setup` makes, for kernels that take `state`."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from .._schema.signature import Signature
from ..errors import DeclarationError

_MOST_STATES = 16
_NO_STATE = object()


class Stateful(Protocol):
    """What this module needs of an Op."""

    signature: Signature
    setup: Callable[..., Any] | None
    __name__: str


def make_state(op: Stateful, attributes: Mapping[str, Any]) -> Any:
    """Make the state of a node with these attributes.

    Parameters
    ----------
    attributes : mapping
        As returned by `Signature.convert_attributes`.

    Raises
    ------
    DeclarationError
        The kernel takes `state`, but no setup function is registered.
    BaseException
        Any exception of that function.
    """
    if op.setup is None:
        raise DeclarationError(
            f"{op.signature.qualified_name} takes `state`, but has no setup function; register one with "
            f"@{op.__name__}.register_setup, or rename `state` if it is meant as an attribute"
        )
    lists = {name: list(value) for name, value in attributes.items() if isinstance(value, list)}
    return op.setup(**{**attributes, **lists})


class States:
    """The states that an op has needed, one for each set of attribute values, made with `make_state`.

    The least recently used ones are dropped. A setup function that is registered later makes new ones.
    """

    def __init__(self) -> None:
        # By key, not one for all: a setup function may wait for another thread that uses the op.
        self._locks: dict[Any, threading.RLock] = {}
        self._states: OrderedDict[Any, Any] = OrderedDict()

    def __call__(self, op: Stateful, attributes: Mapping[str, Any]) -> Any:
        """Return the state for these attributes, made by the first call with them."""
        key = op.setup, *((name, _key(value)) for name, value in attributes.items())
        with self._locks.setdefault(key, threading.RLock()):
            state = self._states.pop(key, _NO_STATE)
            if state is _NO_STATE:
                state = make_state(op, attributes)
            self._states[key] = state
            if len(self._states) > _MOST_STATES:
                dropped, _ = self._states.popitem(last=False)
                self._locks.pop(dropped, None)
            return state

    def kernel(self, op: Stateful, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a kernel that calls `function` with the state for the attributes of each call."""
        if not op.signature.takes_state:
            return function

        @functools.wraps(function)
        def call(*inputs: Any, **keywords: Any) -> Any:
            attributes = {name: value for name, value in keywords.items() if op.signature.attribute(name)}
            return function(*inputs, **keywords, state=self(op, attributes))

        return call


def _key(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes() if value.dtype != object else repr(value.tolist())
    return repr(value)


def with_state(
    op: Stateful,
    function: Callable[..., Any],
    attributes: Mapping[str, Any],
    make: Callable[[Stateful, Mapping[str, Any]], Any] = make_state,
) -> Callable[..., Any]:
    """Return a kernel bound to the state for these attributes, or `function` itself if the op has none."""
    return functools.partial(function, state=make(op, attributes)) if op.signature.takes_state else function
