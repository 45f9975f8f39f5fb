"""Exceptions that pass through ONNX Runtime, whose statuses carry only text.

A kernel's exception is stored here under an id that goes into the status message; the session takes it by that id and
raises it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import traceback
from types import TracebackType

# Anchored to ONNX Runtime's own prefixes, since the text of a kernel's exception may contain other marks.
_MARK = re.compile(r"(?:Status Message|during initialization): \[pyops exception (\d+)\]")
# Plain onnxruntime sessions never take their exceptions; beyond this many, the oldest are dropped.
_MOST_STORED = 64
# The innermost frames identify the failure, even after unbounded recursion in a kernel.
_MOST_FRAMES = 30

_lock = threading.Lock()
_ids = itertools.count(1)
stored: dict[int, BaseException] = {}
_last: BaseException | None = None


def remember(error: BaseException) -> None:
    """Record an exception for `last_exception`, with its traceback cut to begin in the kernel."""
    with contextlib.suppress(Exception):  # an exception may reject attribute assignment
        error.__traceback__ = _from_kernel(error.__traceback__)
    global _last
    _last = error


def store(error: BaseException) -> str:
    """Store an exception; return the status message for it, with its id and traceback."""
    remember(error)
    number = next(_ids)
    with _lock:
        stored[number] = error
        while len(stored) > _MOST_STORED:
            del stored[min(stored)]
    # Unlike str(), these functions tolerate an exception whose __str__ raises.
    headline = traceback.format_exception_only(error)[0].strip()
    return f"{_mark(number)} {headline}\n{''.join(traceback.format_exception(error, limit=-_MOST_FRAMES))}"


def reserve() -> tuple[int, str]:
    """Return an unused id and the status message for it, for an exception raised later."""
    number = next(_ids)
    return number, f"{_mark(number)} an exception whose text could not be put together"


def _mark(number: int) -> str:
    return f"[pyops exception {number}]"


def _from_kernel(step: TracebackType | None) -> TracebackType | None:
    """Return the traceback without pyops' own leading frames, which do not help the kernel's author."""
    first = step
    while step and step.tb_frame.f_globals.get("__name__", "").startswith("pyops."):
        step = step.tb_next
    return step or first


def take(message: str) -> BaseException | None:
    """Remove and return the exception that an ONNX Runtime error message refers to, or None.

    Callers delete their variable after raising: the exception's traceback refers to the frame, and the frame's variable
    to the exception.
    """
    match = _MARK.search(message)
    with _lock:
        return stored.pop(int(match[1]), None) if match else None


def last_exception() -> BaseException | None:
    """Return the exception that a kernel raised last, in any session and thread; None before the first.

    In sessions other than `pyops.InferenceSession`, ONNX Runtime's own error contains only the text.

    Examples
    --------
    >>> import numpy as np, onnx, onnxruntime, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("failures::Refuse")
    ... def refuse(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     raise ValueError("not today")
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "failures": 1]>
    ... main (float[n] x) => (float[n] y) { y = failures.Refuse(x) }''')
    >>> options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    >>> options.log_severity_level = 4  # ONNX Runtime would print the error as well
    >>> session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    >>> try:
    ...     session.run(None, {"x": np.zeros(1, np.float32)})
    ... except Exception:
    ...     print(repr(pyops.last_exception()))
    ValueError('not today')
    """
    return _last
