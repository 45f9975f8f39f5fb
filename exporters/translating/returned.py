"""Whether a translation returned what the torch operator does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._torch_private.operators import OpOverload, qualified_name, schema_returns, spell
from ..errors import ExportError

# Values of the graph are none of these, whichever exporter makes them.
_NO_NODES = (type(None), complex, str, np.ndarray, np.generic, torch.Tensor)
_NUMBERS = (bool, int, float)


def check_returned(target: OpOverload, result: Any) -> None:
    """Check the number and kind of what the translation of a torch operator returned.

    Raises
    ------
    ExportError
        It is not one value per tensor that the operator returns.
    """
    declared = schema_returns(target)
    tensors = all("Tensor" in item for item in declared)
    listed = len(declared) == 1 and "List" in declared[0]
    several = isinstance(result, (list, tuple))
    values = result if several else [result]
    # Torch takes a constant too where its operator returns a number.
    wrong = (*_NO_NODES, *_NUMBERS) if tensors else _NO_NODES
    fitting = several if listed else len(values) == len(declared) and several == (len(declared) > 1)
    if fitting and not any(isinstance(value, wrong) for value in values):
        return
    expected = "a list of values" if listed else "one value" if len(declared) == 1 else f"{len(declared)} values"
    raise ExportError(
        f"the translation of {qualified_name(target)} returned {_describe(result)}; return {expected} of the graph, as "
        f"exporters.opset(...) gives them, for {spell(target)}"
    )


def _describe(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return f"a {type(result).__name__} of {len(result)}"
    return repr(result) if result is None or isinstance(result, (bool, int, float, str)) else type(result).__name__
