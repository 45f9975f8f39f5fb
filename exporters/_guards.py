"""The op ``pyops::Guard`` as a torch operator, for guards in captured graphs."""

from __future__ import annotations

import torch

from pyops.kernels.guards import guard as guard_op

from ._custom_op import custom_op
from ._torch_private.operators import OpOverload, called_overload


def guard() -> OpOverload:
    """Register the torch operator by which a captured graph calls the op ``pyops::Guard``, and return it."""
    custom_op(guard_op, "pyops_guard::guard")
    found = called_overload(torch.ops.pyops_guard.guard)
    assert found is not None
    return found
