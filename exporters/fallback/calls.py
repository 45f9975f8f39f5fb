"""A call of a torch operator as plain data: JSON beside the tensors.

Arguments go by their names. What JSON has is itself; the rest is an object with a single key that says what
it is: ``{"tensor": 0}`` and ``{"complex": 0}`` are the first input (of pairs along a last dimension for a
complex one), ``{"size": 1}`` an integer that the second input holds, and ``{"dtype": "float32"}``,
``{"layout": ...}``, ``{"memory_format": ...}``, ``{"device": "cpu"}``, ``{"float": "inf"}`` and
``{"number": [re, im]}`` constants.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch

from pyops.errors import InputError

Convert = Callable[[int], Any]

_LONGEST = 1 << 20  # characters; a call holds scalars and short lists of them
_DEEPEST = 4

_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_CONSTANTS = {
    kind: {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, type_)}
    for kind, type_ in _KINDS.items()
}


def encode(arguments: Mapping[str, Any], place: Callable[[Any], dict[str, int] | None]) -> str:
    """The JSON of a call.

    Parameters
    ----------
    place : callable
        For a value that is an input of the node, its tag and position: ``{"tensor": 0}``; None for constants.

    Raises
    ------
    InputError
        A value is neither an input nor plain data.
    """
    return json.dumps({name: _encode(value, place) for name, value in arguments.items()}, allow_nan=False)


def _encode(value: Any, place: Callable[[Any], dict[str, int] | None]) -> Any:
    placed = place(value)
    if placed is not None:
        return placed
    if isinstance(value, (list, tuple)):
        return [_encode(item, place) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return {"number": [_encode(value.real, place), _encode(value.imag, place)]}
    if isinstance(value, torch.device):
        # Where a model runs is not where it was exported.
        return {"device": "cpu"}
    for kind, type_ in _KINDS.items():
        if isinstance(value, type_):
            return {kind: str(value).removeprefix("torch.")}
    raise InputError(f"{value!r} ({type(value).__name__}) is no plain data")


@lru_cache(maxsize=4096)
def parse(text: str) -> dict[str, Any]:
    """The arguments in a call's JSON, checked.

    Raises
    ------
    InputError
        It is no JSON object, too long, too deep, or holds what no call has.
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
    if tag in ("tensor", "complex", "size"):
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


def decode(arguments: Mapping[str, Any], tensor: Convert, complex_: Convert, size: Convert) -> dict[str, Any]:
    """The arguments as torch takes them.

    Parameters
    ----------
    arguments : mapping
        As `parse` returns them.
    tensor, complex_, size : callable
        What is behind the position of an input.
    """
    inputs = {"tensor": tensor, "complex": complex_, "size": size}
    return {name: _decode(value, inputs) for name, value in arguments.items()}


def _decode(value: Any, inputs: Mapping[str, Convert]) -> Any:
    if isinstance(value, list):
        return [_decode(item, inputs) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, item),) = value.items()
    if tag in inputs:
        return inputs[tag](item)
    if tag == "number":
        return complex(*[_decode(part, inputs) for part in item])
    if tag == "float":
        return float(item)
    return torch.device("cpu") if tag == "device" else _CONSTANTS[tag][item]


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors that an operator returned, out of tuples and lists; absent ones left out."""
    if isinstance(result, torch.Tensor):
        return [result]
    found = []
    for item in result:
        if item is not None:
            found += flat(item)
    return found
