"""torch's own database of sample calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyops.errors import MissingDependencyError

from ..errors import ExportError
from .guard import USE


def op_database() -> Sequence[Any]:
    """Return the database, a sequence with one OpInfo per operator.

    Raises
    ------
    MissingDependencyError
        expecttest is not installed, which torch's testing code imports.
    ExportError
        This release of torch has no such database.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f'torch\'s database of sample calls needs {error.name}; pip install "onnx-pyops[coverage]"'
        ) from error
    except ImportError as error:
        raise ExportError(
            f"torch {torch.__version__} does not have its database of sample calls any more ({error}); {USE}"
        ) from error
    found: Sequence[Any] = op_db
    return found
