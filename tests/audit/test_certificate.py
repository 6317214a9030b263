"""What a certificate says about its plan."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from fedbandit import Plan, Privacy, clock, every
from fedbandit._validate import ArgumentError
from fedbandit.audit.certificate import certificate
from fedbandit.audit.report import audit
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.schedule import Schedule
from tests.audit.faults import small_case, small_plan


def federation(schedule: Schedule) -> str:
    plan = small_plan(schedule=schedule)
    page = certificate(plan, audit(small_case(small_plan()), trials=50), date(2026, 1, 1))
    return next(row[1] for section in page.sections for row in section.table if row[0] == "Federation")


def test_rounds_of_a_clock_are_periods() -> None:
    assert federation(every(4)) == "3 silos, 32 rounds each, 3 features"
    assert federation(clock(60.0, 2.0)) == "3 silos, 32 periods of the clock each, 3 features"


@pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.0123, 0.3333, 1.0, 1.01, 2.345, 6.0])
@pytest.mark.parametrize("delta", [1.00000049e-5, 0.01])
def test_the_promise_in_plain_words_is_never_rounded_into_a_smaller_one(epsilon: float, delta: float) -> None:
    plan = Plan(3, 32, 2, Privacy(epsilon, delta), trust="silo")
    promise = certificate(plan, audit(small_case(small_plan()), trials=50), date(2026, 1, 1)).promise
    times = promise.split(" at most ")[1].split(" times")[0]
    assert sum(map(float, times.split(" + "))) >= math.exp(epsilon)
    assert f", plus a chance of {delta!r}. If they have to guess" in promise
    share = float(promise.split(" right at most ")[1].split("%")[0]) / 100
    best = 1 - (1 - delta) * float(expit(-epsilon))
    assert best <= share <= best + 0.001 + 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_what_is_seen_may_be_likelier_than_the_factor_more_often_than_delta(epsilon: float) -> None:
    """So no page may say "but for a chance of delta" of the odds: it is true of findings, with delta added to them."""
    delta, rng = 1e-2, np.random.default_rng(0)
    mu = 1 / gaussian_sigma(epsilon, delta)
    loss = mu * rng.normal(mu, 1.0, 200_000) - mu**2 / 2  # log of the likelihood ratio at what is seen
    further = float(np.mean(loss > epsilon))
    assert further == pytest.approx(norm.cdf(mu / 2 - epsilon / mu), rel=0.05)
    assert further > 2 * delta
    assert np.mean(np.maximum(0.0, 1 - np.exp(epsilon - loss))) == pytest.approx(delta, rel=0.05)
    promise = certificate(
        Plan(3, 32, 2, Privacy(epsilon, delta), "silo"), audit(small_case(small_plan()), trials=50), date(2026, 1, 1)
    ).promise
    assert "but for" not in promise


def test_the_budget_stands_in_a_certificate_as_it_was_asked_for() -> None:
    plan = Plan(3, 32, 2, Privacy(1.00000049, 1.00000049e-5), trust="silo")
    page = certificate(plan, audit(small_case(small_plan()), trials=50), date(2026, 1, 1))
    budget = next(row[1] for section in page.sections for row in section.table if row[0] == "Budget")
    assert budget.startswith("epsilon = 1.00000049, delta = 1.00000049e-05,")


@pytest.mark.parametrize("trust", ["local", "shuffled-users", "silo"])
def test_a_silo_that_is_shown_no_data_is_said_to_see_none(trust: str) -> None:
    """Users who send for themselves are promised something against their own silo: no page takes it back."""
    mechanism = "batches" if trust != "silo" else "tree"
    plan = Plan(20, 32, 2, Privacy(1.0, 1e-5), trust, mechanism, every(8))
    page = certificate(plan, audit(small_case(small_plan()), trials=50), date(2026, 1, 1))
    said = " ".join(next(section.items for section in page.sections if section.heading == "What is not promised"))
    for words in (
        "Nothing is hidden from a user's own silo",
        "the raw data of their silo",
        "leaves further visits out",
    ):
        assert (words in said) == (trust == "silo")
    assert "A user who comes more often than stated is not covered" in said
    if trust != "silo":
        with pytest.raises(ArgumentError, match=r"^uncounted must not be 'local'"):
            plan.changed(uncounted="local")
