"""What can go wrong on the way from torch to ONNX, in the user's words."""

from __future__ import annotations

from pyops.errors import PyopsError


class ExportError(PyopsError, ValueError):
    """A registration or a model that cannot be exported as it stands; the message says what to do."""
