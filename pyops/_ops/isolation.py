"""Isolation of the declarations that a test makes.

Imports nothing else of pyops, since pytest loads this module wherever pyops is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .op import Op


@contextmanager
def isolated_declarations() -> Iterator[None]:
    """Undo, at the end of the block, all declarations and registrations made in it.

    Ops of modules that are first imported in the block stay declared, because importing the modules again
    would not declare them.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from numpy.typing import NDArray
    >>> from pyops.testing import isolated_declarations
    >>> with isolated_declarations():
    ...     @pyops.onnx_op("passing::Halve")
    ...     def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...         return x / np.float32(2)
    >>> [op for op in pyops.list_ops() if op.domain == "passing"]
    []
    """
    registry = _registry()
    before = registry.snapshot() if registry else None
    modules = set(sys.modules)

    def is_of_new_module(op: Op[..., Any]) -> bool:
        module = getattr(op.kernels["cpu"], "__module__", None)
        return module in sys.modules and module not in modules

    try:
        yield
    finally:
        registry = _registry()
        if registry:
            registry.restore(before or registry.EMPTY, is_of_new_module)


def _registry() -> Any:
    """Return the registry module, or None if this process has not imported it."""
    return sys.modules.get(f"{__package__}.registry")
