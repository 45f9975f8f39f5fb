"""What can go wrong, in the user's words.

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
InputError: errors::Root: input 'x' is int64; declared is float32
"""


class PyopsError(Exception):
    """Base of every error that pyops raises on its own behalf.

    An exception raised inside a kernel is never wrapped: it reaches the caller as itself.
    """


class DeclarationError(PyopsError, TypeError):
    """A declaration that cannot become an ONNX operator; raised when it is declared."""


class InputError(PyopsError, TypeError):
    """Arguments of a call that do not match the op's declaration."""


class OutputError(PyopsError, TypeError):
    """A kernel returned something other than what its op declares."""


class ShapeInferenceError(PyopsError, ValueError):
    """A shape function cannot say, or says something other than specs."""


class UnknownSizeError(ShapeInferenceError):
    """A shape function needs the size of a dimension that is known at run time only."""


class ModelError(PyopsError, ValueError):
    """A model and the declared ops disagree, or ONNX Runtime refuses the model."""


class CompileError(PyopsError, RuntimeError):
    """A kernel declared with ``compile=`` cannot be compiled; the message has numba's reason and line."""


class EngineError(PyopsError, RuntimeError):
    """ONNX Runtime cannot host Python kernels here; the message says why."""


class MissingDependencyError(PyopsError, ImportError):
    """An optional dependency is needed and not installed; the message names the extra."""


class DeviceError(PyopsError, RuntimeError):
    """A GPU is needed and there is none, or it cannot do what it is asked to; the message says which."""


class PluginError(PyopsError, ImportError):
    """An installed plug-in that is needed is broken; the message names its package."""


class RedeclarationWarning(UserWarning):
    """A function takes the place of another one as an op; the message says where each of them stands.

    Said where they are of different modules or have different qualified names: a function that was edited is
    the same one, and so is one in a module that is imported again.
    """


class BorrowedArrayWarning(UserWarning):
    """A kernel kept an array that is valid during its call only."""


class DeviceCopyWarning(UserWarning):
    """An op runs on another device than its session, between copies; the message says which and how to avoid it."""


class PluginWarning(UserWarning):
    """An installed plug-in is broken, and it is not known whether it is needed."""


class CompileWarning(UserWarning):
    """A kernel declared with ``compile=`` runs as plain Python; the message says where and why."""
