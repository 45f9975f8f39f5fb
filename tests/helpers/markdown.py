"""Tables in Markdown, for generated pages."""

from __future__ import annotations

from collections.abc import Sequence


def as_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of which is the header, as a table in Markdown."""
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_cell(text: str) -> str:
    """Return text as it must be written in a cell of a table in Markdown."""
    # Python code in a message must not render as a link or as HTML.
    return text.replace("|", "\\|").replace("<", "&lt;").replace("](", "] (")
