"""HTML representation of a session, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._ops.origin import source_line
from .._schema.dtypes import spell_shape
from .._schema.signature import Signature
from .._tables import html_parts


def session_page(
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    providers: Iterable[str],
    engine: str,
    nodes: Iterable[tuple[str, Signature, Callable[..., Any]]],
) -> str:
    """Return HTML that lists a session's inputs, outputs, providers and the nodes that ops compute.

    Parameters
    ----------
    inputs, outputs : iterable of onnxruntime.NodeArg
    nodes : iterable of (str, Signature, callable)
        Each node's name, its op's signature and its kernel.
    """
    values: list[Sequence[str]] = [("", "name", "type", "shape")]
    for kind, items in (("input", inputs), ("output", outputs)):
        values += [(kind, item.name, item.type, spell_shape(item.shape)) for item in items]
    table: list[Sequence[str]] = [("node", "op", "version", "kernel")]
    table += [(name, op.qualified_name, str(op.version), source_line(function)) for name, op, function in nodes]
    none = [] if len(table) > 1 else ["no node is computed by a declared op"]
    headline = f"<b>InferenceSession</b> on {html.escape(', '.join(providers))}, ops hosted by the {engine} engine"
    return f"<p>{headline}</p>{html_parts([values, table, *none])}"
