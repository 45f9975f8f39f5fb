"""Exceptions that pass through ONNX Runtime, whose statuses carry only text.

An exception in a `pyops.InferenceSession` is stored here under an id, which the status message contains; the session
takes the exception by that id and raises it. Plain onnxruntime sessions get the text of the exception.
"""

from __future__ import annotations

import itertools
import re
import threading
import traceback
from types import TracebackType

# Anchored to ONNX Runtime's own prefixes.
_MARK = re.compile(r"(?:Status Message|during initialization): \[pyops exception (\d+)\]")
# The innermost frames identify the failure, even after unbounded recursion in a kernel.
_MOST_FRAMES = 30

_ids = itertools.count(1)
stored: dict[int, BaseException] = {}


class _Last(threading.local):
    error: BaseException | None = None


_last = _Last()
_last_anywhere: BaseException | None = None


def remember_exception(error: BaseException) -> None:
    """Record an exception for `last_exception`, with its traceback cut to begin in the kernel."""
    BaseException.with_traceback(error, _from_kernel(error.__traceback__))  # not a method that the exception defines
    global _last_anywhere
    _last.error = _last_anywhere = error


def describe(error: BaseException) -> str:
    """Return the text and the traceback of an exception, as a status message."""
    # Unlike str(), these functions tolerate an exception whose __str__ raises.
    headline = traceback.format_exception_only(error)[0].strip()
    return f"{headline}\n{''.join(traceback.format_exception(error, limit=-_MOST_FRAMES))}"


def reserve() -> tuple[int, str]:
    """Return an unused id and the status message for it, for an exception that will be stored under it."""
    number = next(_ids)
    return number, f"[pyops exception {number}]"


def _from_kernel(step: TracebackType | None) -> TracebackType | None:
    """Return the traceback without pyops' own leading frames, which do not help the kernel's author."""
    first = step
    while step and step.tb_frame.f_globals.get("__name__", "").startswith("pyops."):
        step = step.tb_next
    return step or first


def take(message: str) -> BaseException | None:
    """Remove and return the exception that an ONNX Runtime error message refers to, or None.

    Where nodes run in parallel, a message may refer to several; the first is returned.

    Callers delete their variable after raising: the exception's traceback refers to the frame, and the frame's variable
    to the exception.
    """
    taken = [stored.pop(int(number), None) for number in _MARK.findall(message)]
    for error in taken:
        if error is not None:
            remember_exception(error)
            return error
    return None


def is_of_onnxruntime(error: Exception) -> bool:
    """Return whether ONNX Runtime raised an error, in one of several unrelated types.

    What another thread sets, or the handler of a signal raises, may arrive in ONNX Runtime's Python code too.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = type(error).__module__
    # Of the built-in types, it raises no OSError; threads set TimeoutError.
    is_possible = module.startswith("onnxruntime.") or (module == "builtins" and not isinstance(error, OSError))
    return is_possible and str(frame.f_globals.get("__name__")).startswith("onnxruntime.")


def last_exception() -> BaseException | None:
    """Return the exception that a kernel raised last; None before the first.

    In sessions other than `pyops.InferenceSession`, ONNX Runtime's own error contains only the text. If kernels raised
    in this thread, the last of these exceptions is returned, otherwise the last of any thread.

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
    return _last_anywhere if _last.error is None else _last.error
