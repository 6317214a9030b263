"""Links from the pages to texts of the repository outside docs/ lead to the page of the site that includes the text.

The pages are read in two places. In the repository `../SECURITY.md` is a file beside the folder; on the site the page
`about/security` has its text.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from sphinx import addnodes
from sphinx.transforms import SphinxTransform

__all__ = ["PAGES", "setup"]

PAGES = {"CONTRIBUTING": "about/contributing", "SECURITY": "about/security", "CHANGELOG": "about/changelog"}


class OutsideFiles(SphinxTransform):  # type: ignore[misc]
    """Runs after parsing, before references are resolved."""

    default_priority = 5

    def apply(self, **_: Any) -> None:
        for node in self.document.findall(addnodes.pending_xref):
            page = PAGES.get(PurePath(str(node.get("reftarget", ""))).name)
            if page is not None and node.get("refdomain") == "doc":
                node["reftarget"] = page


def setup(app: Any) -> dict[str, bool]:
    app.add_transform(OutsideFiles)
    return {"parallel_read_safe": True}
