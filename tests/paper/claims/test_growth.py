"""Exponents: how they are measured, what they are held against, and that a wrong one is told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.paper import regret_bounds
from fedbandit.paper.claims import gap, growth, scaling
from fedbandit.paper.claims.growth import EARLY, LATE, SWEEPS, Exponent, Regrets, exponent_over_runs

SCALES = (1.0, 2.0, 4.0, 8.0)


def powers(exponent: float, runs: int = 6, spread: float = 0.02) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [scale**exponent * np.exp(spread * rng.standard_normal(runs)) for scale in SCALES]


@pytest.mark.parametrize("true", [-0.5, 0.0, 0.75])
def test_an_exponent_is_found_and_another_is_not_taken_for_it(true):
    found = exponent_over_runs(SCALES, powers(true))
    assert found.covers(true)
    assert not found.covers(true + 0.1)
    assert found.half_width < 0.05
    assert found.pieces == pytest.approx([true] * 3, abs=0.06)


def test_the_interval_is_students_over_runs():
    values = powers(0.5, runs=4)
    slopes = [np.polyfit(np.log(SCALES), np.log([value[run] for value in values]), 1)[0] for run in range(4)]
    found = exponent_over_runs(SCALES, values)
    assert found.slope == pytest.approx(np.mean(slopes))
    assert found.half_width == pytest.approx(3.182 * np.std(slopes, ddof=1) / 2, rel=1e-3)  # t(3), 97.5 %


def test_a_bend_shows_in_the_pieces():
    bent = [np.array([value, value]) for value in (1.0, 2.0, 4.0, 4.0)]
    assert exponent_over_runs(SCALES, bent).pieces == pytest.approx([1, 1, 0])


def test_every_word_can_come_out():
    near, far = Exponent(0.5, 0.1, ()), Exponent(0.8, 0.1, ())
    one, two = [(0.5, 0.5)] * 2, [(0.5, 0.67)] * 2
    assert growth.outcome([near, near], one) == "confirmed"
    assert growth.outcome([near, far], one) == "narrower range"
    assert growth.outcome([far, far], one) == "other exponent"
    assert growth.outcome([Exponent(0.62, 0.1, ()), far], two) == "narrower range"  # the logarithms of the theorem
    assert growth.outcome([Exponent(0.3, 0.1, ()), far], two) == "other exponent"
    assert gap.outcome(0.25, Exponent(0.2, 0.1, ())) == "confirmed"
    assert gap.outcome(0.25, Exponent(0.4, 0.1, ())) == "other exponent"
    assert gap.outcome(0.26, Exponent(0.25, 0.1, ())) == "refuted"
    assert scaling.noise_outcome([(1.0, 1.0), (0.0004, 0.0)]) == "confirmed"
    assert scaling.noise_outcome([(1.01, 1.0), (0.0, 0.0)]) == "other exponent"
    assert scaling.noise_outcome([(1.0, 1.0), (0.05, 0.0)]) == "other exponent"


def test_claimed_exponents_are_those_of_the_theorems_formula():
    """Slopes of `order_ldp`, whose last logarithm is taken out: it is what the text hides in its O-tilde."""
    for sweep in SWEEPS:
        base = LATE._replace(batch=20, delta=1e-4)
        changed = {"delta": 1e-8}.get(sweep.field, 2 * getattr(base, sweep.field))
        sizes = (base, base._replace(**{sweep.field: changed}))
        plans = [size.plans()["ldp"] for size in sizes]
        orders = [regret_bounds.order_ldp(plan) for plan in plans]
        if sweep.of == "cost":
            lasts = [math.log(plan.encoder.size / plan.alpha) ** 0.25 for plan in plans]
            every = [[order.privacy / last for order, last in zip(orders, lasts, strict=True)]]
        else:  # d M B log T and d sqrt(MT) log(MT/alpha)
            users = [size.silos * size.rounds for size in sizes]
            every = [
                [order.batches / math.log(size.rounds) for order, size in zip(orders, sizes, strict=True)],
                [order.learning / math.log(n / 0.01) for order, n in zip(orders, users, strict=True)],
            ]
        scales = [sweep.scale(getattr(size, sweep.field)) for size in sizes]
        slopes = {round(math.log(terms[1] / terms[0]) / math.log(scales[1] / scales[0]), 9) for terms in every}
        assert slopes == set(sweep.claimed), sweep.name


def test_the_logarithms_of_the_privacy_term_are_those_of_lemma_subg():
    """sqrt(sigma MT log(MT)) d^(3/4) log^(1/4)(K/alpha), sigma being sqrt(M) kappa and what T and B do not change."""
    by_rounds, by_batch, by_epsilon = (
        next(one for one in SWEEPS if one.name == f"cost by {at}") for at in ("T", "B", "ε")
    )

    def term(size):
        syncs = size.rounds // size.batch
        sigma = math.sqrt(size.silos) * (1 + math.log2(syncs))
        users = size.silos * size.rounds
        return math.sqrt(sigma * users * math.log(users)) * math.log(syncs / 0.01) ** 0.25

    for sweep in (by_rounds, by_batch):
        exponents = np.polyfit(np.log(sweep.scales(EARLY)), [math.log(term(size)) for size in sweep.sizes(EARLY)], 1)
        low, high = sweep.allowed(EARLY)
        assert sweep.claimed[0] in (low, high)
        assert exponents[0] in (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))  # batches are whole rounds
        assert high - low > 0.05
    assert by_epsilon.allowed(EARLY) == pytest.approx((-0.5, -0.5))


def test_early_is_where_the_regulariser_still_counts_and_late_where_it_does_not():
    assert EARLY.weight_of_data < 3 < 10 < LATE.weight_of_data
    plan = LATE.plans()["ldp"]
    assert LATE.weight_of_data == pytest.approx(40 * 8_000 / (4 * plan.regulariser))


def test_a_claim_is_written_from_what_was_measured():
    sweep = next(one for one in SWEEPS if one.name == "cost by M")
    found = {}
    for base, power in ((EARLY, 0.75), (LATE, 0.5)):
        for size in sweep.sizes(base):
            cost = size.silos**power * np.array([1.0, 1.01, 0.99])
            found[size] = Regrets(ldp=cost + 5, free=np.full(3, 5.0))
    claim = growth.growth_claim(sweep, found)
    assert claim.outcome == "narrower range"
    assert "exponent 0.75 ± 0.00" in claim.measured[0]
    assert "exponent 0.50 ± 0.00" in claim.measured[1]
    assert "(the theorem with its logarithms: 0.80)" in claim.measured[0]


def test_privacy_costs_regret_and_costs_more_with_less_of_it():
    small = EARLY._replace(rounds=500, silos=10)
    costs = [growth.played(size, runs=2).cost.mean() for size in (small._replace(epsilon=2.0), small)]
    assert 0 < costs[0] < costs[1]


def test_the_sequential_agent_meets_as_many_users_one_by_one():
    found = gap.measured(4, runs=2)
    assert found.bound == pytest.approx(math.sqrt(2))  # 4^(1/4)
    assert (found.federated > 0).all()
    assert (found.sequential > 0).all()
    assert found.ratio == pytest.approx(found.federated / found.sequential)
