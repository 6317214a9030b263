"""One colour per protocol, everywhere, and each of them can be seen on both grounds."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from fedbandit.baselines import BASELINES
from fedbandit.look import page_files
from fedbandit.look.colours import LITERATURE, OTHERS, PROTOCOLS, colour_of, colours, css
from fedbandit.presets import NAMES


def luminance(value: str) -> float:
    """Of a colour, as WCAG has it."""
    parts = [int(value[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def grounds() -> set[str]:
    sheet = page_files.asset("style.css")
    assert sheet is not None
    found = set(re.findall(r"--(?:ground|raised): (#[0-9a-f]{6})", sheet.body.decode()))
    assert len(found) == 4
    return found


def test_every_protocol_has_a_colour_of_its_own() -> None:
    assert set(PROTOCOLS) == set(NAMES)
    assert set(LITERATURE) == set(BASELINES)
    every = [*PROTOCOLS.values(), *LITERATURE.values(), *OTHERS]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("value", [*PROTOCOLS.values(), *LITERATURE.values(), *OTHERS])
def test_it_can_be_seen_on_white_and_on_dark(value: str) -> None:
    assert min(contrast(value, ground) for ground in grounds()) >= 3.0


def test_budgets_of_a_protocol_share_its_colour_and_others_have_theirs() -> None:
    assert colour_of("ldp, epsilon = 1") == colour_of("ldp practical floor") == PROTOCOLS["ldp"]
    assert colour_of("ldp-eager") != colour_of("ldp")
    assert colour_of("zheng exact") == colour_of("zheng") == LITERATURE["zheng"]
    assert colour_of("alone") == colour_of("each silo alone") == PROTOCOLS["isolated"]
    assert colour_of("silos") is None  # a word that only begins like one
    painted = colours(["mine", "silo", "yours"])
    assert (painted["mine"], painted["silo"], painted["yours"]) == (OTHERS[0], PROTOCOLS["silo"], OTHERS[1])


def test_the_style_sheet_has_the_same_colours() -> None:
    sheet = css()
    for name, value in {**PROTOCOLS, **LITERATURE}.items():
        assert f"--protocol-{name}: {value};" in sheet


def test_no_two_protocols_can_be_confused() -> None:
    """At least so far apart in red, green and blue."""
    for one, other in combinations([*PROTOCOLS.values(), *LITERATURE.values()], 2):
        distance = sum((int(one[at : at + 2], 16) - int(other[at : at + 2], 16)) ** 2 for at in (1, 3, 5)) ** 0.5
        assert distance > 25, (one, other)
