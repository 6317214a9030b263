"""The pages' own files, and the headers of every page: nothing is loaded from another host, nothing inline is run."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fedbandit.look.colours import css

__all__ = ["ASSETS", "HEADERS", "MEDIA", "Asset", "asset"]

ASSETS = "/assets/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
COLOURS = "colours.css"  # made from the same table as the figures' colours


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    media: str


@cache
def asset(name: str) -> Asset | None:
    """The file of this name; None if there is none."""
    if name == COLOURS:
        return Asset(css().encode(), MEDIA["css"])
    folder, ending = files("fedbandit") / "web" / "static", name.rpartition(".")[2]
    if ending not in MEDIA or name not in {one.name for one in folder.iterdir()}:
        return None
    return Asset((folder / name).read_bytes(), MEDIA[ending])
