"""Sessions that are created on first use: unpickled ones, and those that a forked process inherited.

ONNX Runtime's threads do not exist in a forked process, where a run, and the end of the process, would wait for them
forever. There, a session with threads is made again, and the inherited one is never destroyed.
"""

from __future__ import annotations

import ctypes
import os
import uuid
import weakref
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import onnxruntime

from ..._support.locks import RLock
from . import session_pickling
from .session_arguments import Origin, check_unchanged, has_threads, session_options, worker_threads
from .session_pickling import Recipe

_MOST_SHARED = 4
_PENDING = "_pending"
# Beginnings of names that displays and protocols look up on any object.
_ASKED = ("__", "_ipython", "_repr_")

# Of pending sessions, by key. There is no lock for all of them: creating a session may run the user's code, which may
# wait for another thread that uses another session.
_locks: dict[Any, RLock] = {}
_shared: OrderedDict[str, LazySession] = OrderedDict()
# Only C code runs when a session is freed: what a signal's handler raises in a finalizer is lost.
_living: set[weakref.ref[LazySession]] = set()
_kept: list[dict[str, Any]] = []


class LazySession:
    """The part of `pyops.InferenceSession` that pickles and copies sessions, and defers their creation.

    A session that has not been made has one attribute, which makes it. It gets the others when one is looked up.
    """

    _origin: Origin

    @classmethod
    def _made_from(cls, origin: Origin) -> LazySession:
        """Return a new session."""
        raise NotImplementedError

    def _watch(self, origin: Origin) -> None:
        """Record what the session was made from."""
        self._origin = origin
        _living.add(weakref.ref(self, _living.discard))

    @property
    def _is_pending(self) -> bool:
        return _PENDING in vars(self)

    def _recipe(self) -> Recipe:
        """Return what is pickled for the session."""
        pending = vars(self).get(_PENDING)
        return pending.recipe if isinstance(pending, Unpickled) else session_pickling.recipe_of(self._origin, self)

    @classmethod
    def _unpickled(cls, recipe: Recipe) -> Self:
        """Return a session that is created by a recipe on first use."""
        session = cls.__new__(cls)
        vars(session)[_PENDING] = Unpickled(recipe)
        return session

    def __copy__(self) -> Any:
        session: LazySession = type(self).__new__(type(self))
        if self._is_pending:
            vars(session).update(vars(self))
        else:
            session._share(self)
        return session

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def _share(self, made: LazySession) -> None:
        """Use what another session consists of, and keep that session alive."""
        made._materialize()  # a fork may have inherited it
        vars(self).update(vars(made), _shared_with=made)
        _living.add(weakref.ref(self, _living.discard))

    def _materialize(self) -> None:
        pending = vars(self).get(_PENDING)
        if pending is None:
            return
        with _locks.setdefault(pending.key, RLock()):
            if self._is_pending:  # else another thread has filled it
                self._share(pending.made(type(self)))
                del vars(self)[_PENDING]
        _locks.pop(pending.key, None)

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if _PENDING not in vars(self) or name.startswith(_ASKED):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            self._materialize()
            return getattr(self, name)


class Unpickled:
    """Creates a session that has been unpickled."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = session_pickling.Whole(recipe)
        self.key: Any = recipe.get("key")

    def made(self, cls: type[LazySession]) -> LazySession:
        """Return the session, shared by all that were unpickled from equal pickles."""
        # Every time, because the code of an op may have changed since the session was shared.
        origin = session_pickling.origin(self.recipe)
        made = _shared.pop(self.key, None)
        if made is None or set(made._origin.ops) != set(origin.ops):  # an op was declared again
            travelled = self.recipe["process"] != session_pickling.PROCESS[0]
            made = _made_in_worker(cls, origin) if travelled else cls._made_from(origin)
        made._origin.digest = origin.digest
        _shared[self.key] = made
        if len(_shared) > _MOST_SHARED:
            _shared.popitem(last=False)
        return made


class Inherited:
    """Recreates, in a forked child, a session whose threads did not survive the fork."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._session: LazySession | None = None
        self.key: Any = id(self)

    def made(self, cls: type[LazySession]) -> LazySession:
        """Return the session, shared by the copies of the inherited one.

        Raises
        ------
        FileNotFoundError, ModelError
            The model's file is gone, or has changed since the inherited session was made.
        """
        if self._session is None:
            check_unchanged(self._origin)
            self._session = _made_in_worker(cls, self._origin)
        return self._session


def _made_in_worker(cls: type[LazySession], origin: Origin) -> LazySession:
    options = session_options(origin.options)
    chosen = 0 if options is None else options.intra_op_num_threads
    threads = worker_threads(origin.threads, chosen)
    if options is None and threads:
        options = onnxruntime.SessionOptions()
    try:
        if options is not None:
            options.intra_op_num_threads = threads
        made = cls._made_from(replace(origin, options=options))
    finally:
        if options is not None:
            options.intra_op_num_threads = chosen
    made._origin = replace(made._origin, options=origin.options)
    return made


def _after_fork() -> None:
    _locks.clear()  # another thread of the parent process may have held one
    session_pickling.PROCESS[0] = uuid.uuid4().hex
    _end_without_destructors()
    again: dict[int, Inherited] = {}
    for reference in list(_living):
        session = reference()
        if session is None or "_sess" not in (attributes := vars(session)):
            continue
        # Destroying it, even when the interpreter ends, would wait for threads that do not exist.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(attributes["_sess"]))
        _kept.append(dict(attributes))
        if has_threads(attributes["_sess_options"]):
            pending = again.setdefault(id(session._origin), Inherited(session._origin))
            attributes.clear()
            attributes[_PENDING] = pending


def _end_without_destructors() -> None:
    """Make this forked process exit without running the destructors that it inherited.

    Those of ONNX Runtime wait for a thread that its import started in the parent process, and end with an error.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # glibc's, which calls the last function first, with the exit status
        library.on_exit(library._exit, None)
        library.on_exit(library.fcloseall, None)  # writes what C code has buffered


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
