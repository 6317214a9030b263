"""The page on reliability lists the bugs that the suites plant, and no others; the tests that it names are there."""

import re
from pathlib import Path

from tests.federation.test_members import FAULTS as OF_MEMBERS
from tests.torture.attacks.at_the_broker import AT_THE_BROKER
from tests.torture.attacks.over_http import OVER_HTTP
from tests.torture.attacks.planted import PLANTED as ATTACKED
from tests.torture.crashes.plants import PLANTS as CRASHED
from tests.torture.simulation.planted_terms import PLANTED as SIMULATED
from tests.torture.test_attacks import MESSAGES
from tests.torture.test_undone import UNDONE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
UNDONE_TABLE = "| row | bug, as it was | fails then |\n|---|---|---|\n"


def test_the_page_lists_every_planted_bug_and_what_looks_for_it() -> None:
    planted = [
        *((name, "the crash suite") for name in CRASHED),
        *((name, "simulated histories") for name in SIMULATED),
        *((bug.name, f"attack `{bug.case.name}`") for bug in ATTACKED),
        *((name, f"`{test.__name__}`") for name, (_, test) in OF_MEMBERS.items()),
    ]
    listed = PAGE.read_text().split("| bug | looked for by |\n|---|---|\n")[1]
    assert listed == "".join(f"| {name} | {suite} |\n" for name, suite in planted)


def test_the_page_lists_every_fix_that_is_undone_and_what_fails_then() -> None:
    rows = PAGE.read_text().split(UNDONE_TABLE)[1].split("\n\n")[0].splitlines()
    assert rows == [f"| {one.row} | {one.bug} | {one.looked_for_by} |" for one in UNDONE]


def test_every_test_that_the_page_names_is_there() -> None:
    """One row for each of the fourteen ways in which a federation was broken before there was a suite."""
    rows = PAGE.read_text().split("| what happened | looked for by |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    attacks = {case.name for case in MESSAGES} | {case.name for case in AT_THE_BROKER.cases}
    attacks |= {case.name for case in OVER_HTTP.cases}
    assert len(rows) == 14
    for row in rows:
        tests, played = re.findall(r"`(tests/[\w/.]+)::(\w+)`", row), re.findall(r"attack `(\w+)`", row)
        assert tests or played
        assert set(played) <= attacks
        for path, name in tests:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"
