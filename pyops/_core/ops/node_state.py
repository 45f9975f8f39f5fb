"""State of nodes: what the function registered with `Op.register_setup` makes, for kernels that take `state`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import DeclarationError
from ..schema.attribute import tensor_key

_MOST_STATES = 16


def make_state(op: Any, attributes: Mapping[str, Any]) -> Any:
    """Make the state of a node with these attributes.

    Parameters
    ----------
    op : Op
        Its module imports this one.
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
        # Without a lock, as a setup function may wait for another thread that uses the op.
        self._made = functools.lru_cache(_MOST_STATES)(lambda wanted: make_state(wanted.op, wanted.attributes))

    def __call__(self, op: Any, attributes: Mapping[str, Any]) -> Any:
        """Return the state for these attributes, made by the first call with them."""
        return self._made(_Wanted(op, attributes))


class _Wanted:
    """A state as the key of a cache."""

    def __init__(self, op: Any, attributes: Mapping[str, Any]) -> None:
        self.op, self.attributes = op, attributes
        keys = (tensor_key(value) if isinstance(value, np.ndarray) else repr(value) for value in attributes.values())
        self._key = op.setup, *zip(attributes, keys, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wanted) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
