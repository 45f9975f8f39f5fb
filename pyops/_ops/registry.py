"""Which ops are declared: domain, name and version to Op."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from . import origin
from .op import AnyOp

V = TypeVar("V")

_lock = threading.Lock()
_ops: dict[tuple[str, str], dict[int, AnyOp]] = {}
# Of this thread: where declarations are collected in place of being entered, and those that are entered where free.
_aside: ContextVar[list[AnyOp] | None] = ContextVar("_aside", default=None)
_added: ContextVar[list[AnyOp] | None] = ContextVar("_added", default=None)

listeners: list[Callable[[AnyOp], None]] = []
"""Called with each op that is entered, after it is."""


class Provider(Protocol):
    """Declares ops of a domain when they are asked for, where there are too many to declare them all."""

    def provide(self, name: str) -> AnyOp | None:
        """The op of this name, which is not declared; None if there is none."""

    def refusal(self, name: str) -> str:
        """Why there is none of this name."""


providers: dict[str, Provider | str] = {"pyops": "pyops.kernels"}
"""By domain, a provider or the name of a module that is one, and is imported when an op of the domain is asked for.

A declaration goes before what its domain's provider has.
"""


def provider(domain: str) -> Provider | None:
    """What provides the ops of a domain that are not declared, if anything does."""
    found = providers.get(domain)
    return cast("Provider", importlib.import_module(found)) if isinstance(found, str) else found


def declare(op: AnyOp) -> AnyOp:
    """Enter an op, in place of the one with its domain, name and version.

    Returns
    -------
    Op
        The op that stands for the declaration from now on. Where an equal signature is declared
        already, that is the older object with its kernel replaced, so that everything that holds
        it (living sessions, exporters) follows the new body.

    Warns
    -----
    RedeclarationWarning
        It is of another function than the one that is declared.
    """
    if (aside := _aside.get()) is not None:
        aside.append(op)
        return op
    added = _added.get()
    with _lock:
        current = _ops.get((op.domain, op.name), {}).get(op.version)
    if current is not None:
        if added is not None and current not in added:
            return op
        # Before it is entered: one that a warning as an error stops is not declared.
        origin.tell_takeover(op.signature.qualified_name, current, op, stacklevel=3)
    with _lock:
        versions = _ops.get((op.domain, op.name), {})
        current = versions.get(op.version)
        if added is not None:
            added.append(op)
        if current is not None and current.signature == op.signature:
            _set_body(current, _body(op))
            return current
        _ops[op.domain, op.name] = {**versions, op.version: op}
    for listener in tuple(listeners):
        listener(op)
    return op


@contextmanager
def _within(variable: ContextVar[Any], value: V) -> Iterator[V]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


@contextmanager
def adding_only() -> Iterator[list[AnyOp]]:
    """Within it, this thread's declarations do not take the place of what was declared before.

    It gives the list of those that were entered. What leaves it by an exception has declared nothing.
    """
    added: list[AnyOp] = []
    with _within(_added, added):
        try:
            yield added
        except BaseException:
            _withdraw(added)
            raise


def _withdraw(ops: Iterable[AnyOp]) -> None:
    with _lock:
        for op in ops:
            versions = {number: one for number, one in _ops.get((op.domain, op.name), {}).items() if one is not op}
            _ops.pop((op.domain, op.name), None)
            if versions:
                _ops[op.domain, op.name] = versions


def apart() -> AbstractContextManager[list[AnyOp]]:
    """Within it, this thread's declarations are not entered but collected."""
    return _within(_aside, [])


class Declarations(NamedTuple):
    """Every declared op with its body, by domain and name, and then by version; and the providers."""

    ops: dict[tuple[str, str], dict[int, tuple[AnyOp, dict[str, Any]]]]
    providers: dict[str, Provider | str]


NOTHING = Declarations({}, dict(providers))


def _body(op: AnyOp) -> dict[str, Any]:
    """What a redeclaration replaces."""
    return {name: value for name, value in vars(op).items() if name != "_revision"} | {"kernels": dict(op.kernels)}


def _set_body(op: AnyOp, body: Mapping[str, Any]) -> None:
    """Give an op the body of another declaration of it, or that which it had."""
    if _body(op) != body:
        vars(op).update(body, kernels=dict(body["kernels"]))
        for name in _body(op).keys() - body.keys():
            delattr(op, name)
        op._revision.value += 1


def declarations() -> Declarations:
    """What is declared, for `restore`."""
    with _lock:
        ops = {key: {version: (op, _body(op)) for version, op in versions.items()} for key, versions in _ops.items()}
        return Declarations(ops, dict(providers))


def restore(declared: Declarations, keep: Callable[[AnyOp], bool]) -> None:
    """Undo every declaration and registration since `declared` was taken.

    Parameters
    ----------
    keep : callable
        Says of an op whose domain, name and version were free then whether it stays.
    """
    restored = []
    with _lock:
        providers.clear()
        providers.update(declared.providers)
        current = {key: dict(versions) for key, versions in _ops.items()}
        _ops.clear()
        for key, bodies in declared.ops.items():
            _ops[key] = {version: op for version, (op, _) in bodies.items()}
            for version, (op, body) in bodies.items():
                if _body(op) != body or current.get(key, {}).get(version) is not op:
                    _set_body(op, body)
                    restored.append(op)
        for key, versions in current.items():
            added = {version: op for version, op in versions.items() if version not in _ops.get(key, {}) and keep(op)}
            if added:
                _ops.setdefault(key, {}).update(added)
    for op in restored:
        for listener in tuple(listeners):
            listener(op)


def versions(domain: str, name: str) -> dict[int, AnyOp]:
    """The declared versions of an operator; empty where there is none."""
    if (domain, name) not in _ops and (source := provider(domain)) and (provided := source.provide(name)):
        declare(provided)
    with _lock:
        return dict(_ops.get((domain, name), {}))


def find(domain: str, name: str, opset: int) -> AnyOp | None:
    """The op that a model importing `opset` of the domain means: the highest version not above it."""
    return choose(versions(domain, name), opset)


def choose(versions: Mapping[int, AnyOp], opset: int) -> AnyOp | None:
    """Of an operator's versions, the highest that is not above `opset`."""
    return max((op for op in versions.values() if op.version <= opset), key=lambda op: op.version, default=None)


def all_versions() -> dict[tuple[str, str], dict[int, AnyOp]]:
    """Every declared op, by domain and name, and then by version."""
    with _lock:
        return {key: dict(versions) for key, versions in _ops.items()}


def latest() -> list[AnyOp]:
    """The highest version of every declared op."""
    with _lock:
        return [max(versions.values(), key=lambda op: op.version) for versions in _ops.values()]


def domains() -> set[str]:
    """The domains in which an op is declared, or provided."""
    with _lock:
        return {domain for domain, _ in _ops} | providers.keys()
