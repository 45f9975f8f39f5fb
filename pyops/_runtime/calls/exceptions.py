"""Exceptions on their way through ONNX Runtime, which only carries text.

A kernel's exception is put down here under a number; the number travels in the status message,
and the session picks the exception up again.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import traceback
from types import TracebackType

# What ONNX Runtime puts before a status message. The kernel's own text may hold other marks.
_MARK = re.compile(r"(?:Status Message|during initialization): \[pyops exception (\d+)\]")
# Sessions that are not ours never pick their exceptions up; the oldest make room.
_KEPT = 64
# The last ones tell what happened, also where a kernel recurses without end.
_FRAMES_TOLD = 30

_lock = threading.Lock()
_numbers = itertools.count(1)
waiting: dict[int, BaseException] = {}
_last: BaseException | None = None


def remember(error: BaseException) -> None:
    """Keep an exception as the last one, with a traceback that begins in the kernel."""
    with contextlib.suppress(Exception):  # an exception may forbid that it is changed
        error.__traceback__ = _from_kernel(error.__traceback__)
    global _last
    _last = error


def put_down(error: BaseException) -> str:
    """Keep an exception, and return the message that stands for it: a number, and its traceback."""
    remember(error)
    number = next(_numbers)
    with _lock:
        waiting[number] = error
        while len(waiting) > _KEPT:
            del waiting[min(waiting)]
    # Unlike str(), these stand an exception whose __str__ raises.
    headline = traceback.format_exception_only(error)[0].strip()
    return f"{_mark(number)} {headline}\n{''.join(traceback.format_exception(error, limit=-_FRAMES_TOLD))}"


def reserve() -> tuple[int, str]:
    """A number for an exception yet to come, and the message that will stand for it."""
    number = next(_numbers)
    return number, f"{_mark(number)} an exception whose text could not be put together"


def _mark(number: int) -> str:
    return f"[pyops exception {number}]"


def _from_kernel(step: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of pyops that lead to the kernel; they say nothing to its author."""
    first = step
    while step and step.tb_frame.f_globals.get("__name__", "").startswith("pyops."):
        step = step.tb_next
    return step or first


def pick_up(message: str) -> BaseException | None:
    """Return the exception that an error message of ONNX Runtime stands for, the first time it is asked for.

    Delete the variable that has it where it is raised: the exception would keep the frame, and the frame it.
    """
    match = _MARK.search(message)
    with _lock:
        return waiting.pop(int(match[1]), None) if match else None


def last_exception() -> BaseException | None:
    """The exception that a kernel raised last, in whichever session and thread; None before the first.

    In a session that is not a `pyops.InferenceSession` this is the way to it: there, ONNX Runtime's
    own error carries its text alone.

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
