"""Exceptions of the exporters."""

from __future__ import annotations

from collections.abc import Iterator

from pyops.errors import PyopsError


class ExportError(PyopsError, ValueError):
    """A registration is not possible, or a model cannot be exported; the message says what to change.

    Examples
    --------
    >>> import exporters
    >>> try:
    ...     exporters.custom_op(abs, "mylibrary::abs")
    ... except exporters.ExportError as error:
    ...     print(error)
    custom_op got <built-in function abs>; pass an operator declared with @pyops.onnx_op
    """


class CaptureError(ExportError):
    """A model cannot be captured."""


class NoOperatorError(ExportError):
    """The installed torch has no operator of the given name."""


class NoTranslationError(ExportError):
    """Nothing translates a call: there is no registration, or it leaves the call to torch, which has no translation."""


class CaptureWarning(UserWarning):
    """An exported model may differ from the torch model: its capture specialized values, or it draws random numbers.

    Examples
    --------
    >>> import exporters, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", exporters.CaptureWarning)
    """


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
