"""What onnxruntime-extensions can carry of an Op."""

from __future__ import annotations

from collections.abc import Sequence

from ..signature import Signature
from ..types import dtype_name
from .extensions_hook import MOST_OUTPUTS
from .extensions_registry import CARRIED, MOST_CHOICES, choices


def obstacles(signature: Signature) -> list[str]:
    """Why onnxruntime-extensions cannot carry an op; empty where it can."""
    found = [f"optional input {item.name!r}" for item in signature.inputs if item.optional]
    found += [f"variadic input {item.name!r}" for item in signature.inputs if item.variadic]
    found += [f"variadic output {item.name!r}" for item in signature.outputs if item.variadic]
    for parameter in signature.type_parameters:
        if not set(parameter.dtypes) & set(CARRIED):
            found.append(f"type {' or '.join(map(dtype_name, parameter.dtypes))}")
    if len(signature.outputs) > MOST_OUTPUTS:
        found.append(f"{len(signature.outputs)} outputs ({MOST_OUTPUTS} at most)")
    if not found and len(choices(signature)) > MOST_CHOICES:
        found.append(f"type parameters, of which there are more than {MOST_CHOICES} choices")
    return found


def unsupported_types(signature: Signature) -> list[str]:
    """Names of the declared element types that onnxruntime-extensions lacks."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if dtype not in CARRIED]


def refusal(signature: Signature, reasons: Sequence[str]) -> str:
    """One line that says why an op cannot run here, and where it can."""
    listed = ", ".join(reasons)
    return f"{signature.qualified_name}: onnxruntime-extensions cannot carry its {listed}; the native engine can"
