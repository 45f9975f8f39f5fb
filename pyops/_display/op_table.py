"""Tables of the declared ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import Op
from .. import _core as core
from .._support.text_tables import Displayable, Part

_HEADER = ("domain", "op type", "version", "devices", "engine", "source", "signature")


def list_ops() -> OpTable:
    """Return every declared op, including those declared with onnxruntime-extensions' own ``onnx_op``.

    Returns
    -------
    OpTable
        A tuple sorted by domain, name and version. It is displayed as a table: domain, op type, version, devices
        with their own kernel, the engine that hosts the op on this machine (``reference``: only ONNX's
        ReferenceEvaluator can run it), source line and signature. Installed plug-ins that have not been imported are
        listed below it.

    Examples
    --------
    >>> import numpy as np
    >>> from numpy.typing import NDArray
    >>> import pyops
    >>> @pyops.onnx_op("listing::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> [op.name for op in pyops.list_ops() if op.domain == "listing"]
    ['Twice']
    """
    adopted = [op for op in core.adopted_ops(shipped=False).values() if isinstance(op, Op)]
    declared = (op for versions in core.all_op_versions().values() for op in versions.values())
    found = {(op.domain, op.name, op.version): op for op in (*adopted, *declared)}
    return OpTable((found[key] for key in sorted(found)), _notes())


def _notes() -> list[str]:
    notes = [
        f"{domain}::{name} cannot be hosted: {error}"
        for (domain, name), error in core.adopted_ops().items()
        if not isinstance(error, Op)
    ]
    how = "to be imported when a model needs it" if core.are_plugins_enabled() else "not imported while PYOPS_PLUGINS=0"
    return notes + [f"{plugin.name}: provided by {package}, {how}" for package, plugin in core.waiting_plugins()]


class OpTable(Displayable, tuple[Op[..., Any], ...]):
    """A tuple of ops, displayed as a table in a terminal and in a notebook.

    Attributes
    ----------
    notes : tuple of str
        Lines about ops that are not in the table.
    """

    notes: tuple[str, ...]

    def __new__(cls, ops: Iterable[core.AnyOp], notes: Iterable[str] = ()) -> OpTable:
        """Create the tuple and store the notes."""
        self = super().__new__(cls, ops)
        self.notes = tuple(notes)
        return self

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of the table as dictionaries, with the names and types that a report on a model has."""
        return [
            {
                "domain": op.domain,
                "op_type": op.name,
                "version": op.version,
                "devices": list(op.device_types),
                "engine": engine_name(op.signature),
                "kernel": format_kernel(op),
                "package": core.package_of(op.domain, op.kernels["cpu"]),
                "signature": op.signature.brief,
            }
            for op in self
        ]

    def parts(self) -> list[Part]:
        """Return the parts to display: the table and the notes."""
        where_empty = [] if self else ["no ops are declared"]
        return [[_HEADER, *map(_row, self)], *where_empty, *self.notes]


def _row(op: core.AnyOp) -> tuple[str, ...]:
    devices, engine = ", ".join(op.device_types), engine_name(op.signature)
    return op.domain, op.name, str(op.version), devices, engine, core.source_line(op.kernels["cpu"]), op.signature.brief


def format_kernel(op: core.AnyOp) -> str:
    """Return the name of an op's function and its source line."""
    return f"{op.__name__} ({core.source_line(op.kernels['cpu'])})"


def engine_name(signature: core.Signature) -> str:
    """Return the engine that hosts an op in a session on this machine; ``reference`` if none can."""
    try:
        from .._core import engine_of
    except ImportError:  # no ONNX Runtime
        return "reference"
    return engine_of(signature) or "reference"
