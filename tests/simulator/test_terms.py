"""A new term that begins with what the last one has learnt: it pays, its radii cover it, and its noise is counted."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import fedbandit as fb
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.prior import COSTS_NOTHING, IN_THE_CLEAR, Prior
from fedbandit.bandit.statistics import Scales, unpack, width
from fedbandit.knowledge import OwnData, local_knowledge, nothing_public, prior_of, public_model
from fedbandit.simulator.result import Result, estimate
from fedbandit.simulator.simulated import SimulatedFederation, runs_noise
from fedbandit.simulator.tasks import synthetic
from tests.statistical import assert_std

SEED, RUNS, DIM = 0, 6, 4
PLAN = fb.Plan(
    20, 400, DIM, fb.Privacy(4.0, 1e-5), schedule=fb.every(10), confidence="practical", centre=0.5, ratio=4.0
)
TASK = synthetic(DIM, 10)


def early(result: Result, name: str, plan: fb.Plan) -> Floats:
    """Regret of the first tenth of a term, run by run."""
    rows = result.frame.filter((pl.col("name") == name) & (pl.col("round") <= plan.rounds // 10))
    return rows.group_by("run").agg(pl.col("regret").max()).sort("run")["regret"].to_numpy()


@pytest.fixture(scope="module")
def terms() -> tuple[Result, Result]:
    first = fb.simulate(TASK, {"learnt": PLAN}, RUNS, SEED, progress=lambda share: None)
    plans = {"learnt": PLAN.changed(prior=first.prior("learnt")), "anew": PLAN}
    return first, fb.simulate(TASK, plans, RUNS, SEED, progress=lambda share: None, after=first)


def test_what_was_learnt_helps(terms: tuple[Result, Result]) -> None:
    """The first tenth of the new term costs at most half of what it costs from nothing, to 4 standard errors; a prior
    that is worth nothing would not pass."""
    _, second = terms
    learnt, anew = early(second, "learnt", PLAN), early(second, "anew", PLAN)
    spared = estimate(0.5 * anew - learnt)
    assert spared.mean > 4 * spared.stderr, spared
    nothing = estimate(0.5 * anew - anew)
    assert nothing.mean < 0


def test_a_term_is_played_by_people_who_come_after_the_last(terms: tuple[Result, Result]) -> None:
    first, second = terms
    assert (first.before, second.before) == (0, PLAN.rounds)
    assert not np.array_equal(early(second, "anew", PLAN), early(first, "learnt", PLAN))
    again = fb.simulate(TASK, {"learnt": PLAN}, RUNS, SEED, progress=lambda share: None)
    np.testing.assert_array_equal(again.final("learnt"), first.final("learnt"))
    for run, known in second.known["learnt"].items():  # all of the first term is in it, with its own noise
        assert np.abs(known - first.known["learnt"][run]).max() > 1


def test_radii_cover_theta() -> None:
    """With radii that are proven, theta is inside at every sync of a term that begins with a noisy model."""
    plan = PLAN.changed(confidence="proof", centre=0.0, ratio=1.0, rounds=100)
    first = fb.simulate(TASK, {"x": plan}, RUNS, SEED, progress=lambda share: None)
    later = plan.changed(prior=first.prior("x"))
    assert later.regulariser > 1.3 * plan.regulariser  # sqrt 2 times: twice the variance
    second = fb.simulate(TASK, {"x": later}, RUNS, SEED, progress=lambda share: None, after=first)
    for run in range(RUNS):
        theta = TASK.theta(SEED, run)
        for known, plan_, round_ in ((first.known["x"][run], plan, 100), (second.known["x"][run], later, 100)):
            regulariser = plan_.regulariser_after(round_)
            bias, covariance = unpack(known, DIM)
            precision = covariance + regulariser * np.eye(DIM)
            off = np.linalg.solve(precision, bias) - theta
            assert np.sqrt(off @ precision @ off) <= plan_.radius(round_)


def test_the_noise_of_a_prior_is_in_the_law() -> None:
    """Two terms in which nobody comes: what is decoded is noise alone, as wide as the second plan says, at every
    weight. A law without the prior's noise is rejected."""
    runs, syncs = tuple(range(800)), len(PLAN.times)
    nobody = np.zeros((len(runs), 1, width(DIM)), dtype=np.int64)

    def played(plan: fb.Plan, salt: str, prior: Floats | None = None) -> Floats:
        federation = SimulatedFederation(plan, runs_noise(SEED, runs, salt), prior=prior)
        for round_ in plan.times:
            federation.synchronise(nobody, round_)
        return federation.public.prefix

    first = played(PLAN, "first")
    assert_std(first[:, 0], float(PLAN.noise_law.bias[-1]))
    for weight in (1.0, 0.8):
        later = PLAN.changed(prior=prior_of(PLAN, syncs - 1, first[0], weight))
        known = played(later, "second", first)
        assert_std(known[:, 0], float(later.noise_law.bias[-1]))
        assert_std(known[:, DIM], float(later.noise_law.diagonal[-1]))
        assert_std(known[:, DIM + 1], float(later.noise_law.off_diagonal[-1]))


