"""How a kernel's exception gets past onnxruntime-extensions, which has no place for one.

A failing kernel is answered with outputs that have no elements, and the exception is put down in the
`Run` of the session's call that it belongs to, which raises it when ONNX Runtime returns: the methods
of ``onnxruntime.InferenceSession`` that run kernels are exchanged for ones that do so. (To set an
exception from here, by ``PyThreadState_SetAsyncExc``, is no way: where the garbage collector or a
signal's handler runs first, it ends there and the numbers stay.)
"""

from __future__ import annotations

import contextlib
import functools
import threading
import traceback
from collections.abc import Callable
from typing import Any

import onnxruntime

from .. import failures


class StoppingOptions(onnxruntime.RunOptions):
    """Run options for one run, which stops where a kernel fails; those of others may be in use by other runs."""


class Run:
    """One call of a session, and what a kernel raised in it first.

    Attributes
    ----------
    host : SessionHost or None
        Of the session, if it is ours.
    """

    def __init__(self, session: Any, options: StoppingOptions | None = None) -> None:
        self.failure: BaseException | None = None
        self.host = getattr(session, "_extensions", None)
        self._options = options

    def fail(self, error: BaseException) -> None:
        """Keep an exception, and let ONNX Runtime stop before the next node."""
        if self.failure is None:
            self.failure = error
            if self._options is not None:
                self._options.terminate = True


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.runs: list[Run] = []
        # By number, exceptions that were raised where not even a function could be called.
        self.unreported: dict[int, BaseException] = {}


this_thread = _ThisThread()

# Those whose kernels run in threads of ONNX Runtime's own.
_elsewhere: list[Run] = []


def failed(host: Any = None) -> bool:
    """Whether a kernel that is called now, in a session of `host` if that is known, belongs to a run that failed."""
    return any(run.failure for run in _runs_here(host))


def _runs_here(host: Any) -> list[Run]:
    return this_thread.runs[-1:] or [run for run in _elsewhere if host is None or run.host is host]


def fail(error: BaseException, host: Any = None) -> None:
    """Let the run that a kernel of this thread belongs to raise an exception.

    In a thread of ONNX Runtime's own these are all runs that have kernels there, of sessions of `host` if that is
    known. Where there is none (somebody calls ONNX Runtime's bindings without its Python class), it goes to
    `threading.excepthook`.
    """
    failures.remember(error)
    runs = _runs_here(host)
    for run in runs:
        run.fail(error)
    if not runs:
        args = threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        with contextlib.suppress(Exception):  # somebody's own hook; nobody else is left to tell
            threading.excepthook(args)


def _watch(run: Run, function: Callable[[], Any]) -> Any:
    """What `function` returns; what a kernel raises in it is raised, whatever ONNX Runtime made of that."""
    result = None
    this_thread.runs.append(run)
    try:
        result = function()
    except Exception:  # ONNX Runtime's, of whatever type
        if run.failure is None and not this_thread.unreported:
            raise
    finally:
        this_thread.runs.remove(run)
    # Outside the handler, so that ONNX Runtime's error does not become the exception's context.
    failed = [error for error in (run.failure, *this_thread.unreported.values()) if error is not None]
    run.failure = None
    this_thread.unreported.clear()
    if failed:
        raise failed.pop(0)
    return result


_METHODS = (
    "__init__",
    "set_providers",
    "run",
    "run_with_iobinding",
    "run_with_ort_values",
    "run_with_ortvaluevector",
)


@functools.cache
def watch_all(arm: Callable[[], None]) -> None:
    """Let every ``onnxruntime.InferenceSession`` raise what kernels raise in it, from now on.

    Parameters
    ----------
    arm : callable
        Guards this thread's kernels against interrupts.
    """
    for name in _METHODS:
        method = getattr(onnxruntime.InferenceSession, name, None)
        if method is not None:
            setattr(onnxruntime.InferenceSession, name, _watched(method, arm))
    onnxruntime.InferenceSession.run_async = _watched_async(onnxruntime.InferenceSession.run_async)


def _watched(method: Callable[..., Any], arm: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        arm()
        run = Run(self, next((item for item in (*args, *kwargs.values()) if isinstance(item, StoppingOptions)), None))
        # The frames of an exception must not refer to what is fed, which a kernel may have been handed.
        calls = [functools.partial(method, self, *args, **kwargs)]
        del args, kwargs
        # No options yet while the session is made, which runs kernels in the calling thread.
        options = getattr(self, "_sess_options", None)
        if options is None or options.execution_mode != onnxruntime.ExecutionMode.ORT_PARALLEL:
            return _watch(run, lambda: calls.pop()())
        _elsewhere.append(run)
        try:
            return _watch(run, lambda: calls.pop()())
        finally:
            _elsewhere.remove(run)

    return watched


def _watched_async(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run_async(
        self: Any, output_names: Any, input_feed: Any, callback: Any, user_data: Any, run_options: Any = None
    ) -> Any:
        run = Run(self)

        def call_back(outputs: Any, user_data: Any, error: str) -> None:
            _elsewhere.remove(run)
            if run.failure is None:
                callback(outputs, user_data, error)
            else:
                callback([], user_data, "".join(traceback.format_exception(run.failure)))

        _elsewhere.append(run)
        try:
            return method(self, output_names, input_feed, call_back, user_data, run_options)
        except BaseException:  # it does not start, for whatever reason
            _elsewhere.remove(run)
            raise

    return run_async
