"""The kernel library in an export, and the table of every translation, registered or from the library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pyops.errors import PyopsError

from .._lowering.translations import or_own_translation, registered, registered_source
from .._torch.operators import as_exported, find_overload, is_native, overloads
from .._torch_private.exporter import own_translation
from .._torch_private.operators import OpOverload, qualified_name, schema_arguments
from .._torch_private.trees import flatten
from ..errors import NoTranslationError
from . import (  # noqa: F401
    complex_numbers,
    complex_products,
    complex_tensors,
    creation,
    elementwise,
    fft,
    indexing,
    layers,
    linear_algebra,
    losses,
    statistics,
)
from .table import Row, complex_rows, enter_awaited, rows
from .values import Pairs


def translations() -> Mapping[OpOverload, Callable[..., Any]]:
    """Return the library's translations of operators that torch's exporter does not support or translates wrongly."""
    enter_awaited()
    return _translations(len(rows))


@functools.lru_cache(maxsize=1)
def _translations(_: int) -> Mapping[OpOverload, Callable[..., Any]]:
    """Return the translations; the argument, the number of rows, makes the cache notice new rows."""
    found = {find_overload(name): row for name, row in rows.items()}
    return {
        target: or_own_translation(target, functools.partial(_translate, target, row))
        for target, row in found.items()
        if target is not None and (row.replaces or not is_native(target))
    }


def translation_table(*, kernels: bool = True) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return every translation, for users who call ``torch.onnx.export`` themselves.

    Parameters
    ----------
    kernels : bool
        Include the translations to `pyops.kernels`, for operators that torch's exporter does not support and for
        calls that it translates wrongly.

    Returns
    -------
    dict
        Callables by OpOverload, for ``torch.onnx.export(custom_translation_table=...)``.

    Examples
    --------
    >>> import exporters, torch
    >>> @exporters.register_translation("aten::gelu")
    ... def gelu(x, *, approximate="none"):
    ...     return exporters.opset("com.microsoft").Gelu(x)
    >>> table = exporters.translation_table()
    >>> torch.ops.aten.gelu.default in table
    True
    >>> program = torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=table)  # doctest: +SKIP
    """
    own = {target: or_own_translation(target, translation) for target, translation in registered().items()}
    kernel_translations = translations() if kernels else {}
    return dict([*kernel_translations.items(), *own.items()])


def registered_by(torch_op: str) -> Literal["exporters", "torch", "kernels"] | None:
    """Return what translates a torch operator to ONNX.

    An operator without a translation can still be exported if torch decomposes it into others.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"``, or ``"ns::name"`` for any of its overloads.

    Returns
    -------
    str or None
        ``"exporters"`` for a registration by `custom_op` or `register_translation`; ``"torch"`` for torch's own
        translation in the exporter built on ``torch.export``, even if `pyops.kernels` handles calls that it
        translates wrongly; ``"kernels"`` for an op of `pyops.kernels` where torch has no translation; None if there is
        none.

    Raises
    ------
    ExportError
        torch has no such operator.

    Examples
    --------
    >>> import exporters
    >>> exporters.registered_by("aten::add.Tensor")
    'torch'
    >>> exporters.registered_by("aten::lgamma")
    'kernels'
    """
    targets = overloads(torch_op)
    if any(registered_source(target) is not None for target in targets):
        return "exporters"
    if any(own_translation(target) is not None for target in targets):
        return "torch"
    return "kernels" if any(find(qualified_name(target)) for target in targets) else None


def find(operator: str, has_complex: bool = False) -> Row | None:
    """Return the row of an operator, ``"ns::name.overload"``, for real calls or for those with complex tensors."""
    return (complex_rows if has_complex else rows).get(operator)


def emit(target: OpOverload, arguments: Mapping[str, Any]) -> Any:
    """Emit the nodes for a call, or return NotImplemented if the library does not support the operator.

    Parameters
    ----------
    arguments : mapping
        By torch's names: graph values for tensors, `Pairs` for complex tensors, and constants.

    Raises
    ------
    NoTranslationError
        The library supports the operator but not this call.
    """
    row = find(qualified_name(target), any(isinstance(leaf, Pairs) for leaf in flatten(list(arguments.values()))))
    if row is None:
        return NotImplemented
    declared = schema_arguments(target)
    args, kwargs = as_exported(declared, [arguments.get(item.name, item.default) for item in declared])
    return _translate(target, row, *args, **kwargs)


def _translate(target: OpOverload, row: Row, /, *args: Any, **kwargs: Any) -> Any:
    try:
        return row.registration.translation(*args, **kwargs)
    except PyopsError as error:
        # With this error type, a fallback may still handle the call.
        name = qualified_name(target)
        raise NoTranslationError(
            f"pyops.kernels does not support this call of {name}: {error}; "
            "exporters.export(..., fallback=True) lets torch compute it"
        ) from error
