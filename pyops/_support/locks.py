"""Locks that stay acquired after no exception of a signal's handler.

``with`` on a lock of `threading` is such a lock up to Python 3.13. Python 3.14 enters it by the opcode ``CALL``, which
calls handlers after the call and before the block begins, so that the exception of one leaves the lock acquired for
ever (https://github.com/python/cpython/issues/148874, fixed in 3.15). Nor is there a version where no handler is called
between ``lock.acquire(blocking=False)`` and a ``try`` after it.

Here ``__enter__`` is a Python function, after whose return no handlers are called. It acquires the lock in C code that
it calls as a property, because ``LOAD_ATTR`` calls no handlers either. ``__exit__`` is C code: the first instruction of
a Python function calls handlers. Tracers, and debuggers and compilers that replace Python's evaluation of frames, make
more instants at which handlers are called.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

if sys.version_info[:2] == (3, 14):

    class RLock(type(threading.RLock())):
        """A lock that a thread may acquire again, for ``with``."""

        _acquired = property(operator.methodcaller("acquire"))

        def __enter__(self) -> bool:
            return self._acquired

else:
    RLock = threading.RLock


class TakenError(Exception):
    """Raised by a `TryLock` that is acquired."""


class TryLock:
    """A lock for ``with`` that is acquired at once or not at all, even by the thread that has it.

    Parameters
    ----------
    error : callable
        Returns the exception to raise in place of the block if the lock is acquired.
    """

    def __init__(self, error: Callable[[], Exception] = TakenError) -> None:
        lock = threading.Lock()
        self._error = error
        self._acquire, self._exit = functools.partial(lock.acquire, blocking=False), lock.__exit__

    _is_acquired = property(operator.methodcaller("_acquire"))
    __exit__: Any = property(operator.attrgetter("_exit"))

    def __enter__(self) -> None:
        if not self._is_acquired:
            raise self._error()
