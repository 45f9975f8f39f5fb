"""Lines and tables, for a terminal and for a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

Table = Sequence[Sequence[str]]
"""Rows of cells; the first one is the header."""

Part = str | Table
"""A line of text, or a table; one without rows is not shown."""


class Shown(ABC):
    """What is lines and tables: text in a terminal, and HTML in a notebook."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """Its lines and tables, from top to bottom."""

    def __str__(self) -> str:
        parts = filled(self.parts())
        return "\n".join(printable(part) if isinstance(part, str) else text_table(part) for part in parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_parts(self.parts())


def filled(parts: Iterable[Part]) -> list[Part]:
    """Lines and tables without those tables that are a header alone."""
    return [part for part in parts if isinstance(part, str) or len(part) > 1]


def printable(text: str) -> str:
    """A text whose control characters are spelled: names in a model must not command the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def text_table(rows: Table) -> str:
    """A table in aligned columns."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_parts(parts: Iterable[Part]) -> str:
    """Lines and tables as HTML, escaped; empty lines are left out."""
    return "".join(html_paragraphs([part]) if isinstance(part, str) else html_table(part) for part in filled(parts))


def html_paragraphs(lines: Iterable[str]) -> str:
    """Lines of text as HTML paragraphs, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


def html_table(rows: Table) -> str:
    """A table as HTML, escaped."""
    header, *body = ([html.escape(cell) for cell in row] for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in header)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
