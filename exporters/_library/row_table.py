"""The table of the torch operators that the library translates, or lets torch decompose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from pyops import Op
from pyops._support.tested_releases import release
from pyops.kernels import OPS

from .._lowering.translations import Registration, functional_overloads, registrations
from .._torch.private.operators import OpOverload, qualified_name, schema_arguments
from ..errors import ExportError, NoOperatorError
from .operands import plain

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Correction:
    """What may replace torch's own translation of an operator.

    Attributes
    ----------
    replaces : bool
        Whether it replaces that of the installed torch, because that gives wrong results.
    last_wrong : str, optional
        The last release of torch whose own translation is wrong; None if that of every tested release is.
    """

    replaces: bool
    last_wrong: str | None


@dataclass(frozen=True)
class Row(Correction):
    """How the library translates an operator."""

    registration: Registration


@dataclass(frozen=True)
class Decomposition(Correction):
    """A correction by torch's decomposition, for every type or in programs in which the operator computes `only`."""

    only: torch.dtype | None


rows: dict[str, Row] = {}
"""The table, by the overload's name."""

complex_rows: dict[str, Row] = {}
"""The rows for calls with complex tensors."""

decompositions: dict[str, Decomposition] = {}
"""What torch decomposes although its exporter translates it, by the operator's name, ``"ns::name"``."""

pending: dict[str, Callable[[], None]] = {}
"""What adds rows, by the name of an operator of a package that was not imported yet when `lower` was called."""

absent: list[str] = []
"""Names of operators with a row that the installed torch does not have, because a release dropped them."""


def lower(torch_op: str, *, takes_complex: bool = False, replaces: bool | str = False) -> Callable[[F], F]:
    """Register an op of the library, or a function that emits nodes of it.

    A function gets the arguments of a call by torch's names, with torch's defaults for those that the call leaves out.
    If it returns NotImplemented, torch's own translation gets the call. Complex results are pairs along a last
    dimension of 2. The counterpart of an op for complex numbers, such as ComplexInvEx for InvEx, is registered with it.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"``, or ``"ns::name"`` for every overload whose required arguments the function takes.
    takes_complex : bool
        Whether complex tensors, each as `Pairs`, are accepted among the arguments.
    replaces : bool or str
        Whether torch's own translation is wrong: in every tested release of torch, or up to a release, ``"2.14"``.
    """

    def register(function: F) -> F:
        def enter() -> None:
            found = registrations(torch_op, function) if isinstance(function, Op) else _by_name(torch_op, function)
            of_complex = found if takes_complex else {}
            if isinstance(function, Op) and f"Complex{function.name}" in OPS:
                of_complex = _on_pairs(registrations(torch_op, OPS[f"Complex{function.name}"]))
            rows.update({name: Row(*_wrong(replaces), item) for name, item in found.items()})
            complex_rows.update({name: Row(*_wrong(replaces), item) for name, item in of_complex.items()})

        try:
            enter()
        except NoOperatorError:
            if torch_op.startswith(("aten::", "prims::")):
                absent.append(torch_op)
            else:
                pending[torch_op] = enter
        return function

    return register


def _wrong(replaces: bool | str) -> tuple[bool, str | None]:
    """Return whether the installed torch's own translation is wrong, and the last release whose is."""
    if isinstance(replaces, bool):
        return replaces, None
    return release(torch.__version__) <= release(replaces), replaces


def decompose(torch_op: str, *, only: torch.dtype | None = None, replaces: bool | str = True) -> None:
    """Let torch decompose ``"ns::name"``, if given `only` where it computes that type; for `replaces`, see `lower`."""
    decompositions[torch_op] = Decomposition(*_wrong(replaces), only)


def lower_complex(torch_op: str, *, replaces: bool | str = False) -> Callable[[F], F]:
    """Register a function that emits nodes for calls with complex tensors, each of which it gets as `Pairs`.

    Otherwise as `lower`. Real calls are left to the operator's row or to torch's own translation.
    """

    def register(function: F) -> F:
        try:
            found = _by_name(torch_op, function)
        except NoOperatorError:
            absent.append(torch_op)
        else:
            complex_rows.update({name: Row(*_wrong(replaces), item) for name, item in found.items()})
        return function

    return register


def _on_pairs(found: dict[str, Registration]) -> dict[str, Registration]:
    """Return registrations of ops of complex numbers that take `Pairs`."""

    def of(item: Registration) -> Registration:
        def translation(*args: Any, **kwargs: Any) -> Any:
            return item.translation(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

        return Registration(translation, item.source)

    return {name: of(item) for name, item in found.items()}


def _by_name(torch_op: str, function: Callable[..., Any]) -> dict[str, Registration]:
    found = {}
    for target in functional_overloads(torch_op):
        required = [item.name for item in schema_arguments(target) if not item.has_default]
        if _takes(function, required):
            found[qualified_name(target)] = Registration(_translation(target, function), function)
    return found


def _translation(target: OpOverload, function: Callable[..., Any]) -> Callable[..., Any]:
    declared, parameters = schema_arguments(target), inspect.signature(function).parameters
    # torch leaves out arguments that equal its defaults, which the function need not have.
    defaults = {item.name: item.default for item in declared if item.has_default and item.name in parameters}

    def translation(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip([item.name for item in declared], args, strict=False)), **kwargs}
        if not _takes(function, given):
            raise ExportError(f"it takes {inspect.signature(function)}, but the model passes {', '.join(given)}")
        return function(**given)

    return translation


def _takes(function: Callable[..., Any], names: Iterable[str]) -> bool:
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except TypeError:
        return False
    return True
