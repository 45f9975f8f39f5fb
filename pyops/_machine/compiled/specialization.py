"""The types that machine code is specialized for: element types, ranks, kinds of attributes, but no values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._core import Signature
from ..._support.element_types import DType, format_scalar
from ...errors import DeclarationError

_GROUP = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_GROUPS = rf"{_GROUP}(?:\s*,\s*{_GROUP})*"


def parse(text: str, signature: Signature) -> tuple[int, ...]:
    """Return the number of core dimensions of each input and output, from NumPy's notation.

    ``"(n),()->(n)"`` gives ``(1, 0, 1)``.

    Raises
    ------
    DeclarationError
        `text` is malformed, or does not match the signature.
    """
    name = signature.qualified_name
    if not isinstance(text, str) or not re.fullmatch(rf"\s*{_GROUPS}\s*->\s*{_GROUPS}\s*", text):
        raise DeclarationError(
            f"{name}: parallel={text!r} is not a list of core dimensions; write them as NumPy does for "
            'generalized ufuncs: "(),()->()" where each element is computed by itself, "(n)->(n)" for rows'
        )
    inputs, outputs = (re.findall(_GROUP, side) for side in text.split("->"))
    for kind, groups, declared in (("inputs", inputs, signature.inputs), ("outputs", outputs, signature.outputs)):
        if any(item.variadic for item in declared):
            raise DeclarationError(f"{name}: parallel requires a fixed number of {kind}; leave it out")
        if len(groups) != len(declared):
            raise DeclarationError(
                f"{name}: parallel={text!r} has {len(groups)} {kind}, but {len(declared)} are declared: "
                f"{', '.join(item.name for item in declared)}"
            )
    return tuple(len(re.findall(r"\w+", group)) for group in (*inputs, *outputs))


Tensor = tuple[DType, int]
"""A dtype and a rank."""


HALVES = ("float16", "bfloat16")
"""The element types whose elements are float32 where compiled code computes with them."""


def stored(dtype: DType) -> DType:
    """Return the dtype of the arrays that compiled code is given, and returns: of float16 and bfloat16 the bits."""
    return np.dtype(np.uint16) if dtype.name in HALVES else dtype


def as_stored(value: Any) -> Any:
    """Return an array of float16 or bfloat16 as an array of the bits, and any other value as it is."""
    return value.view(np.uint16) if isinstance(value, np.ndarray) and value.dtype.name in HALVES else value


def half_types(values: Iterable[Any]) -> tuple[str, ...]:
    """Return how code spells the element type of each array of float16 or bfloat16; "" for any other value."""
    return tuple("" if as_stored(value) is value else format_scalar(value.dtype) for value in values)


@dataclass(frozen=True)
class Specialization:
    """A combination of types that one compute callback is compiled for.

    Attributes
    ----------
    inputs : tuple
        The dtype and rank of each input; None for an absent one.
    missing : int
        The number of declared inputs that the node lacks at the end.
    outputs : tuple of dtypes
        One per output of the kernel; all but the first `used` are dropped.
    output_ranks : tuple of int or None
        The ranks from the shape function; None without one.
    attributes : tuple of (name, code)
        Code that reads each attribute's value from the words at ``attributes``.
    buffers : bool
        Whether the kernel gets ONNX Runtime's buffers as `out`.
    cores : tuple of int or None
        The number of core dimensions per input and output, if the threads of ONNX Runtime's pool call the
        kernel on parts of its inputs; else None.
    """

    inputs: tuple[Tensor | None, ...]
    missing: int
    outputs: tuple[DType, ...]
    used: int
    output_ranks: tuple[int, ...] | None
    attributes: tuple[tuple[str, str], ...]
    buffers: bool
    cores: tuple[int, ...] | None = None

    def stored(self) -> Specialization:
        """Return this with the dtypes of the arrays that compiled code is given, and returns."""
        inputs = tuple(item and (stored(item[0]), item[1]) for item in self.inputs)
        return replace(self, inputs=inputs, outputs=tuple(map(stored, self.outputs)))


def weak_float(dtypes: Sequence[DType | None]) -> type[np.floating[Any]]:
    """Return the type in which a kernel of these dtypes gets float attributes.

    The values are float32 anyway. As float64, numba's type for Python floats, they would turn float32 arrays into
    float64 ones, where NumPy keeps float32.
    """
    names = {dtype.name for dtype in dtypes if dtype is not None}
    return np.float64 if "float64" in names or names.isdisjoint(("float32", *HALVES)) else np.float32


def as_arguments(attributes: Mapping[str, Any], float_type: type[np.floating[Any]]) -> dict[str, Any]:
    """Convert attributes to a compiled function's arguments: lists to tuples, floats to one type."""

    def convert(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(map(convert, value))
        return float_type(value) if isinstance(value, float) else value

    return {name: convert(value) for name, value in attributes.items()}


class AttributeWords:
    """Attributes as words of memory, with the code that reads them.

    Attributes
    ----------
    memory : numpy.ndarray
        The words, as int64.
    code : tuple of (name, code)
        The code that reads each attribute.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._words: list[int] = []
        self._kept: list[Any] = []
        self.code = tuple((name, self._code(value)) for name, value in arguments.items())
        self.memory = np.array(self._words or [0], np.int64)

    def _code(self, value: Any) -> str:
        at = len(self._words)
        match value:
            case bool():
                self._words.append(value)
                return f"load(attributes, {at}) != 0"
            case int():
                self._words.append(value)
                return f"load(attributes, {at})"
            case np.floating():
                self._words.append(int(np.float64(value).view(np.int64)))
                return f"np.{value.dtype}(load_float(attributes, {at}))"
            case tuple():
                return f"({' '.join(f'{self._code(item)},' for item in value)})"
            case np.ndarray():
                array = np.ascontiguousarray(value)
                self._kept.append(array)
                self._words += [array.ctypes.data, *value.shape]
                sizes = f"tuple_at(attributes + {8 * (at + 1)}, {value.ndim})"
                return f"array_at(load(attributes, {at}), {sizes}, {format_scalar(value.dtype)}, False)"
        return repr(value)  # None, and strings, which are constants of the code


def specialize(
    signature: Signature,
    cores: tuple[int, ...] | None,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    outputs: Sequence[DType],
    used: int,
    shapes: Sequence[tuple[int | None, ...]] | None,
) -> tuple[Specialization, AttributeWords]:
    """Return the specialization for a node's call, and the node's attributes as words for it.

    Parameters
    ----------
    cores : tuple of int or None
        The number of core dimensions per declared input and output, if declared.
    inputs : sequence of numpy.ndarray or None
        The inputs of the call.
    outputs : sequence of dtype
        The dtypes of the kernel's outputs, of which the model uses the first `used`.
    shapes : sequence of tuple or None
        The shapes from the shape function, if there is one; a size known only at run time is None.
    """
    tensors = [None if array is None else (array.dtype, array.ndim) for array in inputs]
    ordered = {attribute.name: attributes[attribute.name] for attribute in signature.attributes}
    words = AttributeWords(as_arguments(ordered, weak_float([*(item and item[0] for item in tensors), *outputs])))
    known = shapes is not None and all(size is not None for shape in shapes for size in shape)
    ranks = None if shapes is None else tuple(map(len, shapes))
    declared, split = len(signature.inputs), None
    if known and cores and ranks:
        # Optional inputs that the node lacks at the end are not among its inputs.
        own = (*cores[: len(inputs)], *cores[declared:])
        split = own if _has_loops([item and item[1] for item in tensors], ranks, own) else None
    specialization = Specialization(
        inputs=tuple(tensors),
        missing=max(0, declared - signature.inputs[-1].variadic - len(inputs)) if signature.inputs else 0,
        outputs=tuple(outputs),
        used=used,
        output_ranks=ranks,
        attributes=words.code,
        buffers=known and signature.takes_out,
        cores=split,
    )
    return specialization, words


def _has_loops(inputs: Sequence[int | None], outputs: Sequence[int], cores: Sequence[int]) -> bool:
    """Return whether these ranks have dimensions besides the core ones, equally many for all outputs."""
    loops = [rank - core for rank, core in zip([*inputs, *outputs], cores, strict=False) if rank is not None]
    own = {rank - core for rank, core in zip(outputs, cores[len(inputs) :], strict=True)}
    return len(own) == 1 and min(loops) >= 0 and max(loops) == max(own) > 0
