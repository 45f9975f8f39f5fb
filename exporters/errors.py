"""Exceptions of the exporters."""

from __future__ import annotations

from pyops.errors import PyopsError


class ExportError(PyopsError, ValueError):
    """A registration or a model cannot be exported; the message says what to change.

    Examples
    --------
    >>> import exporters
    >>> try:
    ...     exporters.custom_op(abs, "mylibrary::abs")
    ... except exporters.ExportError as error:
    ...     print(error)
    custom_op got <built-in function abs>; pass an operator declared with @pyops.onnx_op
    """


class CaptureWarning(UserWarning):
    """The exported model computes what the model does as long as what the capture fixed stays the same."""
