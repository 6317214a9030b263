"""The statistics of the auditor against answers computed another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from fedbandit.audit.bounds import Rates, epsilon_lower, mu_lower, rates
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (10, 3), (50, 50), (100, 0), (73, 41)])
def test_rates_are_clopper_pearson(hits: int, alarms: int) -> None:
    known = rates(hits, alarms, 100, 0.95)
    assert known.power == pytest.approx(binomtest(hits, 100).proportion_ci(0.95, "exact").low, abs=1e-9)
    assert known.alarms == pytest.approx(binomtest(alarms, 100).proportion_ci(0.95, "exact").high, abs=1e-9)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 3.0])
def test_a_bound_is_wrong_in_at_most_5_percent(mu: float) -> None:
    """Exactly, over all outcomes of 60 trials in each world; and a bound that skips the interval is wrong far more."""
    trials, counts = 60, np.arange(61)
    hits, alarms = binom.pmf(counts, trials, norm.cdf(mu / 2)), binom.pmf(counts, trials, norm.cdf(-mu / 2))
    known = [rates(count, count, trials, 0.95) for count in range(61)]  # each side depends on its own count alone
    lower = np.array([[mu_lower(Rates(h.power, a.alarms)) for a in known] for h in known])
    weights = hits[:, None] * alarms[None, :]
    assert weights[lower > mu].sum() <= 0.05
    naive = norm.ppf(np.clip(counts / trials, 0.01, 0.99))
    assert weights[naive[:, None] - naive[None, :] > mu].sum() > 0.3


def test_gdp_bound_reads_the_gaussian_curve() -> None:
    known = rates(900, 100, 1000, 0.95)
    epsilon = epsilon_lower(known, 1e-5, "gdp")
    assert gaussian_delta(mu_lower(known), epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert epsilon_lower(rates(100, 900, 1000, 0.95), 1e-5, "gdp") == 0


def test_dp_bound_of_a_perfect_distinguisher_is_what_the_trials_allow() -> None:
    epsilon = epsilon_lower(rates(1000, 0, 1000, 0.95), 1e-5, "dp")
    miss = 1 - 0.025 ** (1 / 1000)  # the rule of three, exactly
    assert epsilon == pytest.approx(math.log((1 - miss - 1e-5) / miss), rel=1e-9)


def test_dp_bound_is_below_randomised_response_and_above_a_smaller_claim() -> None:
    """Randomised response at epsilon = 2 tells the truth with probability e^2 / (1 + e^2)."""
    truth = math.exp(2) / (1 + math.exp(2))
    trials = 100_000
    hits = int(np.random.default_rng(0).binomial(trials, truth))
    alarms = int(np.random.default_rng(1).binomial(trials, 1 - truth))
    assert 1.9 < epsilon_lower(rates(hits, alarms, trials, 0.95), 0.0, "dp") <= 2
    assert epsilon_lower(rates(alarms, hits, trials, 0.95), 0.0, "dp") == 0


def test_more_trials_come_closer() -> None:
    bounds = []
    for trials in (1_000, 10_000, 100_000):
        hits, alarms = round(trials * norm.cdf(0.134)), round(trials * norm.cdf(-0.134))
        bounds.append(epsilon_lower(rates(hits, alarms, trials, 0.95), 1e-5, "gdp"))
    assert bounds == sorted(bounds)
    assert 0.9 < bounds[-1] < gaussian_epsilon(0.268, 1e-5)
