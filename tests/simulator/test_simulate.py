"""Simulations: one seed gives one set of numbers, on any number of cores and however runs are divided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest

import fedbandit as fb
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, every
from fedbandit.simulator import runner
from fedbandit.simulator.engine import Played
from fedbandit.simulator.result import Result, collected, estimate
from fedbandit.simulator.runner import Part, divided, play_here
from fedbandit.simulator.simulated import RunsNoise, SimulatedFederation, runs_noise
from fedbandit.simulator.tasks import synthetic
from tests.statistical import difference_score

BASE = Plan(5, 30, 3, Privacy(5.0, 0.1))
TASK = synthetic(3, 7)
PLANS = {name: plan_for(name, BASE) for name in NAMES if name != "sdp-amplified"}
RUNS = 4


@pytest.fixture(scope="module")
def result() -> Result:
    return fb.simulate(TASK, PLANS, RUNS, seed=3)


def same(first: Result, second: Result) -> bool:
    return first.frame.equals(second.frame) and first.totals.sort("name", "run").equals(
        second.totals.sort("name", "run")
    )


def test_one_seed_gives_the_same_numbers_and_another_does_not(result: Result) -> None:
    assert same(fb.simulate(TASK, PLANS, RUNS, seed=3), result)
    other = fb.simulate(TASK, {"ldp": PLANS["ldp"]}, RUNS, seed=4)
    assert not np.isclose(other.final("ldp"), result.final("ldp")).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_on_any_number_of_cores(threads: int, result: Result) -> None:
    before = numba.get_num_threads()
    if threads > numba.config.NUMBA_NUM_THREADS:
        pytest.skip("this machine has one core")
    try:
        numba.set_num_threads(threads)
        assert same(fb.simulate(TASK, PLANS, RUNS, seed=3), result)
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("at_once", [1, 3])
def test_however_runs_are_divided(at_once: int, result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUNS_AT_ONCE", at_once)
    assert same(fb.simulate(TASK, PLANS, RUNS, seed=3), result)


def test_whoever_it_is_compared_with(result: Result) -> None:
    """Every protocol meets the same users, so its numbers are its own (regret is added up between other stops)."""
    for name in ("silo", "ldp-eager", "dubey", "sdp-vector-sum"):
        alone = fb.simulate(TASK, {name: PLANS[name]}, RUNS, seed=3)
        np.testing.assert_allclose(alone.final(name), result.final(name), rtol=1e-9)


def test_the_first_runs_are_the_same_however_many_follow(result: Result) -> None:
    fewer = fb.simulate(TASK, {name: PLANS[name] for name in ("silo", "local")}, 2, seed=3)
    np.testing.assert_allclose(fewer.final("silo"), result.final("silo")[:2], rtol=1e-9)
    np.testing.assert_allclose(fewer.final("local"), result.final("local")[:2], rtol=1e-9)


def test_parts_can_be_played_in_any_order(result: Result) -> None:
    def backwards(parts: list[Part], progress: Any) -> Any:
        return play_here(parts[::-1], progress)

    assert same(fb.simulate(TASK, PLANS, RUNS, seed=3, executor=backwards), result)


def test_all_protocols_have_the_same_first_round() -> None:
    """Before anything is learnt theta is zero and V a multiple of I: everybody takes the longest feature."""
    played = fb.simulate(TASK, PLANS, 2, seed=3, precision="float64").frame.filter(pl.col("round") == 1)
    for _, rows in played.group_by("run"):
        assert rows["regret"].max() - rows["regret"].min() < 1e-9


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


def test_synchronisations_are_counted(result: Result) -> None:
    for name, plan in PLANS.items():
        if plan.syncs is not None:
            assert result.syncs(name) == plan.syncs
    assert 1 <= result.syncs("dubey") <= 30


def test_nothing_is_repaired_without_noise() -> None:
    """Covariances that are not of full rank yet, rounded to the grid, are not broken ones."""
    plans = {"every": Plan(1, 40, 6, trust="none", schedule=every(1)), "growing": Plan(1, 40, 6, trust="none")}
    assert fb.simulate(synthetic(6, 8), plans, 3).repaired == {"every": 0, "growing": 0}


def test_noise_is_drawn_anew_for_every_run_name_and_seed() -> None:
    def drawn(seed: int, runs: tuple[int, ...], name: str) -> list[list[int]]:
        noise = runs_noise(seed, runs, name)
        return noise.gaussian(np.full(4, 1e9), (len(runs), 1))[:, 0].tolist()

    rows = [drawn(0, (0, 1, 2), "a"), drawn(0, (0, 1, 2), "b"), drawn(1, (0, 1, 2), "a")]
    numbers = [number for three in rows for row in three for number in row]
    assert len(set(numbers)) == len(numbers)
    assert drawn(0, (2,), "a") == rows[0][2:]  # whichever runs it is played with


class Hostile(RunsNoise):
    """Noise that makes every covariance negative in the second of two runs."""

    def gaussian(self, scales: np.ndarray, lead: tuple[int, ...] = ()) -> np.ndarray:
        drawn = np.zeros((*lead, len(scales)), dtype=np.int64)
        drawn[1, ..., 3:] = -(2**45)
        return drawn


def test_covariances_that_noise_has_broken_are_repaired_and_counted() -> None:
    plan = Plan(4, 30, 3, Privacy(1.0, 0.1), "silo", "tree", every(10))
    federation = SimulatedFederation(plan, Hostile(runs_noise(0, (0, 1), "x").sources))
    for round_ in (10, 20, 30):
        model = federation.synchronise(np.zeros((2, 4, 9), dtype=np.int64), 10, round_)
        assert all(np.isfinite(field).all() for field in model)
    assert federation.repaired == 3
    np.testing.assert_allclose(model.root[0], np.eye(3) / np.sqrt(plan.regulariser))


@pytest.mark.parametrize("rewards", ["bernoulli", "gaussian", "clipped", "exact"])
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_every_kind_of_user(rewards: Any, contexts: str) -> None:
    task = synthetic(3, 7, rewards=rewards, contexts=contexts, basis=True, same_in_all_runs=True)
    result = fb.simulate(task, {name: PLANS[name] for name in ("fed-lin-ucb", "ldp-eager")}, 2)
    assert np.isfinite(result.frame["regret"].to_numpy()).all()
    assert task.responses.bounded == (rewards != "gaussian")


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


class Interrupter:
    """A progress callback that is interrupted once this share is done."""

    def __init__(self, at: float) -> None:
        self.at, self.shares = at, [0.0]

    def __call__(self, share: float) -> None:
        self.shares.append(share)
        if share >= self.at:
            raise KeyboardInterrupt


def test_an_interruption_keeps_finished_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "RUNS_AT_ONCE", 1)
    plans = {name: PLANS[name] for name in ("fed-lin-ucb", "silo")}
    whole = fb.simulate(TASK, plans, RUNS, seed=3)
    stopped = fb.simulate(TASK, plans, RUNS, seed=3, progress=Interrupter(0.6))
    assert stopped.runs == RUNS
    for name in plans:
        np.testing.assert_array_equal(stopped.final(name), whole.final(name)[:2])
    assert stopped.describe()["finished_runs"] == {"fed-lin-ucb": 2, "silo": 2}


def test_an_interruption_between_ways_of_acting_leaves_a_result_that_can_be_used(tmp_path: Path) -> None:
    """Lazy plans are finished and eager ones have not begun: what there is can be read, saved and drawn."""
    plans = {name: PLANS[name] for name in ("silo", "ldp-eager", "dubey")}
    stopped = fb.simulate(TASK, plans, 2, seed=3, progress=Interrupter(0.4))
    assert len(stopped.final("silo")) == 2
    assert len(stopped.final("ldp-eager")) == 0
    assert np.isnan(stopped.regret("ldp-eager").mean)
    assert np.isnan(stopped.syncs("dubey"))
    assert np.isnan(stopped.excess("ldp-eager", over="silo").mean)
    stopped.save(tmp_path)
    stopped.plot(tmp_path / "regret.svg")
    assert json.loads((tmp_path / "plans.json").read_text())["finished_runs"] == {"silo": 2, "ldp-eager": 0, "dubey": 0}


def test_excess_compares_runs_that_both_have() -> None:
    def played(*finals: float) -> Played:
        return Played(np.array([[final] for final in finals]), np.ones(len(finals), dtype=np.int64), 2)

    plans = {"a": BASE, "b": BASE}
    parts = [((0, 1), {"a": played(30.0, 60.0)}), ((1,), {"b": played(30.0)}), ((2,), {"b": played(90.0)})]
    result = collected(plans, (30,), 3, 0, parts)
    assert result.excess("a", over="b").mean == pytest.approx(1.0)  # run 1 alone
    assert result.regret("b").mean == pytest.approx(2.0)
    assert result.repaired == {"a": 2, "b": 4}


def test_an_interruption_before_anything_is_finished_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        fb.simulate(TASK, PLANS, 2, progress=Interrupter(0.0))


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    fb.simulate(TASK, {name: PLANS[name] for name in ("silo", "ldp-eager")}, 7, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_parts_put_runs_first() -> None:
    parts = divided(TASK, PLANS, 7, 0, (30,), "float32")
    rounds_of_runs = [min(part.runs) // runner.RUNS_AT_ONCE for part in parts]
    assert rounds_of_runs == sorted(rounds_of_runs)
    for name in PLANS:
        assert sorted(run for part in parts if name in part.plans for run in part.runs) == list(range(7))


def test_estimates() -> None:
    assert estimate(np.array([1.0, 3.0])) == (2.0, 1.0)
    assert estimate(np.array([2.0])).mean == 2.0
    assert np.isnan(estimate(np.array([2.0])).stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TASK, {}, 1, 0), "plans must name at least one plan, got none"),
        ((TASK, PLANS, 0, 0), "runs must be a whole number >= 1, got 0"),
        ((TASK, PLANS, 1.5, 0), "runs must be a whole number >= 1, got 1.5"),
        ((TASK, PLANS, 1, -1), "seed must be a whole number >= 0, got -1"),
        (("synthetic", PLANS, 1, 0), "task must be made by fedbandit.tasks, got str"),
        ((synthetic(4, 7), PLANS, 1, 0), "dim must be 4, the task's, in all plans, got 3"),
        (
            (TASK, {"a": BASE, "b": BASE.changed(silos=6)}, 1, 0),
            "silos must be the same in all compared plans, got [5, 6]",
        ),
        (
            (TASK, {"a": BASE, "b": BASE.changed(rounds=31)}, 1, 0),
            "rounds must be the same in all compared plans, got [30, 31]",
        ),
        (
            (TASK, {"a": BASE, "b": BASE.changed(bits=21)}, 1, 0),
            "bits must be the same in all compared plans, got [20, 21]",
        ),
    ],
)
def test_bad_input(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:
        fb.simulate(*arguments)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 1}, "dim must be a whole number >= 2, got 1"),
        ({"arms": 0}, "arms must be a whole number >= 1, got 0"),
        ({"contexts": "stale"}, "contexts must be one of fresh, fixed; got 'stale'"),
        ({"rewards": "poisson"}, "rewards must be one of bernoulli, gaussian, clipped, exact; got 'poisson'"),
        ({"reward_std": 0.0}, "reward_std must be a finite number > 0, got 0.0"),
        ({"reward_std": float("nan")}, "reward_std must be a finite number > 0, got nan"),
    ],
)
def test_users_that_there_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        synthetic(**{"dim": 3, "arms": 5, **fields})
    assert str(error.value) == message


def test_precision_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"^precision must be one of float32, float64; got 'half'$"):
        fb.simulate(TASK, PLANS, 1, precision="half")


def test_float32_and_float64_have_the_same_regret_in_the_mean() -> None:
    """Features all have norm 1, so the first decisions are ties that rounding breaks: runs are not the same."""
    plans = {name: PLANS[name] for name in ("silo", "ldp-eager")}
    single, double = (fb.simulate(TASK, plans, 60, seed=1, precision=kind) for kind in ("float32", "float64"))
    for name in plans:
        assert abs(difference_score(single.final(name), double.final(name))) < 4.5


def test_an_adaptive_plan_of_every_acting_and_trust_runs() -> None:
    plans = {
        "raw": Plan(3, 20, 3, trust="none", schedule=adaptive(2.0)),
        "private": Plan(3, 20, 3, Privacy(5.0, 0.1), "central", "tree", adaptive(2.0, private=True)),
    }
    result = fb.simulate(TASK, plans, 2)
    assert result.syncs("raw") > 2
