"""What onnxruntime-extensions can carry of an Op, and how what a kernel returned travels there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import OutputError
from ..signature import Signature
from ..types import STRING, dtype_name
from . import extensions_hook as hook
from .extensions_registry import CARRIED, MOST_CHOICES, choices


def obstacles(signature: Signature) -> list[str]:
    """Why onnxruntime-extensions cannot carry an op; empty where it can."""
    found = [f"optional input {item.name!r}" for item in signature.inputs if item.optional]
    found += [f"variadic input {item.name!r}" for item in signature.inputs if item.variadic]
    found += [f"variadic output {item.name!r}" for item in signature.outputs if item.variadic]
    for parameter in signature.type_parameters:
        if not set(parameter.dtypes) & set(CARRIED):
            found.append(f"type {' or '.join(map(dtype_name, parameter.dtypes))}")
    if len(signature.outputs) > hook.MOST_OUTPUTS:
        found.append(f"more than {hook.MOST_OUTPUTS} outputs")
    if not found and len(choices(signature)) > MOST_CHOICES:
        found.append(f"more than {MOST_CHOICES} choices of its types")
    return found


def unsupported_types(signature: Signature) -> list[str]:
    """Names of the declared element types that onnxruntime-extensions lacks."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if dtype not in CARRIED]


def refusal(signature: Signature, reasons: Sequence[str]) -> str:
    """One line that says why an op cannot run here, and where it can."""
    listed = ", ".join(reasons)
    return f"{signature.qualified_name}: onnxruntime-extensions cannot carry its {listed}; the native engine can"


def answer(signature: Signature, outputs: Sequence[Any]) -> hook.Answer:
    """What a kernel returned, as onnxruntime-extensions takes it.

    Raises
    ------
    OutputError
        A string holds a NUL character.
    """
    result: list[Any] = [0]
    for item, array in zip(signature.outputs, outputs, strict=True):
        result += [array.shape, _strings(signature, item.name, array) if array.dtype is STRING else _flat(array)]
    return tuple(result).__iter__


def _flat(array: Any) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else array.flatten()


def _strings(signature: Signature, name: str, array: Any) -> list[bytes]:
    texts = [text.encode() for text in array.flat]
    if any(b"\0" in text for text in texts):
        raise OutputError(
            f"{signature.qualified_name}: {name!r} holds a NUL character, at which onnxruntime-extensions cuts strings "
            "off; the native engine carries it"
        )
    return texts
