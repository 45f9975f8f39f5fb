"""The memory that compiled code reads, as NumPy arrays; see `pyops._compiled.layout`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import layout
from .specialization import AttributeWords

if TYPE_CHECKING:
    from .machine_code import MachineCode

_MOST_SHAPES = 4096


def words(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return an array that holds these words."""
    return np.array(values, np.int64)


def address_of(memory: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Return the address of an array of words."""
    address: int = memory.ctypes.data
    return address


class Record:
    """The record of one specialization, which compiled code finds by its `address`."""

    def __init__(self, code: MachineCode, attributes: AttributeWords, input_sizes: int, output_sizes: int) -> None:
        self._kept = code, attributes
        self.entry = code.entry
        self._lock = threading.Lock()
        # Replaced tables are kept for a while, as another thread may still be reading one.
        self._tables = deque([_ShapeTable(16, input_sizes, output_sizes)], maxlen=4)
        tables = self._tables[0].address
        self._memory = words(code.entry, code.part, address_of(attributes.memory), tables)
        self.address = address_of(self._memory)

    def add_shapes(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add the output sizes (-1: any) for these input sizes to the shape table."""
        with self._lock:
            table = self._tables[-1]
            if table.is_full:
                bigger = _ShapeTable(2 * table.slots, len(inputs), len(outputs))
                if 2 * table.slots <= _MOST_SHAPES:
                    for entry in table.entries:
                        bigger.add(*entry)
                else:  # with so many shapes, old ones are unlikely to come again
                    bigger = _ShapeTable(16, len(inputs), len(outputs))
                self._tables.append(bigger)
                self._memory[layout.SHAPES] = bigger.address
                table = bigger
            if inputs not in [known for known, _ in table.entries]:
                table.add(inputs, outputs)


class _ShapeTable:
    def __init__(self, slots: int, inputs: int, outputs: int) -> None:
        self.slots = slots
        self.entries: list[tuple[Sequence[int], Sequence[int]]] = []
        self._step = 1 + inputs + outputs
        self._memory = words(slots - 1, inputs, outputs, *[0] * (slots * self._step))
        self.address = address_of(self._memory)

    @property
    def is_full(self) -> bool:
        return 2 * len(self.entries) >= self.slots

    def add(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        number = 0
        for size in inputs:
            number = (number * layout.HASH_FACTOR ^ size) & (2**64 - 1)
        number &= self.slots - 1
        while self._memory[layout.SLOTS + number * self._step]:
            number = (number + 1) & (self.slots - 1)
        at = layout.SLOTS + number * self._step
        self._memory[at + 1 : at + self._step] = [*inputs, *outputs]
        # Written last, since compiled code may be reading this slot.
        self._memory[at] = 1
        self.entries.append((inputs, outputs))
