"""Every figure that is committed has the colours of the protocols that it shows, and no others."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

from fedbandit.look.colours import OTHERS, PROTOCOLS, colour_of, colours
from fedbandit.paper.figures.panels import PANELS

DOCS = Path(__file__).parents[2] / "docs"
NEAR = 16  # of 255, in each of red, green and blue
DRAWN = "Matplotlib"  # who says so in the file; diagrams of packages show no protocol
FIGURES = sorted(file for file in DOCS.rglob("*.svg") if DRAWN in file.read_text())
TEXT_OR_COLOUR = re.compile(r"<!-- (.*?) -->|(?:stroke|fill): (#[0-9a-f]{6})")
PAPERS = {curve.label: PROTOCOLS[curve.protocol] for panel in PANELS.values() for curve in panel.curves}


def is_grey(colour: str) -> bool:
    return colour[1:3] == colour[3:5] == colour[5:7]


def legend(svg: str) -> dict[str, str]:
    """By what a legend says, the colour of the line before it; empty where there is no legend."""
    found, last = dict[str, str](), ""
    for text, colour in TEXT_OR_COLOUR.findall(svg[svg.index('id="legend_1"') :] if 'id="legend_1"' in svg else ""):
        if text:
            found[unescape(text)] = last
        last = colour if colour not in ("", "#ffffff") else last
    return found


def colour_known(label: str) -> str | None:
    """Panels of the paper's figures use its own names."""
    return PAPERS.get(label.removeprefix("bound of ")) or colour_of(label)


def test_the_figures_are_found() -> None:
    names = {file.name for file in FIGURES}
    assert {"readme.svg", "comparison.svg", "frontier.svg", "replay-warfarin.svg"} <= names
    assert {f"{name}.svg" for name in PANELS} <= names


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.stem)
def test_a_line_has_the_colour_of_its_protocol(file: Path) -> None:
    said = legend(file.read_text())
    known = {label: colour for label in said if (colour := colour_known(label)) is not None}
    assert {label: said[label] for label in known} == known


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.stem)
def test_a_figure_has_no_other_colours(file: Path) -> None:
    svg = file.read_text()
    texts = {unescape(text) for text, _ in TEXT_OR_COLOUR.findall(svg) if text}
    allowed = {colour_known(text) for text in texts} | set(OTHERS)
    used = {colour for _, colour in TEXT_OR_COLOUR.findall(svg) if colour and not is_grey(colour)}
    assert used <= allowed


def test_the_comparison_has_all_of_its_own() -> None:
    """It has no legend: a row has its protocol's name, and the row of one that was left out everywhere is empty."""
    outcomes = json.loads((DOCS / "figures" / "comparison.json").read_text())["outcomes"]
    painted, played = colours([one["name"] for one in outcomes]), [one["name"] for one in outcomes if one["regret"]]
    used = {colour for _, colour in TEXT_OR_COLOUR.findall((DOCS / "figures" / "comparison.svg").read_text())}
    assert {colour for colour in used if colour and not is_grey(colour)} == {
        painted[name] for name in played if not is_grey(painted[name])
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_of_the_planner_keeps_the_colours(scheme: str) -> None:
    """Pictures have few colours, and lines are thin: the orange of `ldp` had become the red of `silo`."""
    picture = Image.open(DOCS / "figures" / f"planner-curves-{scheme}.png").convert("RGB")
    raw = picture.tobytes()
    found = {raw[at : at + 3] for at in range(0, len(raw), 3)}
    for name in ("isolated", "secure-sum", "silo", "ldp", "local", "fed-lin-ucb"):
        wanted = [int(PROTOCOLS[name][at : at + 2], 16) for at in (1, 3, 5)]
        nearest = min(max(abs(one - other) for one, other in zip(wanted, each, strict=True)) for each in found)
        assert nearest <= NEAR, (name, nearest)
