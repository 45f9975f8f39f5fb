"""What may translate a call, and in which order: registrations, rows of the kernel library, torch's own."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from pyops import Op
from pyops.errors import PyopsError

from .._lowering.op_translation import check_returned
from .._lowering.translations import no_translation_error, registered, registration_of
from .._report import By
from .._torch.private.onnx_exporter import own_translation
from .._torch.private.operators import (
    OpOverload,
    OpOverloadPacket,
    as_exported,
    can_decompose,
    find_overload,
    overloads,
    packet,
    qualified_name,
    schema_arguments,
)
from .._torch.private.torch_export import graph_modules
from .._torch.private.trees import flatten
from ..errors import NoTranslationError
from .operands import Pairs
from .row_table import Row, complex_rows, decompositions, pending, rows

for _module in pkgutil.iter_modules([str(Path(__file__).parent)]):
    importlib.import_module(f"{__package__}.{_module.name}")  # registers its rows


@dataclass(frozen=True)
class Answer:
    """What may translate a call: `emit` gets its arguments, and returns NotImplemented if it does not translate it."""

    by: By
    reason: str
    emit: Callable[..., Any]


def answers(
    target: OpOverload, row: Row | None, own: Callable[..., Any] | None, has_complex: bool = False
) -> Iterator[Answer]:
    """Yield what may translate calls of an operator, in the order in which it is to be tried.

    Parameters
    ----------
    row : Row, optional
        The row of the library.
    own : callable, optional
        torch's own translation.
    has_complex : bool
        Whether complex tensors are among the arguments, which the user's registrations do not take.
    """
    registration = None if has_complex else registration_of(target)
    if registration is not None:
        emit = functools.partial(_checked, target, registration.translation)
        yield Answer("registration", source_name(registration.source), emit)
    source = row.registration.source if row else None
    reason = source_name(source) if isinstance(source, Op) else "ops of pyops.kernels"
    kernel = [Answer("kernel", reason, functools.partial(_translate, target, row))] if row else []
    if row is not None and row.replaces:
        yield from kernel
    if own is not None:
        yield Answer("torch", "", own)
    if row is not None and not row.replaces:
        yield from kernel


def source_name(source: Any) -> str:
    """Return how a report names what translates an operator."""
    if isinstance(source, Op):
        return f"the op {source.signature.qualified_name}"
    return f"the function {getattr(source, '__name__', type(source).__name__)}"


def targets() -> frozenset[OpOverload]:
    """Return the operators that the library translates and torch's exporter does not, or translates wrongly."""
    for torch_op in [name for name in pending if packet(name.partition(".")[0])]:
        pending.pop(torch_op)()
    return _targets(len(rows))


@functools.lru_cache(maxsize=1)
def _targets(_: int) -> frozenset[OpOverload]:
    """Return the operators; the argument, the number of rows, makes the cache notice new rows."""
    found = {find_overload(name): row for name, row in rows.items()}
    return frozenset(
        target for target, row in found.items() if target is not None and (row.replaces or not _is_native(target))
    )


def decomposed(captured: torch.export.ExportedProgram) -> set[OpOverloadPacket | None]:
    """Return the operators that torch is to decompose in a program, although its exporter translates them."""
    active = {packet(name): item.only for name, item in decompositions.items() if item.replaces}
    nodes = (node for module in graph_modules(captured).values() for node in module.graph.nodes)
    calls = {node: getattr(node.target, "overloadpacket", None) for node in nodes}
    dtypes = {node.meta["val"].dtype for node, operator in calls.items() if active.get(operator) is not None}
    return {operator for operator, only in active.items() if only is None or only in dtypes}


def _is_native(target: OpOverload) -> bool:
    """Return whether torch's exporter translates or decomposes an operator."""
    return can_decompose(target) or target in _decompositions() or own_translation(target) is not None


@functools.cache
def _decompositions() -> frozenset[object]:
    # Cached because reading the table searches all of torch, for operators that can_decompose knows anyway.
    return frozenset(torch.export.default_decompositions())


def translation_table(*, kernels: bool = True) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return every translation, for users who call ``torch.onnx.export`` themselves.

    Each tries what `export` tries for a call, in the same order. What `export` does for a whole program is missing:
    complex tensors, strided views, calls that fall back, and decomposing what torch's exporter translates wrongly as a
    whole, such as ``aten::lerp``.

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
    found = {*registered(), *(targets() if kernels else ())}
    return {target: functools.partial(_first, target, kernels) for target in found}


def _first(target: OpOverload, kernels: bool, /, *args: Any, **kwargs: Any) -> Any:
    """Return what the first translation of a call emits that takes it."""
    row = find(qualified_name(target)) if kernels else None
    for answer in answers(target, row, own_translation(target)):
        result = answer.emit(*args, **kwargs)
        if result is not NotImplemented:
            return result
    raise no_translation_error(target)


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
    found = overloads(torch_op)
    if any(registration_of(target) is not None for target in found):
        return "exporters"
    if any(own_translation(target) is not None for target in found):
        return "torch"
    return "kernels" if any(find(qualified_name(target)) for target in found) else None


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


def _checked(target: OpOverload, translation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    result = translation(*args, **kwargs)
    if result is not NotImplemented:
        check_returned(target, result)
    return result
