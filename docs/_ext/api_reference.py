"""`.. public:: MODULE`: every name of a module's `__all__`, from its docstring and signature."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

__all__ = ["MEMBERS", "public_names", "setup"]

MEMBERS = ("   :members:", "   :undoc-members:", "   :exclude-members: count, index")


def public_names(module: str) -> list[str]:
    """What a module says that others may use, but for the modules among it: those have sections of their own."""
    loaded = importlib.import_module(module)
    return [name for name in loaded.__all__ if not inspect.ismodule(getattr(loaded, name))]


class Public(SphinxDirective):  # type: ignore[misc]
    """One entry per public name, in the order of `__all__`; with names given as content, of those alone."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        loaded = importlib.import_module(module)
        lines: list[str] = []
        for name in [line.strip() for line in self.content if line.strip()] or public_names(module):
            lines += [*_entry(f"{module}.{name}", getattr(loaded, name)), ""]
        return self.parse_text_to_nodes("\n".join(lines))


def _entry(path: str, found: Any) -> list[str]:
    if inspect.isclass(found):
        return [f".. autoclass:: {path}", *MEMBERS]
    if inspect.isroutine(inspect.unwrap(found)):  # one that remembers its answers too
        return [f".. autofunction:: {path}"]
    return [f".. autodata:: {path}", "   :no-value:"]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("public", Public)
    return {"parallel_read_safe": True}
