"""`fedbandit compare`: one table that fits, one picture, JSON, and a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedbandit.cli.main import app
from fedbandit.cli.researcher import compare_command
from fedbandit.comparison import entrants
from fedbandit.comparison import instances as standard
from fedbandit.comparison.contest import Standing
from fedbandit.comparison.entrants import ENTRANTS
from fedbandit.comparison.instances import INSTANCES
from fedbandit.simulator.result import Estimate
from fedbandit.simulator.tasks import synthetic


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small instance beside those that need a file, and few entrants."""
    task = synthetic(3, 5)
    few = {
        name: known._replace(silos=4, rounds=40, task=lambda paths: task)
        for name, known in INSTANCES.items()
        if name in ("synthetic", *standard.NEEDS)
    }
    monkeypatch.setattr(standard, "INSTANCES", few)
    chosen = tuple(entrant for entrant in ENTRANTS if entrant.name in ("fed-lin-ucb", "secure-sum"))
    monkeypatch.setattr(entrants, "ENTRANTS", chosen)


@pytest.mark.usefixtures("small")
def test_a_file_of_ones_own_is_compared_and_audited(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def plan(asked):\n    return asked.changed(trust='silo', mechanism='tree')\n")
    options = f"--runs 1 --trials 50 --out {tmp_path}"
    result = CliRunner().invoke(app, ["compare", str(file), *options.split(), "--json"])
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert [one["name"] for one in found["outcomes"]] == ["yours", "fed-lin-ucb", "secure-sum"]
    assert [one["audit"]["verdict"] for one in found["outcomes"]] == ["holds", "broken", "holds"]
    assert found["instances"] == [{"name": "synthetic", "silos": 4, "rounds": 40, "dim": 3}]
    assert (tmp_path / "comparison.svg").exists()
    assert json.loads((tmp_path / "comparison.json").read_text()) == found
    table = (tmp_path / "comparison.md").read_text().split("\n\n")[1].splitlines()
    assert [row.split(" | ")[:4] for row in table[2:]] == [
        ["| yours", "own silo", "yes", "holds"],
        ["| fed-lin-ucb", "all", "no", "broken"],
        ["| secure-sum", "two", "yes", "holds"],
    ]
    assert "skipped letor: it needs --letor PATH" in result.stderr
    assert "skipped warfarin: it needs --warfarin PATH" in result.stderr


@pytest.mark.usefixtures("small")
def test_only_those_who_were_named_take_part(tmp_path: Path) -> None:
    options = ["--runs", "1", "--trials", "20", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, ["compare", "--against", " secure-sum,secure-sum", *options])
    assert result.exit_code == 0, result.exception
    assert [one["name"] for one in json.loads(result.stdout)["outcomes"]] == ["secure-sum"]
    quick = CliRunner().invoke(app, ["compare", "--quick", "--against", "secure-sum", *options[:-1]])
    assert quick.exit_code == 0, quick.exception
    assert (tmp_path / "comparison.md").read_text().startswith("(1, 1e-05), 1 run of a tenth of the rounds, seed 0")
    refused = CliRunner().invoke(app, ["compare", "--against", "nobody", *options])
    assert "against must be one of" in str(refused.exception)


@pytest.mark.usefixtures("small")
def test_a_file_that_is_no_protocol_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    result = CliRunner().invoke(app, ["compare", str(file), "--out", str(tmp_path)])
    assert result.exit_code != 0
    assert "must define a function plan(asked)" in str(result.exception)


def test_the_table_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    regret = {name: Estimate(0.123, 0.01) for name in INSTANCES}
    rows = [
        Standing(entrant.name, "own silo", "(1, 1e-05)", "broken", 0.5, regret, {}, {"letor": "why"})
        for entrant in ENTRANTS
    ]
    compare_command._show(rows, list(INSTANCES), "(1, 1e-05), 3 runs, seed 0: regret per user, 1 is chance")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(rows)
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert lines[1].split() == ["protocol", "trusts", "DP", "audit", *INSTANCES]
    assert all(entrant.name in line for entrant, line in zip(ENTRANTS, lines[2:], strict=True))
