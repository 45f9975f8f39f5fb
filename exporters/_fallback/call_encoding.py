"""Encoding of a torch operator's call as plain data: JSON beside the tensors.

Attributes of ONNX would not do: they have no double precision, no dtypes, and no place for a size that is known only at
run time. Arguments are stored by name. A value that JSON has is stored as itself, any other as an object with a
single key: ``{"tensor": 0}`` and ``{"complex": 0}`` mean the first input (pairs along a last dimension for a complex
one), ``{"size": 1}`` an integer in the second input, and ``{"torch": "float32"}``, ``{"float": "inf"}`` and
``{"number": [re, im]}`` are constants.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from pyops.errors import InputError

_LONGEST = 1 << 20  # characters; a call holds scalars and short lists of them
_DEEPEST = 4

_INPUTS = ("tensor", "complex", "size")
_CONSTANTS: dict[str, Any] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format))
}
# A model need not run on the device of its export.
_CONSTANTS["cpu"] = torch.device("cpu")


def tag(value: Any) -> str:
    """Return the kind of an input in a call: ``"tensor"``, ``"complex"`` or ``"size"``."""
    if not isinstance(value, torch.Tensor):
        return "size"
    return "complex" if value.is_complex() else "tensor"


def encode(arguments: Mapping[str, Any], inputs: Sequence[Any] = (), tags: Sequence[str] = ()) -> str:
    """Return a call in JSON.

    Parameters
    ----------
    arguments : mapping
        Arguments by name.
    inputs : sequence
        The argument values that are inputs of the node.
    tags : sequence of str
        The `tag` of each input.

    Raises
    ------
    InputError
        A value is neither an input nor plain data.
    """
    places = {id(item): {tags[index]: index} for index, item in enumerate(inputs)}

    def encoded(value: Any) -> Any:
        if id(value) in places:
            return places[id(value)]
        if isinstance(value, (list, tuple)):
            return list(map(encoded, value))
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if isinstance(value, complex):
            return {"number": [encoded(value.real), encoded(value.imag)]}
        if isinstance(value, torch.device):
            return {"torch": "cpu"}
        name = str(value).removeprefix("torch.")
        if _CONSTANTS.get(name) is value and value is not None:
            return {"torch": name}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise InputError(f"{value!r} ({type(value).__name__}) is not plain data")

    return json.dumps({name: encoded(value) for name, value in arguments.items()}, allow_nan=False)


@dataclass(frozen=True)
class _Input:
    """A place in a call for an input of the node."""

    tag: str
    index: int


@lru_cache(maxsize=4096)
def parse(text: str) -> dict[str, Any]:
    """Return the arguments in a call's JSON, validated, with places for the inputs.

    Raises
    ------
    InputError
        The text is not a JSON object, is too long or too deeply nested, or has an invalid value.
    """
    if len(text) > _LONGEST:
        raise InputError(f"the arguments of a call have {len(text)} characters of JSON; at most {_LONGEST} are allowed")
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the arguments of a call must be JSON; {text[:80]!r} is not ({error})") from None
    if not isinstance(arguments, dict):
        raise InputError(f"the arguments of a call must be a JSON object; {text[:80]!r} is not one")
    return {name: _parsed(name, value, _DEEPEST) for name, value in arguments.items()}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _parsed(name: str, value: Any, depth: int) -> Any:
    if isinstance(value, (list, dict)) and not depth:
        raise InputError(f"the argument {name!r} is nested deeper than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_parsed(name, item, depth - 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"the argument {name!r} has an integer that does not fit int64")
    if not isinstance(value, dict):
        return value
    tag, item = next(iter(value.items())) if len(value) == 1 else ("", None)
    if tag in _INPUTS and type(item) is int and 0 <= item < _LONGEST:
        return _Input(tag, item)
    if tag == "float" and item in ("inf", "-inf", "nan"):
        return float(item)
    if tag == "torch" and isinstance(item, str) and item in _CONSTANTS:
        return _CONSTANTS[item]
    if tag == "number" and isinstance(item, list):
        parts = [_parsed(name, part, depth - 1) for part in item]
        if len(parts) == 2 and all(isinstance(part, (int, float)) for part in parts):
            return complex(*parts)
    raise InputError(f"the argument {name!r} has {json.dumps(value)[:80]}, which is not valid")


def decode(text: str, inputs: Sequence[Any], **read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, for torch.

    Parameters
    ----------
    text : str
        The JSON that `encode` returns.
    inputs : sequence
        The inputs of the node.
    **read : callable
        By `tag`, a function that converts an input to the argument.

    Raises
    ------
    InputError
        `parse` rejects the text, the text refers to an input that does not exist, or `read` raises it.
    """
    return {name: _decoded(value, inputs, read) for name, value in parse(text).items()}


def _decoded(value: Any, inputs: Sequence[Any], read: Mapping[str, Callable[[Any], Any]]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, inputs, read) for item in value]
    if not isinstance(value, _Input):
        return value
    if value.index >= len(inputs):
        raise InputError(f"the arguments refer to input {value.index}, but the node has {len(inputs)} inputs")
    return read[value.tag](inputs[value.index])
