"""Ops and sessions as HTML, for notebooks."""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .origin import engine_name, package_of, source_line
from .tables import html_paragraphs, html_table

if TYPE_CHECKING:
    from .op import Op
    from .session import InferenceSession


def op_page(op: Op[..., Any]) -> str:
    """An op: what it takes and returns, and what is registered for it."""
    signature = op.signature
    rows: list[Sequence[str]] = [("", "name", "type")]
    for item in signature.inputs:
        kind = "variadic input" if item.variadic else "optional input" if item.optional else "input"
        rows.append((kind, item.name, str(item.type)))
    for attribute in signature.attributes:
        rows.append(("attribute", attribute.name, str(attribute).partition(": ")[2]))
    for output in signature.outputs:
        rows.append(("variadic output" if output.variadic else "output", output.name, str(output.type)))
    shapes = "" if op.shape_function is None else ", shape function"
    facts = [f"engine {engine_name(op)}", f"kernels {', '.join(op.device_types)}{shapes}", source_line(op)]
    facts += filter(None, [package_of(op)])
    lines = (inspect.getdoc(op.kernels["cpu"]) or "").splitlines()[:1]
    headline = f"<b>{html.escape(signature.qualified_name)}</b>, version {op.version}"
    return f"<p>{headline}</p>{html_paragraphs(lines)}{html_table(rows)}{html_paragraphs([' · '.join(facts)])}"


def session_page(session: InferenceSession, engine: str, nodes: Iterable[tuple[str, Op[..., Any]]]) -> str:
    """A session: what goes in and out, and the nodes that ops compute."""
    values: list[Sequence[str]] = [("", "name", "type", "shape")]
    for kind, items in (("input", session.get_inputs()), ("output", session.get_outputs())):
        values += [(kind, item.name, item.type, _spell_shape(item.shape)) for item in items]
    table: list[Sequence[str]] = [("node", "op", "version", "kernel")]
    table += [(name, op.signature.qualified_name, str(op.version), source_line(op)) for name, op in nodes]
    ours = html_table(table) if len(table) > 1 else html_paragraphs(["no node is computed by a declared op"])
    providers = ", ".join(session.get_providers())
    headline = f"<p><b>InferenceSession</b> on {html.escape(providers)}, ops hosted by the {engine} engine</p>"
    return f"{headline}{html_table(values)}{ours}"


def _spell_shape(shape: Sequence[Any]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
