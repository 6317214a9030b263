"""Simulations: one seed gives one set of numbers, on any number of cores and however runs are divided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import fedbandit as fb
from fedbandit.simulator import runner
from fedbandit.simulator.kernels import checked
from fedbandit.simulator.result import Result
from fedbandit.simulator.runner import Job, divided, play_here
from fedbandit.simulator.tasks import synthetic
from tests.simulator.small import BASE, PLANS, RUNS, TASK


def same(first: Result, second: Result) -> bool:
    return first.frame.equals(second.frame) and first.totals.sort("name", "run").equals(
        second.totals.sort("name", "run")
    )


def test_one_seed_gives_the_same_numbers_and_another_does_not(result: Result) -> None:
    assert same(fb.simulate(TASK, PLANS, RUNS, seed=3), result)
    other = fb.simulate(TASK, {"ldp": PLANS["ldp"]}, RUNS, seed=4)
    assert not np.isclose(other.final("ldp"), result.final("ldp")).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_on_any_number_of_cores(threads: int, result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "LITTLE", 0)  # a block as small as these is otherwise one thread's
    before = numba.get_num_threads()
    if threads > numba.config.NUMBA_NUM_THREADS:  # type: ignore[attr-defined]
        pytest.skip("this machine has one core")
    try:
        numba.set_num_threads(threads)
        assert same(fb.simulate(TASK, PLANS, RUNS, seed=3), result)
    finally:
        numba.set_num_threads(before)


def test_matrix_libraries_have_one_thread_while_runs_are_played() -> None:
    """More would wait for each other over matrices of this size, and round in an order of their own."""
    seen = []
    with threadpool_limits(limits=2, user_api="blas"):
        fb.simulate(TASK, {"ldp": PLANS["ldp"]}, 1, progress=lambda share: seen.append(blas_threads()))
        assert blas_threads() == {2}, "afterwards it is as it was"
    assert seen
    assert set.union(*seen) == {1}


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


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


def test_jobs_can_be_played_in_any_order(result: Result) -> None:
    def backwards(jobs: list[Job], progress: Any) -> Any:
        return play_here(jobs[::-1], progress)

    assert same(fb.simulate(TASK, PLANS, RUNS, seed=3, executor=backwards), result)


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


def test_an_interruption_before_anything_is_finished_is_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        fb.simulate(TASK, PLANS, 2, progress=Interrupter(0.0))


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    fb.simulate(TASK, {name: PLANS[name] for name in ("silo", "ldp-eager")}, 7, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_jobs_put_runs_first() -> None:
    jobs = divided(TASK, PLANS, 7, 0, (30,), "float32")
    batches_of_runs = [min(job.runs) // runner.RUNS_AT_ONCE for job in jobs]
    assert batches_of_runs == sorted(batches_of_runs)
    for name in PLANS:
        assert sorted(run for job in jobs if name in job.plans for run in job.runs) == list(range(7))


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


def test_precision_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"^precision must be one of float32, float64; got 'half'$"):
        fb.simulate(TASK, PLANS, 1, precision="half")  # type: ignore[arg-type]


def test_one_plan_is_not_plans_by_name() -> None:
    with pytest.raises(ValueError, match=r"^plans must be plans by name, such as \{'ours': plan\}, got Plan$"):
        fb.simulate(TASK, BASE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^plans must hold a Plan under every name, got int for 'ours'$"):
        fb.simulate(TASK, {"theirs": BASE, "ours": 3})  # type: ignore[dict-item]


def test_delays_are_no_number() -> None:
    with pytest.raises(ValueError, match=r"^delays must be Delays\(\.\.\.\) of .*, got 3$"):
        fb.simulate(TASK, {"ours": BASE}, delays=3)  # type: ignore[arg-type]
