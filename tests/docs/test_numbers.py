"""Numbers that pages state without a command are computed here."""

from __future__ import annotations

import math
import re

import pytest

from tests.docs.pages import DOCS, ROOT

OFFICER = (DOCS / "tutorials" / "officer.md").read_text()
CHOOSING = (DOCS / "how-to" / "choose-epsilon.md").read_text()


def sure(before: float, epsilon: float) -> float:
    odds = before / (1 - before) * math.exp(epsilon)
    return odds / (1 + odds)


def test_odds_of_the_officer() -> None:
    rows = re.findall(r"^\| ([0-9.]+) \| ([0-9.]+) times \| ([0-9.]+) % \| ([0-9.]+) % \|$", OFFICER, re.MULTILINE)
    assert len(rows) == 6
    for epsilon, factor, even, rare in (map(float, row) for row in rows):
        assert factor == pytest.approx(math.exp(epsilon), abs=0.005)
        assert even == pytest.approx(100 * sure(1 / 2, epsilon), abs=0.05)
        assert rare == pytest.approx(100 * sure(1 / 100, epsilon), abs=0.05)


def test_odds_of_whoever_chooses() -> None:
    rows = re.findall(r"^ +\| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) % \|$", CHOOSING, re.MULTILINE)
    assert len(rows) == 4
    for epsilon, factor, even in (map(float, row) for row in rows):
        assert factor == pytest.approx(math.exp(epsilon), abs=0.005)
        assert even == pytest.approx(100 * sure(1 / 2, epsilon), abs=0.05)


def test_sizes_are_said_once() -> None:
    """README and install page have the same table, as far as the README goes."""
    rows = [
        dict(re.findall(r"^\| (`.*?`) \| .*? \| ([0-9,]+) \|$", page.read_text(), flags=re.MULTILINE))
        for page in (ROOT / "README.md", DOCS / "install.md")
    ]
    assert len(rows[0]) == 4
    assert rows[0] == rows[1]
