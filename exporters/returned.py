"""Whether a translation returned what the torch operator does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ._torch_private import OpOverload, qualified_name, schema_returns, spell
from .errors import ExportError

# Values of the graph are none of these, whichever exporter makes them.
_NO_NODES = (bool, int, float, complex, str, np.ndarray, np.generic, torch.Tensor)


def check_returned(target: OpOverload, result: Any) -> None:
    """Check the number and kind of what the translation of a torch operator returned.

    Raises
    ------
    ExportError
        It is not one value per tensor that the operator returns.
    """
    declared = schema_returns(target)
    # Left to torch; or a number of the graph, which torch takes as a constant too.
    if result is NotImplemented or not all("Tensor" in item for item in declared):
        return
    if len(declared) == 1 and "List" in declared[0]:
        return
    values = result if isinstance(result, (list, tuple)) else [result]
    fitting = len(values) == len(declared) and isinstance(result, (list, tuple)) == (len(declared) > 1)
    if fitting and not any(value is None or isinstance(value, _NO_NODES) for value in values):
        return
    expected = "one value" if len(declared) == 1 else f"{len(declared)} values"
    raise ExportError(
        f"the translation of {qualified_name(target)} returned {_describe(result)}; return {expected} of the graph, as "
        f"exporters.opset(...) gives them, for {spell(target)}"
    )


def _describe(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return f"a {type(result).__name__} of {len(result)}"
    return repr(result) if result is None or isinstance(result, (bool, int, float, str)) else type(result).__name__
