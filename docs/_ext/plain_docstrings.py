"""Docstrings as this project writes them, Markdown's backticks and plain text, made safe for reStructuredText.

A field without a docstring has the comment that stands beside it in the source.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

__all__ = ["as_rst", "beside", "setup"]

SPECIAL = re.compile(r"([*|_\\])")
EXAMPLE = ">>>"


def as_rst(lines: list[str]) -> list[str]:
    """The same text: `code` becomes ``code``, and nothing else means anything. Examples and indented text stay."""
    made: list[str] = []
    for block in _blocks(lines):
        first = block[0]
        if first.startswith(EXAMPLE):
            made += block
        elif first.startswith(" "):
            made += ["::", "", *block]
        elif first.startswith("- "):
            for item in re.split(r"\n(?=- )", "\n".join(block)):
                made.append(_escaped(" ".join(item.split())))
        else:
            made.append(_escaped(" ".join(block)))
        made.append("")
    return made


def _blocks(lines: list[str]) -> list[list[str]]:
    """Lines between empty ones; an example, a list and indented text begin blocks of their own."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        now = blocks[-1]
        kind = _kind(line)
        if not line.strip():
            blocks.append([])
        elif not now or kind == _kind(now[0]) or now[0].startswith((EXAMPLE, "- ")):
            now.append(line)
        else:
            blocks.append([line])
    return [block for block in blocks if block]


def _kind(line: str) -> str:
    return next((start for start in (EXAMPLE, "- ", " ") if line.startswith(start)), "")


def _escaped(text: str) -> str:
    """Code in backticks as it is, and everything else without meaning."""
    parts = text.split("`")
    bullet = "- " if text.startswith("- ") else ""
    parts[0] = parts[0].removeprefix(bullet)
    return bullet + "".join(
        f"``{part}``" if index % 2 else SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts)
    )


def beside(path: str) -> str:
    """The comment beside a field of a class, from its source."""
    module, _, rest = path.partition(":")
    owner, _, field = rest.rpartition(".")
    source = inspect.getsource(getattr(import_module(module), owner))
    found = re.search(rf"^    {field}: [^#\n]*#[: ]*(.*)$", source, flags=re.MULTILINE)
    return found[1] if found else ""


def _process(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    generated = lines and lines[0].startswith("Alias for field number")  # what Python says of a tuple's fields
    if what in ("attribute", "property") and (generated or not any(lines)):
        module, _, rest = name.rpartition(".")[0].rpartition(".")
        lines[:] = [beside(f"{module}:{rest}.{name.rpartition('.')[2]}")]
    lines[:] = as_rst(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
