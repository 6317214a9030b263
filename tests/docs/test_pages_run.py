"""Every page that teaches is run from an empty folder, as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page, same

LIVE = DOCS / "tutorials" / "engineer.md"  # has a test of its own
PAGES = sorted({*DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md")} - {LIVE})
PAGES += [
    DOCS / name for name in ("install.md", "maths.md", "examples.md", "regulation.md", "software.md", "glossary.md")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path) == ""


def test_what_is_printed_is_held_against_what_is_shown() -> None:
    assert same("a  1\nb 2\nc 3\n", "a 1\n...\nc 3\n")
    assert not same("a 1\nb 2\nc 4\n", "a 1\n...\nc 3\n")
    assert not same("a 1\nb 2\n", "a 1\n")
