"""docs/comparison.md shows what `fedbandit compare` found, and what it found can be found again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedbandit._validate import ArgumentError
from fedbandit.baselines import BASELINES
from fedbandit.cli.main import app
from fedbandit.comparison.contest import contest
from fedbandit.comparison.entrants import ENTRANTS
from fedbandit.comparison.instances import Paths, instances
from fedbandit.comparison.own_file import plugged_in
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "comparison.md").read_text()
FOUND: dict[str, Any] = json.loads((DOCS / "figures" / "comparison.json").read_text())
NAMES = [size["name"] for size in FOUND["instances"]]
TALKING = ("fed-lin-ucb", "he", "dubey", "private-adaptive", "ldp", "silo")
BUDGET = Privacy(1.0, 1e-5)


def cell(one: dict[str, float]) -> str:
    return f"{one['mean']:.3f} ± {one['stderr']:.3f}"


def regret_table(found: dict[str, Any]) -> list[str]:
    """As the page has it."""
    rows = []
    for one in found["outcomes"]:
        promise = "no" if one["promise"] == "none" else "yes"
        cells = [cell(one["regret"][name]) for name in NAMES]
        rows.append(f"| {' | '.join([one['name'], one['trusts'], promise, one['audit']['verdict'], *cells])} |")
    return rows


def syncs_table(found: dict[str, Any]) -> list[str]:
    known = {one["name"]: one for one in found["outcomes"]}
    rows = []
    for name in TALKING:
        one = known[name]
        cells = [f"{one['syncs'][at]:.0f}, {one['regret'][at]['mean']:.3f}" for at in NAMES]
        rows.append(f"| {' | '.join([name, *cells])} |")
    return rows


def tables() -> list[list[str]]:
    """The rows of every table of the page, without head and line."""
    blocks = re.findall(r"(?:^\|.*\n)+", PAGE, flags=re.MULTILINE)
    return [block.splitlines()[2:] for block in blocks]


def test_the_tables_are_those_of_the_numbers() -> None:
    _, regret, syncs = tables()
    assert regret == regret_table(FOUND)
    assert syncs == syncs_table(FOUND)


def regret(name: str) -> list[float]:
    (one,) = [one for one in FOUND["outcomes"] if one["name"] == name]
    return [one["regret"][at]["mean"] for at in NAMES]


def test_who_wins_where_is_as_the_page_says() -> None:
    standing = [
        one["name"] for one in FOUND["outcomes"] if one["promise"] != "none" and one["audit"]["verdict"] == "holds"
    ]
    stated = [name for name in standing if not name.endswith(" practical")]
    for place in range(len(NAMES)):
        assert min(standing, key=lambda name: regret(name)[place]) == "secure-sum practical"
        assert min(stated, key=lambda name: regret(name)[place]) == "secure-sum"
    assert min(regret("shariff-sheffet")) > 0.9
    assert min(*regret("zheng")[1:], *regret("local")[1:]) > 0.9
    assert regret("chowdhury-zhou")[0] < 0.5 < 0.9 < min(regret("chowdhury-zhou")[1:])
    broken = [one["name"] for one in FOUND["outcomes"] if one["audit"]["verdict"] == "broken"]
    assert sorted(broken) == ["azize-basu", "dubey", "fed-lin-ucb", "he"]


def test_the_numbers_are_those_of_the_command_as_the_page_has_it() -> None:
    assert FOUND["budget"] == {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta}
    assert (FOUND["runs"], FOUND["seed"]) == (3, 0)
    assert [one["name"] for one in FOUND["outcomes"]] == [entrant.name for entrant in ENTRANTS]
    sizes = {one["name"]: (one["silos"], one["rounds"], one["dim"]) for one in FOUND["instances"]}
    assert sizes == {one.name: (one.silos, one.rounds, one.task.dim) for one in instances(Paths())}


def test_every_baseline_is_on_the_page() -> None:
    listed = re.findall(r"`([a-z-]+)`", " ".join(row.split("|")[1] for row in tables()[0]))
    assert set(BASELINES) < set(listed)
    for name, known in BASELINES.items():
        (row,) = [row for row in tables()[0] if row.startswith(f"| `{name}`")]
        year = re.search(r"\d{4}$", known.paper)
        assert year is not None
        assert year[0] in row


@pytest.mark.parametrize("name", ["fed-lin-ucb", "chowdhury-zhou", "secure-sum practical"])
def test_some_of_the_numbers_found_again(name: str) -> None:
    """Those that take a moment; the torture test finds all of them again."""
    (entrant,) = [one for one in ENTRANTS if one.name == name]
    (expected,) = [one for one in FOUND["outcomes"] if one["name"] == name]
    few = [one for one in instances(Paths()) if one.name in ("synthetic", "clinic")]
    (outcome,) = contest([entrant._replace(case=None)], few, BUDGET, runs=3, seed=0, trials=1)
    for instance in few:
        found = outcome.regret[instance.name]
        assert found.mean == pytest.approx(expected["regret"][instance.name]["mean"], rel=1e-6)
        assert found.stderr == pytest.approx(expected["regret"][instance.name]["stderr"], rel=1e-6)


@pytest.mark.torture
def test_all_of_the_numbers_found_again(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert regret_table(found) == regret_table(FOUND)
    assert syncs_table(found) == syncs_table(FOUND)


def test_the_file_on_the_page_is_a_protocol(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    file = tmp_path / "my_protocol.py"
    file.write_text(code)
    with plugged_in(file) as planned:
        made = planned(Plan(20, 250, 5, Privacy(1.0, 1e-5), trust="none"))
        assert made.guarantee.promised
        assert made.mechanism == "early"
        with pytest.raises(ArgumentError, match="first must be at most the horizon"):
            planned(Plan(20, 3, 5, Privacy(1.0, 1e-5), trust="none"))
