"""Encoding of a torch operator's call as plain data: JSON beside the tensors.

Arguments are stored by name. A value that JSON has is stored as itself, and any other as an object with a single key:
``{"tensor": 0}`` and ``{"complex": 0}`` mean the first input (pairs along a last dimension for a complex one),
``{"size": 1}`` an integer in the second input, and ``{"dtype": "float32"}``, ``{"layout": ...}``,
``{"memory_format": ...}``, ``{"device": "cpu"}``, ``{"float": "inf"}`` and ``{"number": [re, im]}`` are constants.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from pyops.errors import InputError

_LONGEST = 1 << 20  # characters; a call holds scalars and short lists of them
_DEEPEST = 4

_INPUTS = ("tensor", "complex", "size")
_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_CONSTANTS = {
    kind: {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, type_)}
    for kind, type_ in _KINDS.items()
}


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
    placed = {id(item): {tags[index]: index} for index, item in enumerate(inputs)}
    return json.dumps({name: _encode(value, placed) for name, value in arguments.items()}, allow_nan=False)


def _encode(value: Any, placed: Mapping[int, dict[str, int]]) -> Any:
    if id(value) in placed:
        return placed[id(value)]
    if isinstance(value, (list, tuple)):
        return [_encode(item, placed) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return {"number": [_encode(value.real, placed), _encode(value.imag, placed)]}
    if isinstance(value, torch.device):
        # A model need not run on the device of its export.
        return {"device": "cpu"}
    for kind, type_ in _KINDS.items():
        if isinstance(value, type_):
            return {kind: str(value).removeprefix("torch.")}
    raise InputError(f"{value!r} ({type(value).__name__}) is not plain data")


@lru_cache(maxsize=4096)
def parse(text: str) -> dict[str, Any]:
    """Return the arguments in a call's JSON, validated.

    Raises
    ------
    InputError
        The text is not a JSON object, is too long or too deep, or has a value that no call has.
    """
    if len(text) > _LONGEST:
        raise InputError(f"the arguments of a call are at most {_LONGEST} characters of JSON; these are {len(text)}")
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the arguments of a call are JSON; {text[:80]!r} is not ({error})") from None
    if not isinstance(arguments, dict):
        raise InputError(f"the arguments of a call are a JSON object; {text[:80]!r} is none")
    for name, value in arguments.items():
        _check(name, value, _DEEPEST)
    return arguments


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check(name: str, value: Any, depth: int) -> None:
    if isinstance(value, (list, dict)) and not depth:
        raise InputError(f"the argument {name!r} is nested deeper than {_DEEPEST} levels")
    if isinstance(value, list):
        for item in value:
            _check(name, item, depth - 1)
    elif isinstance(value, dict):
        _check_tagged(name, value, depth)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"the argument {name!r} has an integer that does not fit int64")


def _check_tagged(name: str, tagged: dict[str, Any], depth: int) -> None:
    tag, value = next(iter(tagged.items())) if len(tagged) == 1 else ("", None)
    if tag in _INPUTS:
        fits = type(value) is int and 0 <= value < _LONGEST
    elif tag == "float":
        fits = value in ("inf", "-inf", "nan")
    elif tag == "number":
        fits = isinstance(value, list) and len(value) == 2 and not any(isinstance(item, (str, list)) for item in value)
        for item in value if fits and value else ():
            _check(name, item, depth - 1)
    elif tag == "device":
        fits = value == "cpu"
    else:
        fits = tag in _CONSTANTS and isinstance(value, str) and value in _CONSTANTS[tag]
    if not fits:
        raise InputError(f"the argument {name!r} has {json.dumps(tagged)[:80]}, which no call has")


def decode(text: str, inputs: Sequence[Any], **read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, for torch.

    Parameters
    ----------
    text : str
        The JSON that `encode` returns.
    inputs : sequence
        The inputs of the node.
    **read : callable
        By `tag`, a function that converts an input to the argument; the default is the input itself.

    Raises
    ------
    InputError
        `parse` rejects the text, the text refers to an input that does not exist, or `read` raises it.
    """
    return {name: _decode(value, inputs, read) for name, value in parse(text).items()}


def _decode(value: Any, inputs: Sequence[Any], read: Mapping[str, Callable[[Any], Any]]) -> Any:
    if isinstance(value, list):
        return [_decode(item, inputs, read) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, item),) = value.items()
    if tag in _INPUTS:
        if item >= len(inputs):
            raise InputError(f"the arguments name input {item}, and the node has {len(inputs)}")
        return read[tag](inputs[item]) if tag in read else inputs[item]
    if tag == "number":
        return complex(*[_decode(part, inputs, read) for part in item])
    if tag == "float":
        return float(item)
    return torch.device("cpu") if tag == "device" else _CONSTANTS[tag][item]


def flat(result: Any) -> list[torch.Tensor]:
    """Return the tensors that an operator returned, flattened out of tuples and lists, without None."""
    if isinstance(result, torch.Tensor):
        return [result]
    found = []
    for item in result:
        if item is not None:
            found += flat(item)
    return found
