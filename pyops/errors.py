"""Errors and warnings that pyops raises.

Examples
--------
>>> import numpy as np, pyops
>>> from numpy.typing import NDArray
>>> @pyops.onnx_op("errors::Root")
... def root(x: NDArray[np.float32]) -> NDArray[np.float32]:
...     return np.sqrt(x)
>>> try:
...     root(np.array([4]))
... except pyops.errors.PyopsError as error:
...     print(type(error).__name__, error, sep=": ")
InputError: errors::Root: input 'x' is int64; declared as float32: convert it, in NumPy with x.astype(np.float32)
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOT_USERS = frozenset(
    ("pyops", "exporters", "onnxruntime", "onnxruntime_extensions", "onnx", "torch", "contextlib", "importlib", "runpy")
)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the innermost line of the user's code, so that filters by module apply to it.

    The number of frames above that line depends on what called us: an engine, an import or torch.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_USERS:
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    place = frame.f_code.co_filename, frame.f_lineno, names.get("__name__")
    warnings.warn_explicit(message, category, *place, registry=registry)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the part of a message that names the most similar one of the known names; empty if none is similar."""
    import difflib  # a declaration does not need it

    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless it already has that note or does not accept any."""
    # Nothing more is suppressed: the handler of a signal may raise its own exception here.
    with contextlib.suppress(AttributeError, TypeError):
        if note not in getattr(error, "__notes__", ()):
            BaseException.add_note(error, note)


def chain_errors(errors: Sequence[BaseException]) -> BaseException:
    """Return the last of several exceptions, which wins, as everywhere in Python, with the others as its context."""
    for earlier, later in itertools.pairwise(errors):
        if later.__context__ is None:
            later.__context__ = earlier
    return errors[-1]


class PyopsError(Exception):
    """Base class of the errors that pyops raises.

    Exceptions raised in a kernel are never wrapped: they reach the caller unchanged.
    """


class DeclarationError(PyopsError, TypeError):
    """A declaration, kernel or registration is invalid, or a call needs a registration that was not made."""


class InputError(PyopsError, TypeError):
    """The arguments of a call do not match the op's declaration."""


class OutputError(PyopsError, TypeError):
    """A kernel returned something other than what its op declares."""


class ShapeInferenceError(PyopsError, ValueError):
    """Shape inference failed: there is no shape function, or it returned something other than declared."""


class UnknownSizeError(ShapeInferenceError):
    """A shape function used the size of a dimension that is known only at run time."""


class ModelError(PyopsError, ValueError):
    """A model does not match the declared ops, or ONNX Runtime rejects it."""


class CompileError(PyopsError, RuntimeError):
    """A kernel declared with ``compile=`` cannot be compiled; the message has numba's reason and line."""


class EngineError(PyopsError, RuntimeError):
    """ONNX Runtime cannot run Python kernels in this environment; the message says why."""


class MissingDependencyError(PyopsError, ImportError):
    """A required optional dependency is not installed; the message names the extra."""


class DeviceError(PyopsError, RuntimeError):
    """There is no usable GPU, or it cannot do what was requested; the message says which."""


class PluginError(PyopsError, ImportError):
    """A required plug-in is broken; the message names its package."""


class PickleError(PyopsError, pickle.PickleError):
    """A session or an op cannot be pickled, or cannot be unpickled in this process; the message says why."""


class RedeclarationWarning(UserWarning):
    """A function replaces another one as the implementation of an op; the message says where both are defined.

    Issued only if their modules or qualified names differ: editing a function, or importing its module again,
    does not warn.
    """


class BorrowedArrayWarning(UserWarning):
    """A kernel kept an array that is valid only during the call."""


class ChangedOpWarning(UserWarning):
    """An op's code differs from that of the process that pickled it; the message says which op and where it is."""


class DeviceCopyWarning(UserWarning):
    """An op runs on another device than its session, which requires copies; the message says how to avoid them."""


class PluginWarning(UserWarning):
    """An installed plug-in is broken; pyops cannot know whether it is required."""


class CompileWarning(UserWarning):
    """A kernel declared with ``compile=`` runs as plain Python; the message says where and why."""


class CacheWarning(UserWarning):
    """The folder for machine code, or a file in it, is not used because other users could have put code there."""


class FilledNodeWarning(UserWarning):
    """A session computes nodes that ONNX Runtime has no kernel for; the message names them and what computes them."""
