"""Runs the notebook of an example in a kernel of its own, as its reader would, and looks at what came of it."""

from __future__ import annotations

import re

import nbformat
from nbformat.v4 import new_code_cell
from tools import notebooks

__all__ = ["VARYING", "committed", "masked", "played"]

# What differs from run to run, and nothing else: in the part of a line that an expression finds, numbers become `#`.
# Everything else that a notebook prints must be, digit by digit, what the committed notebook shows.
VARYING: dict[str, dict[str, str]] = {
    "clinic": {
        r"(?<=week \d )[\d.]+%": "live silos draw noise and random actions from the system",
        r"the newest model would help .*": "each log holds what its live silo chose",
    },
    "news": {r"[\d.]+% in the first two days, .*": "live silos draw noise and random actions from the system"},
    "shop": {r"took [\d.]+ ms here": "a time of this machine"},
}


def played(name: str, checks: str) -> None:
    """Run an example from top to bottom, then these assertions on what it has left behind. It must print what the
    committed notebook shows, but for what is `VARYING`."""
    notebook = notebooks.from_source(name)
    notebook.cells.append(new_code_cell(checks))
    shown = masked(name, committed(name))
    printed = masked(name, notebooks.printed(notebooks.executed(notebook, notebooks.path(name).parent)))
    assert printed == shown, f"the committed notebook is out of date; run: python tools/notebooks.py {name}"


def committed(name: str) -> str:
    """What the committed notebook of an example shows."""
    return notebooks.printed(nbformat.read(notebooks.path(name), as_version=4))


def masked(name: str, text: str) -> str:
    """A text that this example prints, with `#` in place of every number that is `VARYING`."""
    for part in VARYING.get(name, {}):
        text, found = re.subn(part, lambda match: re.sub(r"\d+(\.\d+)?", "#", match[0]), text)
        assert found, f"{name} prints nothing like {part}"
    return text
