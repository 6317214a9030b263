"""The site: `make docs` builds it offline into out/site/VERSION, and any warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

from fedbandit import __version__  # noqa: E402

project = "fedbandit"
author = "the fedbandit authors"
project_copyright = "Apache-2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "plain_docstrings",
    "api_reference",
    "cli_reference",
    "notebook_pages",
    "outside_files",
]
root_doc = "index"
exclude_patterns = ["_ext", "README.md", "gallery/*.json"]
templates_path = ["_templates"]

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 4

default_role = "code"
highlight_language = "text"
smartquotes = False  # --best is not –best
nitpicky = True
# Types in signatures: not every one of them has an entry in the reference.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"fedbandit {__version__}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}
