"""Ops and sessions as HTML, for notebooks."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._ops.origin import engine_name, package_of, source_line
from .._schema.dtypes import spell_shape
from .._schema.signature import Signature
from .._tables import Part, html_parts


def op_page(signature: Signature, function: Callable[..., Any], device_types: Iterable[str], has_shapes: bool) -> str:
    """An op: what it takes and returns, and what is registered for it.

    Parameters
    ----------
    function : callable
        What it runs on the CPU.
    device_types : iterable of str
        Those with a kernel of their own.
    has_shapes : bool
        Whether it has a shape function.
    """
    rows: list[Sequence[str]] = [("", "name", "type")]
    for item in signature.inputs:
        kind = "variadic input" if item.variadic else "optional input" if item.optional else "input"
        rows.append((kind, item.name, str(item.type)))
    for attribute in signature.attributes:
        rows.append(("attribute", attribute.name, str(attribute).partition(": ")[2]))
    for output in signature.outputs:
        rows.append(("variadic output" if output.variadic else "output", output.name, str(output.type)))
    kernels = f"kernels {', '.join(device_types)}{', shape function' if has_shapes else ''}"
    facts = [f"engine {engine_name(signature)}", kernels, source_line(function)]
    facts += filter(None, [package_of(signature.domain, function)])
    parts: list[Part] = [*(inspect.getdoc(function) or "").splitlines()[:1], rows, " · ".join(facts)]
    headline = f"<b>{html.escape(signature.qualified_name)}</b>, version {signature.version}"
    return f"<p>{headline}</p>{html_parts(parts)}"


def session_page(
    inputs: Iterable[Any],
    outputs: Iterable[Any],
    providers: Iterable[str],
    engine: str,
    nodes: Iterable[tuple[str, Signature, Callable[..., Any]]],
) -> str:
    """A session: what goes in and out, and the nodes that ops compute.

    Parameters
    ----------
    inputs, outputs : iterable of onnxruntime.NodeArg
    nodes : iterable of (str, Signature, callable)
        The name of each node, and its op's signature and function.
    """
    values: list[Sequence[str]] = [("", "name", "type", "shape")]
    for kind, items in (("input", inputs), ("output", outputs)):
        values += [(kind, item.name, item.type, spell_shape(item.shape)) for item in items]
    table: list[Sequence[str]] = [("node", "op", "version", "kernel")]
    table += [(name, op.qualified_name, str(op.version), source_line(function)) for name, op, function in nodes]
    none = [] if len(table) > 1 else ["no node is computed by a declared op"]
    headline = f"<b>InferenceSession</b> on {html.escape(', '.join(providers))}, ops hosted by the {engine} engine"
    return f"<p>{headline}</p>{html_parts([values, table, *none])}"
