"""What a result says: means, standard errors, pairs of runs, files and plots."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedbandit.look.colours import PROTOCOLS, colours
from fedbandit.plan import Plan
from fedbandit.simulator.engine import Played
from fedbandit.simulator.plot import COLOURS
from fedbandit.simulator.result import Result, collected, estimate
from tests.simulator.small import BASE, PLANS, RUNS


def test_a_result_shows_itself_as_one_line_per_plan(result: Result) -> None:
    size, head, *rows = repr(result).splitlines()
    assert size == f"{RUNS} runs of 30 rounds, seed {result.seed}"
    assert head.split("  ")[0] == "plan"
    assert [row.split()[0] for row in rows] == list(result.names)
    assert rows[0].split()[1] == f"{result.regret(result.names[0]).mean:.4g}"
    assert all(name in result._repr_html_() for name in result.names)


def test_what_a_result_says(result: Result) -> None:
    assert result.names == tuple(PLANS)
    assert set(result.frame.columns) == {"name", "run", "round", "regret"}
    assert result.frame.select("name", "run", "round").is_unique().all()
    for name in PLANS:
        finals = result.final(name)
        assert finals.shape == (RUNS,)
        assert (finals > 0).all()
        assert result.regret(name).mean == pytest.approx(finals.mean())
        assert result.regret(name).stderr == pytest.approx(finals.std(ddof=1) / 2)
        rises = result.frame.filter(pl.col("name") == name).sort("run", "round").group_by("run", maintain_order=True)
        for _, rows in rises:
            assert (np.diff(rows["regret"].to_numpy()) >= 0).all()
        curve = result.curve(name)
        assert curve["round"].to_list()[-1] == 30
        assert curve["mean"][-1] == pytest.approx(result.regret(name).mean)
        assert curve["stderr"][-1] == pytest.approx(result.regret(name).stderr)
    paired = result.final("ldp") - result.final("fed-lin-ucb")
    assert result.excess("ldp", "fed-lin-ucb").mean == pytest.approx(paired.mean())
    assert result.excess("ldp", "fed-lin-ucb").stderr == pytest.approx(paired.std(ddof=1) / 2)


def test_syncs_are_counted(result: Result) -> None:
    for name, plan in PLANS.items():
        if plan.syncs is not None:
            assert result.syncs(name) == plan.syncs
    assert 1 <= result.syncs("dubey") <= 30


def test_excess_compares_runs_that_both_have() -> None:
    def played(*finals: float) -> Played:
        return Played(np.array([[final] for final in finals]), np.ones(len(finals), dtype=np.int64), 2)

    plans = {"a": BASE, "b": BASE}
    parts = [((0, 1), {"a": played(30.0, 60.0)}), ((1,), {"b": played(30.0)}), ((2,), {"b": played(90.0)})]
    result = collected(plans, (30,), 3, 0, parts)
    assert result.excess("a", over="b").mean == pytest.approx(1.0)  # run 1 alone
    assert result.regret("b").mean == pytest.approx(2.0)
    assert result.repaired == {"a": 2, "b": 4}


def test_estimates() -> None:
    assert estimate(np.array([1.0, 3.0])) == (2.0, 1.0)
    assert estimate(np.array([2.0])).mean == 2.0
    assert np.isnan(estimate(np.array([2.0])).stderr)


def test_saved_files_read_back(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "made" / "here")
    assert sorted(file.name for file in folder.iterdir()) == ["plans.json", "regret.parquet"]
    assert pl.read_parquet(folder / "regret.parquet").equals(result.frame)
    data = json.loads((folder / "plans.json").read_text())
    assert (data["seed"], data["runs"]) == (3, RUNS)
    assert data["finished_runs"] == dict.fromkeys(PLANS, RUNS)
    assert {name: Plan.from_dict(plan) for name, plan in data["plans"].items()} == PLANS
    assert {"fedbandit", "python", "numpy", "numba", "polars"} <= set(data["versions"])


@pytest.mark.parametrize(("name", "starts"), [("regret.svg", b"<?xml"), ("regret.png", b"\x89PNG")])
def test_plots(name: str, starts: bytes, result: Result, tmp_path: Path) -> None:
    result.plot(tmp_path / name, title="a title")
    content = (tmp_path / name).read_bytes()
    assert content.startswith(starts)
    result.plot(tmp_path / f"again-{name}", title="a title")
    assert (tmp_path / f"again-{name}").read_bytes() == content  # the same numbers, the same file


def test_a_protocol_has_its_colour_and_others_have_others() -> None:
    painted = colours(["secure-sum", "mine", "silo practical", "yours", "silo"])
    assert painted["silo practical"] == painted["silo"] == PROTOCOLS["silo"]
    assert len(set(painted.values())) == 4
    many = colours([f"other {number}" for number in range(30)])
    assert set(many.values()) == set(COLOURS)


def test_results_on_the_same_users_can_be_joined(result: Result) -> None:
    some = {name: PLANS[name] for name in list(PLANS)[:1]}
    one, other = (
        Result(
            {name: plan for name, plan in PLANS.items() if (name in some) == first},
            result.frame.filter(pl.col("name").is_in(list(some)) == first),
            result.totals.filter(pl.col("name").is_in(list(some)) == first),
            {name: result.repaired[name] for name in PLANS if (name in some) == first},
            result.runs,
            result.seed,
        )
        for first in (True, False)
    )
    joined = one.joined(other)
    assert joined.names == result.names
    assert joined.excess("ldp", "fed-lin-ucb") == result.excess("ldp", "fed-lin-ucb")
    assert all(joined.syncs(name) == result.syncs(name) for name in PLANS)
    with pytest.raises(ValueError, match=r"^other must hold other plans"):
        one.joined(one)


@pytest.mark.parametrize("ask", ["final", "regret", "syncs", "curve"])
def test_a_name_that_was_not_played_is_refused(ask: str, result: Result) -> None:
    with pytest.raises(ValueError, match=r"^name must be one of .*ldp.*; got 'nobody'$"):
        getattr(result, ask)("nobody")
