"""docs/paper.md: every file, test and command it names is there, and every measured line is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.core import TyperGroup

from fedbandit.cli.main import COMMANDS, loaded
from fedbandit.paper.claims import CLAIMS, PaperClaim
from fedbandit.paper.claims.gap import gap_claim
from fedbandit.paper.claims.growth import growth_claims

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "fedbandit"


def quoted() -> list[str]:
    return re.findall(r"`([^`]+)`", PAGE)


def test_named_files_and_tests_exist():
    paths = [text for text in quoted() if re.fullmatch(r"[\w/]+\.py(::\w+)?", text)]
    assert len(paths) > 60
    for text in paths:
        path, _, test = text.partition("::")
        file = ROOT / path if path.startswith("tests/") else PACKAGE / path
        assert file.exists(), text
        if test:
            assert f"def {test}(" in file.read_text(encoding="utf-8"), text


def test_named_commands_exist():
    commands = [text.split()[1:] for text in quoted() if text.startswith("fedbandit ")]
    assert commands
    for name, *rest in commands:
        assert name in COMMANDS, name
        command = loaded(name)
        if isinstance(command, TyperGroup):
            assert rest[0] in command.commands, rest


def printed(claim: PaperClaim) -> bool:
    """Whether the page has the claim, its outcome and every measured line as they are computed now."""
    lines = (f"**{claim.name}** ({claim.outcome}): {claim.paper}", *(f"- {line}\n" for line in claim.measured))
    return all(line in PAGE for line in lines)


LONG = pytest.mark.torture  # simulations that take most of a minute each


@pytest.mark.parametrize("make", [*CLAIMS, pytest.param(gap_claim, marks=LONG)], ids=lambda make: make.__name__)
def test_measured_lines_are_what_the_command_prints(make):
    claim = make()
    assert printed(claim), claim


@LONG
def test_measured_growth_is_what_the_command_prints():
    for claim in growth_claims():
        assert printed(claim), claim


def test_a_number_that_drifts_is_told():
    claim = CLAIMS[0]()
    drifted = claim._replace(measured=(claim.measured[0].replace("1.0000", "1.0010"),))
    assert printed(claim)
    assert not printed(drifted)


def test_every_numbered_thing_of_the_paper_has_a_row():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert sum("| Theorem" in row for row in rows) >= 3
    for name in (
        "Silo-level LDP", "SDP", "Privacy leakage", "Boundedness", "Regularity", "sub-Gaussian", "Private-FedLinUCB",
        "P_alt", "P_vec^T", "P_1D", "Lazy", "Dubey", "Sensitivity vs. norm", "Corollary *LDP*", "Corollary *SDP*",
        "Lemma *amp*", "Lemma *general*", "Lemma *subG*", "Lemma *informal*", "p-sums", "Shuffled tree-based",
    ):  # fmt: skip
        assert any(name in row for row in rows), name
