"""Values as HTML, for people in notebooks: plain tables and lists, every text escaped, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["folded", "listed", "paragraph", "tabled"]


def tabled(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table; without `columns`, of names and values.

    >>> tabled(["a"], [["<1>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;1&gt;</td></tr></tbody></table>'
    """
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{titled}{f'<thead><tr>{head}</tr></thead>' if columns else ''}<tbody>{body}</tbody></table>"


def listed(items: Iterable[str], numbered: bool = False) -> str:
    """A list."""
    kind = "ol" if numbered else "ul"
    return f"<{kind}>{''.join(f'<li>{escape(item)}</li>' for item in items)}</{kind}>"


def folded(title: str, content: str) -> str:
    """Content, itself HTML, that opens at a click."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"
