"""A session as a line of text, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._ops.origin import source_line
from .._schema.dtypes import dtype_name, from_type_str, spell_shape
from .._schema.signature import Signature
from .._tables import html_parts, printable


def session_line(
    inputs: Iterable[Any], outputs: Iterable[Any], providers: Iterable[str], engine: str, node_count: int
) -> str:
    """Return what goes in and out of a session, and how many of its nodes ops compute, in a line."""
    given, results = (
        ", ".join(f"{item.name}: {_type(item.type)}{spell_shape(item.shape)}" for item in items) or "none"
        for items in (inputs, outputs)
    )
    nodes = "1 node is" if node_count == 1 else f"{node_count} nodes are"
    return printable(
        f"<InferenceSession on {', '.join(providers)}, {engine} engine; inputs: {given}; outputs: {results}; "
        f"{nodes} computed by ops>"
    )


def _type(type_str: str) -> str:
    row = from_type_str(type_str)
    return type_str if row is None else dtype_name(row.dtype)


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
