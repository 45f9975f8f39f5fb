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
    """An exported model computes what the torch model does as long as what its capture fixed stays the same.

    Examples
    --------
    >>> import exporters, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", exporters.CaptureWarning)
    """
