"""Record of the nodes and functions that the translations of one export emit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import onnx_ir
from onnxscript import OnnxFunction

from ..errors import ExportError


class Keepers(AbstractContextManager["Keepers"]):
    """Invisible uses of values, which keep every pass inside the ``with`` block from dropping the values.

    The uses are nodes that belong to no graph.
    """

    def __init__(self) -> None:
        self._nodes: list[onnx_ir.Node] = []

    def keep(self, values: Sequence[onnx_ir.Value]) -> None:
        """Add a use of the values."""
        self._nodes.append(onnx_ir.Node("", "Identity", values))

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        self._nodes.clear()


class Functions(dict[tuple[str, str], OnnxFunction[..., Any]]):
    """onnxscript functions by domain and name."""

    def add(self, function: OnnxFunction[..., Any]) -> bool:
        """Add a function, and return whether it is new.

        Raises
        ------
        ExportError
            Another function has the same domain and name.
        """
        key = function.opset.domain, function.name
        if self.get(key, function) is not function:
            raise ExportError(
                f"two onnxscript functions are called {key[0]}::{key[1]}; give one another name, or another domain "
                'with @onnxscript.script(onnxscript.values.Opset("domain", 1))'
            )
        new = key not in self
        self[key] = function
        return new


@dataclass
class Emission:
    """Operators and functions that were emitted in one export."""

    keepers: Keepers  # uses of the outputs of declared ops
    versions: dict[tuple[str, str], set[int]] = field(default_factory=dict)  # by domain and name
    functions: Functions = field(default_factory=Functions)  # those called

    def add(self, domain: str, name: str, version: int) -> None:
        """Record that an operator was emitted."""
        self.versions.setdefault((domain, name), set()).add(version)


_current: ContextVar[Emission | None] = ContextVar("emission", default=None)


def current() -> Emission | None:
    """Return the Emission that is being recorded, or None if torch runs the export without `exporters`."""
    return _current.get()


@contextmanager
def record_emission() -> Iterator[Emission]:
    """Context manager: record what is emitted in the block."""
    with Keepers() as keepers:
        emission = Emission(keepers)
        token = _current.set(emission)
        try:
            yield emission
        finally:
            _current.reset(token)
