"""What can go wrong on the way from torch to ONNX, in the user's words."""

from __future__ import annotations

from pyops.errors import PyopsError


class ExportError(PyopsError, ValueError):
    """A registration or a model that cannot be exported as it stands; the message says what to do.

    Examples
    --------
    >>> import exporters
    >>> try:
    ...     exporters.custom_op(abs, "mylibrary::abs")
    ... except exporters.ExportError as error:
    ...     print(error)
    custom_op got <built-in function abs>; pass an operator declared with @pyops.onnx_op
    """
