"""Tables, and the lines around them, for a terminal and for a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def printable(text: str) -> str:
    """A text whose control characters are spelled: names in a model must not command the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; the first one is the header."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_paragraphs(lines: Iterable[str]) -> str:
    """Lines of text as HTML paragraphs, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """The same as an HTML table; the cells are escaped."""
    header, *body = ([html.escape(cell) for cell in row] for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in header)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
