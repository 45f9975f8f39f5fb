"""The registry of declared ops, by domain, name and version."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from ..._support.locks import RLock
from ...errors import ModelError
from ..satellites import providers
from . import source_location
from .op import AnyOp

_lock = RLock()
# The dictionaries of versions are replaced, never changed.
_ops: dict[tuple[str, str], dict[int, AnyOp]] = {}
# The list of `collecting`, in the thread that collects.
_collected: ContextVar[list[AnyOp] | None] = ContextVar("_collected", default=None)

op_listeners: list[Callable[[AnyOp], None]] = []
"""Functions called with each op after it has been registered."""


def declare_op(op: AnyOp) -> AnyOp:
    """Register an op, replacing one of the same domain, name and version.

    Returns
    -------
    Op
        The registered op. If the signature is equal to that of the replaced op, this is the older object with the new
        kernels, so that existing sessions and exporters that refer to it use them.

    Warns
    -----
    RedeclarationWarning
        The op replaces one of another module or another qualified name.
    """
    if (collected := _collected.get()) is not None:
        collected.append(op)
        return op
    return _register(op)


def _register(op: AnyOp) -> AnyOp:
    with _lock:
        current = _ops.get((op.domain, op.name), {}).get(op.version)
    if current is not None:
        # Before the op is registered, so that a warning turned into an error prevents that.
        source_location.warn_of_takeover(op.signature.qualified_name, current, op)
    with _lock:
        versions = _ops.get((op.domain, op.name), {})
        current = versions.get(op.version)
        if current is not None and current.signature == op.signature:
            _set_body(current, body_of(op))
            return current
        _ops[op.domain, op.name] = {**versions, op.version: op}
    for listener in tuple(op_listeners):
        listener(op)
    return op


@contextlib.contextmanager
def collecting() -> Iterator[list[AnyOp]]:
    """Collect this thread's declarations in the list that the context manager yields, without registering them."""
    ops: list[AnyOp] = []
    token = _collected.set(ops)
    try:
        yield ops
    finally:
        _collected.reset(token)


def declare_new(ops: Iterable[AnyOp]) -> None:
    """Register the ops whose domain, name and version are not declared yet."""
    declared = all_op_versions()
    for op in ops:
        if op.version not in declared.get((op.domain, op.name), {}):
            declare_op(op)


def body_of(op: AnyOp) -> dict[str, Any]:
    """Return the attributes of an op that a redeclaration replaces."""
    body = {name: value for name, value in vars(op).items() if name != "_carrier"}
    return body | {"kernels": dict(op.kernels)}


def _set_body(op: AnyOp, body: Mapping[str, Any]) -> None:
    """Replace the attributes of an op by those that `body_of` returned, and count that as a revision."""
    if body_of(op) != body:
        vars(op).update(body, kernels=dict(body["kernels"]))
        for name in body_of(op).keys() - body.keys():
            delattr(op, name)
        op._revise()


def _restore(
    bodies_of: Mapping[tuple[str, str], dict[int, tuple[AnyOp, dict[str, Any]]]], modules: Container[str]
) -> None:
    """Undo all declarations except those of modules imported since; `bodies_of` and `modules` are the state before."""
    restored = []
    with _lock:
        current = dict(_ops)
        _ops.clear()
        for key, bodies in bodies_of.items():
            _ops[key] = {version: op for version, (op, _) in bodies.items()}
            for version, (op, body) in bodies.items():
                if body_of(op) != body or current.get(key, {}).get(version) is not op:
                    _set_body(op, body)
                    restored.append(op)
        for key, versions in current.items():
            kept = {
                version: op
                for version, op in versions.items()
                if op.__module__ in sys.modules and op.__module__ not in modules
            }
            if kept:
                _ops[key] = kept | _ops.get(key, {})
    for op in restored:
        for listener in tuple(op_listeners):
            listener(op)


@contextlib.contextmanager
def isolated_declarations() -> Iterator[None]:
    """Undo, at the end of the block, all declarations and registrations made in it.

    Ops of modules that are first imported in the block stay declared, because importing the modules again
    would not declare them.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from numpy.typing import NDArray
    >>> from pyops.testing import isolated_declarations
    >>> with isolated_declarations():
    ...     @pyops.onnx_op("passing::Halve")
    ...     def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...         return x / np.float32(2)
    >>> [op for op in pyops.list_ops() if op.domain == "passing"]
    []
    """
    modules, known = sys.modules.copy(), dict(providers)
    with _lock:
        before = {
            key: {version: (op, body_of(op)) for version, op in versions.items()} for key, versions in _ops.items()
        }
    try:
        yield
    finally:
        providers.clear()
        providers.update(known)
        _restore(before, modules)


def op_versions(domain: str, name: str) -> dict[int, AnyOp]:
    """Return the ops declared for an operator, by version; empty if there are none.

    Asks the domain's provider, and registers the op that it returns.
    """
    if (domain, name) not in _ops and (provider := providers.get(domain)):
        with contextlib.suppress(ModelError):
            _register(provider().provide(name))
    return dict(_ops.get((domain, name), {}))


def find_op(domain: str, name: str, opset: int) -> AnyOp | None:
    """Return the op for a model that imports version `opset` of the domain, or None; see `choose`."""
    return choose(op_versions(domain, name), opset)


def choose(versions: Mapping[int, AnyOp], opset: int) -> AnyOp | None:
    """Return the op of the highest version that is not above `opset`, or None if all are above."""
    return max((op for op in versions.values() if op.version <= opset), key=lambda op: op.version, default=None)


def all_op_versions() -> dict[tuple[str, str], dict[int, AnyOp]]:
    """Return every registered op: (domain, name) to version to op."""
    with _lock:
        return dict(_ops)


def latest() -> list[AnyOp]:
    """Return the highest version of every registered op."""
    with _lock:
        return [max(versions.values(), key=lambda op: op.version) for versions in _ops.values()]


def op_domains() -> set[str]:
    """Return the domains of registered ops and of providers."""
    with _lock:
        return {domain for domain, _ in _ops} | providers.keys()
