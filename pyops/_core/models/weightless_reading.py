"""Reading of serialized models without their weights: the values of long initializers are skipped.

ONNX Runtime reads them itself, from the same file or bytes, so Python needs no copy of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Fields of ONNX's protobuf messages.
_GRAPH, _INITIALIZER, _NAME = 7, 5, 8
_VALUES = {4, 5, 7, 9, 10, 11}  # of TensorProto: its lists of numbers and raw_data, but not of strings
# Shorter initializers are read as they are: sizes, axes and the like. So are smaller models, which takes less time.
_LONG = 4096  # bytes
_LARGE = 2**24  # bytes
_WINDOW = 4096
_LONGEST_HEADER = 20  # bytes: a key and a length

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5  # wire types

_Read = Callable[[int, int], bytes]
_Field = tuple[int, int, int, int]


@dataclass
class Skimmed:
    """A serialized model in which long initializers have no values.

    Attributes
    ----------
    data : bytes
        The model.
    long : dict of str to (int, int)
        Where each of these initializers begins and ends in the source, by name.
    """

    data: bytes
    long: dict[str, tuple[int, int]]
    _source: str | bytes

    def with_initializers(self, model: bytes) -> bytes:
        """Return a serialized model with the long initializers and their values, which `model` lacks."""
        with _opened(self._source) as (read, _):
            found = [read(begin, end) for begin, end in self.long.values()]
        # Protobuf merges the fields of a message that occur more than once, such as the graph here.
        return b"".join([model, _header(_GRAPH, sum(map(len, found))), *found])


def skim(source: str | bytes) -> Skimmed:
    """Read a model from a path or from its bytes.

    Raises
    ------
    ValueError
        It is large, and is damaged or not a protobuf.
    """
    parts: list[bytes] = []
    long: dict[str, tuple[int, int]] = {}
    with _opened(source) as (read, size):
        if size < _LARGE:
            return Skimmed(read(0, size), long, source)
        for number, begin, body, end in _fields(read, 0, size):
            if number != _GRAPH:
                parts.append(read(begin, end))
                continue
            graph, copied = [], body
            for item, start, content, stop in _fields(read, body, end):
                if item == _INITIALIZER and stop - start >= _LONG:
                    name, tensor = _without_values(read, content, stop)
                    long[name] = start, stop
                    graph += [read(copied, start), _header(_INITIALIZER, len(tensor)), tensor]
                    copied = stop
            graph.append(read(copied, end))
            parts += [_header(_GRAPH, sum(map(len, graph))), *graph]
    return Skimmed(b"".join(parts), long, source)


def _without_values(read: _Read, begin: int, end: int) -> tuple[str, bytes]:
    """Return the name of a tensor, and the tensor without its values."""
    name, kept = "", []
    for number, start, content, stop in _fields(read, begin, end):
        if number == _NAME:
            name = read(content, stop).decode()
        if number not in _VALUES:
            kept.append(read(start, stop))
    return name, b"".join(kept)


@contextmanager
def _opened(source: str | bytes) -> Iterator[tuple[_Read, int]]:
    """Yield a function that returns the bytes between two positions, and the size."""
    with Path(source).open("rb") if isinstance(source, str) else io.BytesIO(source) as file:

        def read(begin: int, end: int) -> bytes:
            file.seek(begin)
            return file.read(end - begin)

        yield read, file.seek(0, io.SEEK_END)


def _fields(read: _Read, position: int, end: int) -> Iterator[_Field]:
    """Yield each field of a message: its number, and the positions of its header, its content and the next field."""
    window, base = b"", position
    while position < end:
        at = position - base
        if at + _LONGEST_HEADER > len(window):
            window, base, at = read(position, position + _WINDOW), position, 0
        begin = position
        try:
            key, at = _varint(window, at)
            wire = key & 7
            if wire == _LENGTH:
                length, at = _varint(window, at)
            elif wire == _VARINT:
                length = _varint(window, at)[1] - at
            elif wire in (_FIXED_64, _FIXED_32):
                length = 8 if wire == _FIXED_64 else 4
            else:
                raise ValueError(f"there is no wire type {wire}")
        except IndexError:
            raise ValueError("the message ends within a field") from None
        position = base + at + length
        if position > end:
            raise ValueError("a field ends after its message")
        yield key >> 3, begin, base + at, position


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    number = data[at]
    at += 1
    if number < 128:
        return number, at
    number, shift = number & 127, 7
    while (byte := data[at]) >= 128:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
    return number | byte << shift, at + 1


def _header(field: int, length: int) -> bytes:
    """Return the key of a field, and the length of its content."""
    header = bytearray([field << 3 | _LENGTH])
    while length >= 128:
        header.append(length & 127 | 128)
        length >>= 7
    return bytes([*header, length])
