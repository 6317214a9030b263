"""Runs the notebook of an example in a kernel of its own, as its reader would, and looks at what came of it."""

from __future__ import annotations

import re

import nbformat
from nbformat.v4 import new_code_cell
from tools import notebooks

__all__ = ["played", "same_words"]


def played(name: str, checks: str) -> None:
    """Run an example from top to bottom, then these assertions on what it has left behind. It must print what the
    committed notebook shows, but for numbers: times differ, and live silos draw their noise from the system."""
    notebook = notebooks.from_source(name)
    notebook.cells.append(new_code_cell(checks))
    shown = notebooks.printed(nbformat.read(notebooks.path(name), as_version=4))
    printed = notebooks.printed(notebooks.executed(notebook, notebooks.path(name).parent))
    assert same_words(shown, printed), f"python tools/notebooks.py {name}\nprinted:\n{printed}\nshown:\n{shown}"


def same_words(one: str, other: str) -> bool:
    """Whether two texts are the same but for numbers and the spaces before them."""
    return _words(one) == _words(other) != ""


def _words(text: str) -> str:
    return re.sub(r" *\d+(\.\d+)?", " #", text)
