"""What `pip install fedbandit` brings is enough for plans, certificates, audits, attacks and ledgers; for the rest one
line says what to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.fresh import run_fresh

RUN = """
import sys
from fedbandit.cli.main import main
for arguments in {commands!r}:
    sys.argv = ["fedbandit", *arguments.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 0, arguments
"""
ENOUGH = (
    "plan",
    "plan --best --days 30",
    "audit plan.json --trials 200",
    "certificate plan.json --trials 200",
    "attack",
)
PLAN = {"silos": 3, "rounds": 10, "dim": 2, "trust": "silo", "privacy": {"epsilon": 1.0, "delta": 1e-5}}


def test_what_needs_no_extra(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    done = run_fresh(f"if __name__ == '__main__':\n{_indented(RUN.format(commands=ENOUGH))}", (), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "# Privacy certificate" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "extra"), [("simulate", "simulate"), ("status x", "live"), ("evaluate x", "simulate")]
)
def test_what_does_says_which(arguments: str, extra: str, tmp_path: Path) -> None:
    code = f"import sys; sys.argv = ['fedbandit', *{arguments.split()!r}]\nfrom fedbandit.cli.main import main; main()"
    done = run_fresh(code, (), tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: No module named ")
    assert done.stderr.endswith(f": pip install 'fedbandit[{extra}]'\n")


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def test_the_planners_page_says_what_its_simulations_need(tmp_path: Path) -> None:
    """Everything else on it works."""
    code = """
from fedbandit.web.planner import planner_page as page
page._warm_up()
visit = page.Visit({"days": "30"}, {}, lambda: False)
calls = page._calls()
assert b"secure-sum" in calls["/api/plan"](visit).body
print(*calls["/api/simulation"](visit).events)
"""
    done = run_fresh(code, (), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "pip install 'fedbandit[simulate]'" in done.stdout
