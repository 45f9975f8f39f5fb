"""The kernel library in an export: what it carries instead of torch's exporter, and what it can carry besides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from pyops.errors import PyopsError

from .._torch_private.operators import OpOverload, qualified_name, schema_arguments
from ..torch_ops import find_overload, is_native, written
from ..translating.translations import NoTranslationError, or_torchs_own
from . import (  # noqa: F401 # each enters its rows into the table
    arithmetic,
    attention,
    convolution,
    distances,
    elementwise,
    fft,
    indexing,
    linear_algebra,
    losses,
    normalization,
    padding,
    pooling,
    sampling,
    statistics,
    views,
)
from .table import Pairs, Row, rows


@functools.cache
def translations() -> Mapping[OpOverload, Callable[..., Any]]:
    """How the operators are translated that torch's exporter has no way to translate, or only wrong ones."""
    found = {find_overload(name): row for name, row in rows.items()}
    return {
        target: or_torchs_own(target, functools.partial(_carried, target, row))
        for target, row in found.items()
        if target is not None and (row.replaces or not is_native(target))
    }


def find(operator: str) -> Row | None:
    """The row of an operator, ``"ns::name.overload"``."""
    return rows.get(operator)


def emit(target: OpOverload, arguments: Mapping[str, Any]) -> Any:
    """Emit the nodes that carry a call; NotImplemented where the library has none, or an error that says why not.

    The arguments go by torch's names: graph values for tensors, `Pairs` of them for complex ones, and constants.
    """
    row = find(qualified_name(target))
    if row is None or (_has_pairs(list(arguments.values())) and not row.takes_complex):
        return NotImplemented
    declared = schema_arguments(target)
    args, kwargs = written(declared, [arguments.get(item.name, item.default) for item in declared])
    return _carried(target, row, *args, **kwargs)


def _has_pairs(value: Any) -> bool:
    return any(map(_has_pairs, value)) if isinstance(value, (list, tuple)) else isinstance(value, Pairs)


def _carried(target: OpOverload, row: Row, *args: Any, **kwargs: Any) -> Any:
    try:
        return row.registration.translation(*args, **kwargs)
    except PyopsError as error:
        # Somebody else may carry the call, so that this is not the end.
        name = qualified_name(target)
        raise NoTranslationError(
            f"pyops.kernels does not carry this call of {name}: {error}; "
            "exporters.export(..., fallback=True) leaves it to torch"
        ) from error
