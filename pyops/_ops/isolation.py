"""Declarations that end with the test that makes them; imports nothing, as pytest loads it always."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .op import Op


@contextmanager
def isolated_declarations() -> Iterator[None]:
    """Within it, ops are declared, redeclared and registered as usual; afterwards all is as it was before.

    Ops of modules that are imported within it stay declared, since importing these again would not
    declare them.

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
    declared = registry.declarations() if registry else None
    modules = set(sys.modules)

    def is_of_new_module(op: Op[..., Any]) -> bool:
        module = getattr(op.kernels["cpu"], "__module__", None)
        return module in sys.modules and module not in modules

    try:
        yield
    finally:
        registry = _registry()
        if registry:
            registry.restore(declared or registry.NOTHING, is_of_new_module)


def _registry() -> Any:
    """The registry of ops, if anything is declared in this process."""
    return sys.modules.get(f"{__package__}.registry")
