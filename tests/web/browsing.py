"""What tests in a real browser share: which browser, whether a page is well, and pictures of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.web.conftest import CHROMIUM

__all__ = ["Open", "in_browser", "shot", "small", "well"]

COLOURS = 200  # of a picture; those that cover few pixels are kept, for lines are thin
SERIOUS = ("serious", "critical")
Open = Callable[..., Any]
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")


def well(page: Any) -> None:
    """axe-core finds nothing serious, light and dark, and nothing is wider than the window."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
    for each in ("light", "dark"):
        page.emulate_media(color_scheme=each)
        found = axe.Axe().run(page).response["violations"]
        serious = [
            (one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found if one["impact"] in SERIOUS
        ]
        assert serious == [], each
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


def shot(page: Any, folder: Path | None, name: str, full: bool = False) -> None:
    """A picture for the documentation, of few colours and so of few bytes."""
    if folder is not None:
        small(page.screenshot(full_page=full), folder / f"{name}.png")


def small(picture: bytes, file: Path) -> None:
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        file, optimize=True
    )
