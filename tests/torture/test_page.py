"""The page on reliability lists the bugs that the suites plant, and no others."""

from pathlib import Path

from tests.torture.attacks.planted import PLANTED as ATTACKED
from tests.torture.crashes.plants import PLANTS as CRASHED
from tests.torture.simulation.planted import PLANTED as SIMULATED

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def test_the_page_lists_every_planted_bug_and_what_looks_for_it() -> None:
    planted = [
        *((name, "the crash suite") for name in CRASHED),
        *((name, "simulated histories") for name in SIMULATED),
        *((bug.name, f"attack `{bug.case.name}`") for bug in ATTACKED),
    ]
    listed = PAGE.read_text().split("| bug | looked for by |\n|---|---|\n")[1]
    assert listed == "".join(f"| {name} | {suite} |\n" for name, suite in planted)
