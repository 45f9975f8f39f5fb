"""SciPy, which some kernels compute with and which is imported when one of them is first called."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from pyops._schema.devices import is_cupy
from pyops.errors import MissingDependencyError


def scipy(submodule: str, array: Any) -> Any:
    """Import a part of SciPy, such as ``"special"``, for a NumPy array, or its counterpart in CuPy for a CuPy array."""
    return _submodule(f"cupyx.scipy.{submodule}" if is_cupy(array) else f"scipy.{submodule}")


@functools.cache
def _submodule(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"this operator of pyops.kernels computes with {name}, which is not installed; "
            'pip install "onnx-pyops[kernels]"'
        ) from error
