"""`{notebook} NAME`: the notebook of an example as a page of the site, with its text, its code and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

__all__ = ["as_markdown", "setup"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def as_markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """A piece per cell, and one for what all outputs of a cell print."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        else:
            yield _fenced("python", source)
            if printed := "".join("".join(output["text"]) for output in cell["outputs"]):
                yield _fenced("text", printed)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


class Notebook(SphinxDirective):  # type: ignore[misc]
    """The cells of examples/NAME/NAME.ipynb, one after the other."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        file = EXAMPLES / name / f"{name}.ipynb"
        self.env.note_dependency(str(file))
        text = "\n\n".join(as_markdown(json.loads(file.read_text())))
        holder = nodes.Element()
        self.state.nested_parse(StringList(text.splitlines(), str(file)), 0, holder, match_titles=True)
        return list(holder.children)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("notebook", Notebook)
    return {"parallel_read_safe": True}
