"""The HTML that notebooks show for an op."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .._ops.origin import package_of, source_line
from .._schema.signature import Signature
from .._tables import Part, html_parts


def op_html(signature: Signature, function: Callable[..., Any], device_types: Iterable[str], has_shapes: bool) -> str:
    """Return an op's inputs, attributes, outputs, kernels and origin as HTML.

    Parameters
    ----------
    function : callable
        The CPU kernel, whose docstring and location are shown.
    device_types : iterable of str
        The device types with a registered kernel.
    has_shapes : bool
        Whether the op has a shape function.
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
    facts = [kernels, source_line(function)]
    facts += filter(None, [package_of(signature.domain, function)])
    parts: list[Part] = [*(inspect.getdoc(function) or "").splitlines()[:1], rows, " · ".join(facts)]
    headline = f"<b>{html.escape(signature.qualified_name)}</b>, version {signature.version}"
    return f"<p>{headline}</p>{html_parts(parts)}"
