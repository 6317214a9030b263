"""Draws docs/figures/packages.svg and rooms.svg from the import contract in pyproject.toml.

python docs/_ext/package_diagram.py            # writes the pictures
python docs/_ext/package_diagram.py --check    # exit code 1 if they are not what the contract says
"""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path

__all__ = ["PICTURES", "drawn", "layers"]

ROOT = Path(__file__).resolve().parents[2]
PICTURES = {"packages.svg": "arrows only point down", "rooms.svg": "the rooms of the federation"}
WIDTH, HEIGHT, GAP, LETTER, MARGIN = 880, 34, 26, 8.2, 10


def layers(contract: str) -> list[list[str]]:
    """Rows of modules of the contract called so, from the top; `python -m` is left out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (found,) = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"] == contract]
    rows = ([name.strip() for name in row.split("|")] for row in found["layers"])
    shown = ([name for name in row if name != "__main__"] for row in rows)
    return [row for row in shown if row]


def drawn(rows: list[list[str]]) -> str:
    """The rows as a picture: what stands higher may import what stands lower, and never the other way."""
    height = len(rows) * (HEIGHT + GAP) - GAP + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' font-family="ui-monospace, monospace" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
    ]
    for index, row in enumerate(rows):
        top = MARGIN + index * (HEIGHT + GAP)
        if index:
            middle = WIDTH / 2
            parts.append(f'<path d="M{middle} {top - GAP + 4}v{GAP - 12}" stroke="#555" stroke-width="1.5"/>')
            parts.append(f'<path d="M{middle - 5} {top - 9}h10l-5 7z" fill="#555"/>')
        widths = [len(name) * LETTER + 24 for name in row]
        left = (WIDTH - sum(widths) - 12 * (len(row) - 1)) / 2
        for name, width in zip(row, widths, strict=True):
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{HEIGHT}" rx="5"'
                f' fill="#eef3fb" stroke="#456"/>'
            )
            parts.append(
                f'<text x="{left + width / 2:.1f}" y="{top + 22}" text-anchor="middle" fill="#123">'
                f"{escape(name)}</text>"
            )
            left += width + 12
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    stale = []
    for name, contract in PICTURES.items():
        file, picture = ROOT / "docs" / "figures" / name, drawn(layers(contract))
        if not file.exists() or file.read_text() != picture:
            stale.append(name)
            if "--check" not in sys.argv:
                file.write_text(picture)
    if "--check" in sys.argv and stale:
        print(f"not what the import contract says: {', '.join(stale)}; run python docs/_ext/package_diagram.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
