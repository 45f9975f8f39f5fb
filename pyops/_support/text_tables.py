"""Rendering of lines and tables, as text for terminals and as HTML for notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

Table = Sequence[Sequence[str]]
"""Rows of cells; the first one is the header."""

Part = str | Table
"""A line of text, or a table, which is left out if it has no rows."""


class Displayable(ABC):
    """Base of objects that are displayed as lines and tables: text in terminals, HTML in notebooks."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """Return the lines and tables to display, from top to bottom."""

    def __str__(self) -> str:
        parts = without_empty_tables(self.parts())
        return "\n".join(printable(part) if isinstance(part, str) else text_table(part) for part in parts)

    __repr__ = __str__

    def picture(self) -> str:
        """Return a picture in SVG to display below them in a notebook, or an empty string."""
        return ""

    def _repr_html_(self) -> str:
        return html_parts(self.parts()) + self.picture()


def without_empty_tables(parts: Iterable[Part]) -> list[Part]:
    """Return the parts without tables that have only a header."""
    return [part for part in parts if isinstance(part, str) or len(part) > 1]


def printable(text: str) -> str:
    """Return the text with control characters escaped.

    Names in a model could otherwise send escape sequences to the terminal.
    """
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def text_table(rows: Table) -> str:
    """Return a table as text with aligned columns."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_parts(parts: Iterable[Part]) -> str:
    """Return lines and tables as escaped HTML, without empty lines and empty tables."""
    from html import escape  # a declaration does not need it

    def lines(rows: Table, tag: str) -> str:
        return "".join(f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in row)}</tr>" for row in rows)

    return "".join(
        f"<p>{escape(part)}</p>"
        if isinstance(part, str)
        else f"<table><thead>{lines(part[:1], 'th')}</thead><tbody>{lines(part[1:], 'td')}</tbody></table>"
        for part in without_empty_tables(parts)
    )
