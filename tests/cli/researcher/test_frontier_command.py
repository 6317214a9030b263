"""`fedbandit frontier`: what it prints and draws, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.harness import Command, assert_refused

SIZE = ("--silos", "5", "--rounds", "60", "--dim", "4", "--arms", "8", "--runs", "2")


def test_frontier(fedbandit: Command, tmp_path: Path) -> None:
    picture = tmp_path / "frontier.svg"
    chosen = ("--budgets", "1:0.1,5:0.1", "--curves", "silo,secure-sum practical", "--plot", picture)
    data = fedbandit("frontier", *SIZE, *chosen, "--json").json
    assert picture.read_text().startswith("<?xml")
    names = {(p["name"], p["epsilon"]) for p in data["points"]}
    assert names >= {(n, e) for n in ("ldp", "silo", "secure-sum practical") for e in (1.0, 5.0)}
    for point in data["points"]:
        assert set(point) >= {"name", "epsilon", "delta", "regret", "excess_ratio_to_paper", "syncs"}
        assert np.isfinite(point["regret"]["mean"])
    assert "x below" in fedbandit("frontier", *SIZE, *chosen).out


def test_ablation(fedbandit: Command) -> None:
    rows = fedbandit("frontier", *SIZE, "--ablation", "--json").json["ablation"]
    assert {row["trust"] for row in rows} == {"silo", "secure-sum"}
    assert [row["times_excess"] for row in rows if row["without"] == ""] == [1.0, 1.0]


@pytest.mark.parametrize("text", ["1", "1:2:3", "a:b", "1:0.1;5:0.1"])
def test_bad_budgets(text: str, fedbandit: Command) -> None:
    message = "error: budgets must look like 1:0.1,5:0.1 (EPSILON:DELTA), got"
    assert_refused(fedbandit("frontier", "--budgets", text), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "a", "--warfarin", "b"], "data must not be given together with warfarin"),
        (["--budgets", "0:0.1"], "epsilon must be a finite number > 0, got 0.0"),
        (["--ablation", "--confidence", "high"], "confidence must be one of theory, proof, practical"),
        (["--curves", "magic"], "curves must be one of ldp"),
    ],
)
def test_bad_input(arguments: list[str], message: str, fedbandit: Command) -> None:
    assert_refused(fedbandit("frontier", *SIZE, *arguments), message)