def test_a_prior_fades_as_the_rest_does() -> None:
    plan = PLAN.changed(forget=0.9)
    prior = Prior(tuple(np.ones(width(DIM))), Scales(1.0, 2.0, 3.0), 100, 0.5)
    later = plan.changed(prior=prior)
    nothing = np.zeros(width(DIM))
    for sync, left in ((0, 0.45), (1, 0.5 * 0.9**2), (7, 0.5 * 0.9**8)):
        np.testing.assert_allclose(later.known(nothing, later.times[sync]), left)
        added = later.noise_law.bias[sync] ** 2 - plan.noise_law.bias[sync] ** 2
        assert added == pytest.approx(left**2, abs=1e-6 * plan.noise_law.bias[sync] ** 2)
    np.testing.assert_allclose(later.known(nothing, 0), 0.45)
    assert later.radius(0) > plan.radius(0)


def test_those_who_do_not_count_are_served_by_the_prior_too() -> None:
    sums = np.zeros(width(DIM))
    sums[0], sums[DIM] = 4000.0, 8000.0
    plan = PLAN.changed(prior=Prior(tuple(sums), Scales.flat(1.0), 8000.0))
    nobody = OwnData(np.zeros(width(DIM), dtype=np.int64), np.zeros(()), np.zeros(()), np.zeros(width(DIM)))
    alone, known = (local_knowledge(one, nobody, nothing_public(one)).model(one) for one in (PLAN, plan))
    assert alone.theta[0] == 0
    assert known.theta[0] == pytest.approx(0.5, abs=0.05)


def test_it_costs_nothing_and_says_so() -> None:
    prior = prior_of(PLAN, 3, np.ones(width(DIM)))
    later = PLAN.changed(prior=prior)
    assert later.guarantee.steps == (*PLAN.guarantee.steps, COSTS_NOTHING)
    clear = prior_of(PLAN.changed(privacy=None, trust="none"), 0, np.ones(PLAN.protocol.width))
    assert PLAN.changed(prior=clear).guarantee.steps == (*PLAN.guarantee.steps, IN_THE_CLEAR)
    assert later.release("silo", 2, 0).cost == PLAN.release("silo", 1, 0).cost  # type: ignore[union-attr]
    assert later.protocol == PLAN.protocol
    assert later.hash != PLAN.hash
    assert fb.Plan.from_dict(later.as_dict()) == later
    third = prior_of(later, 3, np.ones(width(DIM)))
    assert third.noise.bias == pytest.approx(np.sqrt(2) * prior.noise.bias)
    assert third.visits == 2 * prior.visits


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prior": Prior((1.0,), Scales.flat(1.0), 1)}, "prior must have 14 sums"),
        ({"acting": "eager", "schedule": fb.every(1)}, "prior must be left out where silos act eagerly"),
        ({"prior": "yes"}, "prior must be a Prior"),
    ],
)
def test_priors_that_are_refused(change: dict[str, object], words: str) -> None:
    begun = PLAN.changed(prior=Prior((0.0,) * width(DIM), Scales.flat(1.0), 1))
    with pytest.raises(ArgumentError, match=words):
        begun.changed(**change)


def test_broken_numbers_are_no_prior() -> None:
    for values in (
        ((float("nan"),), Scales.flat(1.0), 1, 1.0),
        ((1.0,), Scales.flat(-1.0), 1, 1.0),
        ((1.0,), Scales.flat(1.0), float("inf"), 1.0),
        ((1.0,), Scales.flat(1.0), 1, 1.5),
        ((1.0,), Scales.flat(1.0), 1, 0.0),
    ):
        with pytest.raises(ArgumentError):
            Prior(*values)
    with pytest.raises(ArgumentError, match="decoded no sync"):
        prior_of(PLAN, -1, np.zeros(width(DIM)))
    with pytest.raises(ArgumentError, match="3 standard deviations"):
        Prior.from_dict({"sums": [1.0], "noise": [1.0], "visits": 1})


def test_a_result_of_other_users_is_nothing_to_begin_with(terms: tuple[Result, Result]) -> None:
    first, second = terms
    plan = second.plans["learnt"]
    for name, runs, seed in (("learnt", RUNS, 1), ("learnt", RUNS + 1, SEED), ("other", RUNS, SEED)):
        with pytest.raises(ArgumentError, match="after must"):
            fb.simulate(TASK, {name: plan}, runs, seed, after=first)


def test_without_a_prior_nothing_is_added() -> None:
    prefix = np.arange(width(DIM), dtype=float)
    assert PLAN.known(prefix, 100) is prefix
    np.testing.assert_array_equal(public_model(PLAN, 0, prefix, 10).prefix, prefix)
