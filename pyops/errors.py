"""What can go wrong, in the user's words."""


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


class PluginError(PyopsError, ImportError):
    """An installed plug-in that is needed is broken; the message names its package."""


class KeptArrayWarning(UserWarning):
    """A kernel kept an array that is valid during its call only."""


class PluginWarning(UserWarning):
    """An installed plug-in is broken, and it is not known whether it is needed."""


class CompileWarning(UserWarning):
    """A kernel declared with ``compile=`` runs as plain Python; the message says where and why."""
