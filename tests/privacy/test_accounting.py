"""Accounting against integrals, known answers and the steps of the paper's proofs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from fedbandit import Plan, Privacy
from fedbandit._validate import ArgumentError
from fedbandit.privacy.accounting import _mills_slope as mills_slope
from fedbandit.privacy.accounting import _rounding as allowance
from fedbandit.privacy.accounting import (
    advanced_composition_share,
    classic_gaussian_sigma,
    compose_gdp,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    optimal_composition,
    published_ldp_sigma,
    shariff_sheffet_sigma,
    theorem_ldp_sigma,
    tree_levels,
    zcdp_epsilon,
    zheng_sigma,
)
from fedbandit.privacy.ledger import Gaussian
from fedbandit.privacy.sensitivity import joint_shift
from fedbandit.protocol import mechanisms

Vectors = Callable[[str], Any]
BUDGETS = [(0.01, 1e-6), (0.2, 0.1), (1.0, 0.1), (1.0, 1e-5), (5.0, 0.1), (8.0, 1e-9)]


def hockey_stick(mu: float, epsilon: float) -> float:
    """delta by its definition: the integral of (p - e^epsilon q)^+ over N(mu, 1) against N(0, 1)."""
    start = epsilon / mu + mu / 2  # p > e^epsilon q exactly from here on
    return quad(lambda z: norm.pdf(z - mu) - math.exp(epsilon) * norm.pdf(z), start, start + 40, epsabs=1e-15)[0]


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_delta_is_the_hockey_stick_divergence(mu: float, epsilon: float) -> None:
    assert gaussian_delta(mu, epsilon) == pytest.approx(hockey_stick(mu, epsilon), rel=1e-6, abs=1e-13)


TINY_TO_LARGE = [*(10.0**k for k in range(-16, 4)), 3e-9, 0.5, 5.0, 50.0, 300.0]
DELTAS = [*(10.0**-k for k in (300, 250, 100, 30, 20, 17, 12, 9, 5, 2, 1)), 0.5, 0.7, 0.99, 1 - 1e-10, 1 - 1e-16]


def many_digits(mu: Any, epsilon: float) -> Any:
    """delta with so many digits that what cancels is not missed."""
    with mpmath.workdps(400):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        tails = [mpmath.erfc(-x / mpmath.sqrt(2)) / 2 for x in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
        return tails[0] - mpmath.exp(epsilon) * tails[1]


@pytest.mark.parametrize("epsilon", TINY_TO_LARGE)
def test_nothing_comes_out_too_small_and_hardly_anything_too_large(epsilon: float) -> None:
    for delta in DELTAS:
        sigma = gaussian_sigma(epsilon, delta)
        true = many_digits(1 / mpmath.mpf(sigma), epsilon)
        assert true <= delta  # never less noise than needed
        assert min(1 - true / mpmath.mpf(delta), (1 - true) / (1 - mpmath.mpf(delta)) - 1) < 1e-9
        true = many_digits(1 / sigma, epsilon)
        assert 0 <= gaussian_delta(1 / sigma, epsilon) / true - 1 + mpmath.mpf(2) ** -53 < 1e-9
        assert many_digits(1 / sigma, gaussian_epsilon(1 / sigma, delta)) <= delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-12, 1e-300), (1e-11, 1e-300), (1e-12, 1e-100), (1e-16, 1e-17), (1e-13, 1e-20)]
)
def test_a_tiny_promise_is_kept_by_the_plan_s_own_noise(epsilon: float, delta: float) -> None:
    plan = Plan(3, 10, 2, Privacy(epsilon, delta), trust="silo", mechanism="batches", bits=1)
    release = plan.release("north", 1, 0)
    assert release is not None
    assert isinstance(release.cost, Gaussian)
    assert many_digits(mpmath.mpf(release.cost.sensitivity) / release.cost.sigma, epsilon) <= delta * (1 + 1e-10)


def test_what_floating_point_cannot_compute_safely_is_refused() -> None:
    for epsilon, delta, name in [(1e-101, 0.1, "epsilon"), (2e9, 0.1, "epsilon"), (1.0, 1e-301, "delta")]:
        with pytest.raises(ArgumentError, match=f"^{name} must .* to be computed safely"):
            gaussian_sigma(epsilon, delta)
    assert gaussian_epsilon(1e100, 0.1) == math.inf
    assert gaussian_delta(1e-200, 1.0) == 0.0
    assert gaussian_delta(1e200, 1.0) == 1.0


def test_the_allowance_covers_what_the_ends_of_the_integral_may_be_off_by() -> None:
    """The ends are off by at most three roundings of their larger part, and the logarithm by |start| + 1 times that:
    a quotient of Gaussian tails falls no faster. On top of it comes what the special functions are off by."""
    grid = [
        (mu, epsilon) for mu in (1e-12, 1e-3, 0.3, 1.0, 4.0, 300.0, 1e6) for epsilon in (0.0, 1e-12, 1e-3, 0.4, 9.0)
    ]
    for mu, epsilon in (*grid, (1.0, 0.5), (1e4, 5e7), (1e4, 1e12)):
        start, end = abs(epsilon / mu - mu / 2), epsilon / mu + mu / 2
        if end < 1e9:
            assert 1e-11 + 3 * 2.0**-53 * end * (start + 1) <= allowance(mu, epsilon)
            assert allowance(mu, epsilon) <= 2e-11 + 2e-15 * (end + 1) * (start + 1)  # and hardly more


def test_the_slope_of_mills_ratio_has_its_digits_near_and_far() -> None:
    """Where a difference would lose them, by the series: from 50 on it is right to the last digits."""
    for x, digits in [
        (-5.0, 1e-13),
        (0.0, 1e-15),
        (3.0, 1e-13),
        (49.9, 1e-11),
        *((x, 4e-15) for x in (50.1, 55.0, 1e3, 1e8)),
    ]:
        with mpmath.workdps(60):
            ratio = mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(mpmath.mpf(x) ** 2 / 2) * mpmath.erfc(x / mpmath.sqrt(2))
            true = float(1 - x * ratio) if x < 1e6 else x**-2.0
        assert mills_slope(np.array([x]))[0] == pytest.approx(true, rel=digits, abs=0.0)


def test_known_answers(vectors: Vectors) -> None:
    known = vectors("calibration")
    for row in known["gaussian"]:
        sigma = gaussian_sigma(row["epsilon"], row["delta"])
        assert row["sigma"] * (1 - 1e-12) <= sigma <= row["sigma"] * (1 + 1e-6)  # never less noise than needed
    for row in known["curve"]:
        assert gaussian_delta(row["mu"], row["epsilon"]) == pytest.approx(row["delta"], rel=1e-8)
    for row in known["theorem_ldp"]:
        sigma = theorem_ldp_sigma(row["epsilon"], row["delta"], tree_levels(row["releases"]))
        assert sigma == pytest.approx(row["sigma"], rel=1e-14)
    for row in known["refused"]:
        with pytest.raises(ValueError, match=f"^{row['names']} must"):
            gaussian_sigma(row["epsilon"], row["delta"])


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_sigma_meets_its_budget_and_a_thousandth_less_does_not(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    assert gaussian_delta(1 / sigma, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_delta(1.001 / sigma, epsilon) > delta
    assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(epsilon, rel=1e-6)


def test_epsilon_is_zero_where_delta_alone_covers_it_and_grows_with_mu() -> None:
    assert gaussian_epsilon(0.01, 0.1) == 0.0
    assert gaussian_delta(0.0, 0.0) == 0.0
    epsilons = [gaussian_epsilon(mu, 1e-5) for mu in np.geomspace(0.01, 30, 25)]
    assert np.all(np.diff(epsilons) > 0)
    assert np.isfinite(epsilons).all()


def test_composition_of_gaussians_is_one_gaussian_of_the_joint_shift() -> None:
    assert compose_gdp(3.0, 4.0) == 5.0
    assert compose_gdp(*[0.1] * 400) == pytest.approx(2.0)
    # two releases of one user, shifts 0.3 and 0.4 at unit noise: the likelihood ratio is that of a shift of 0.5
    assert gaussian_delta(compose_gdp(0.3, 0.4), 1.0) == pytest.approx(hockey_stick(0.5, 1.0), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_zcdp_as_in_the_proof_of_theorem_ldp(epsilon: float, delta: float) -> None:
    log = math.log(1 / delta)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2  # f(epsilon, delta) of the proof
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon)
    assert rho >= epsilon**2 / (4 * math.log(1 / delta) + 4 * epsilon)  # the proof's simplification
    # Gaussians of total shift^2 / sigma^2 = 2 rho are rho-zCDP; the exact epsilon is never larger
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("levels", [1, 4.5, 9.64])
def test_theorem_sigma_makes_each_stream_half_the_budget(epsilon: float, delta: float, levels: float) -> None:
    sigma = theorem_ldp_sigma(epsilon, delta, levels)
    rho = levels / (2 * sigma**2)  # each p-sum is 1/(2 sigma^2)-zCDP
    assert zcdp_epsilon(rho, delta / 2) <= epsilon / 2
    assert zcdp_epsilon(rho * 1.5, delta / 2) > epsilon / 2 or epsilon > 4  # the slack is a constant, not more


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_the_published_simulation_has_less_noise_than_its_theorem(epsilon: float, delta: float) -> None:
    levels = tree_levels(400)
    assert levels == pytest.approx(1 + math.log2(400))
    published = published_ldp_sigma(epsilon, delta, levels)
    assert published**2 == pytest.approx(levels * (math.log(1 / delta) + epsilon) / epsilon**2)
    assert published * math.sqrt(8) < theorem_ldp_sigma(epsilon, delta, levels)


@pytest.mark.parametrize("times", [1, 3, 9, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-4), (0.1, 0.05), (1.0, 1e-5)])
def test_advanced_composition_share_composes_to_the_budget(epsilon: float, delta: float, times: int) -> None:
    share, share_delta = advanced_composition_share(epsilon, delta, times)
    slack = delta / 2
    composed = share * math.sqrt(2 * times * math.log(1 / slack)) + times * share * math.expm1(share)
    assert composed <= epsilon
    assert times * share_delta + slack == pytest.approx(delta)
    assert share == pytest.approx(epsilon / (2 * math.sqrt(2 * times * math.log(2 / delta))))
    assert share_delta == pytest.approx(delta / (2 * times))


def test_advanced_composition_is_refused_where_the_closed_form_is_too_generous() -> None:
    with pytest.raises(ValueError, match=r"^epsilon must be small enough for advanced composition over 2 releases"):
        advanced_composition_share(40.0, 0.1, 2)


@pytest.mark.parametrize("times", [1, 2, 9])
@pytest.mark.parametrize("delta", [0.1, 1e-5])
def test_advanced_composition_is_refused_from_just_where_the_theorem_ends(times: int, delta: float) -> None:
    def excess(epsilon: float) -> float:
        share = epsilon / (2 * math.sqrt(2 * times * math.log(2 / delta)))
        return share * math.sqrt(2 * times * math.log(2 / delta)) + times * share * math.expm1(share) - epsilon

    edge = float(brentq(excess, 0.1, 1e3))
    share, _ = advanced_composition_share(edge * (1 - 1e-6), delta, times)
    composed = edge * 1.01 + excess(edge * 1.01)
    with pytest.raises(ValueError, match=rf"the share {share * 1.01:.3g} composes to {composed:.3g}, above"):
        advanced_composition_share(edge * 1.01, delta, times)
    with pytest.raises(ValueError, match=r"^epsilon must be small enough"):
        advanced_composition_share(edge * (1 + 1e-6), delta, times)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0])
def test_classic_gaussian_is_private_where_it_applies(epsilon: float, delta: float) -> None:
    sigma = classic_gaussian_sigma(epsilon, delta)
    assert sigma == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
    assert gaussian_delta(1 / sigma, epsilon) <= delta
    with pytest.raises(ValueError, match=r"^epsilon must be <= 1"):
        classic_gaussian_sigma(1.01, delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "paper", "tree_add", "tree_replace", "ratio_add", "ratio_replace"),
    [
        (0.2, 0.1, 78.5, 9.75, 14.6, 23.0, 15.3),
        (1, 0.1, 17.6, 4.61, 6.91, 10.9, 7.3),
        (5, 0.1, 4.97, 1.80, 2.70, 7.9, 5.2),
        (1, 1e-5, 31.9, 15.8, 23.7, 5.8, 3.8),
        (0.1, 1e-5, 308, 130, 196, 6.7, 4.5),
    ],
)
def test_paper_constants_against_exact_accounting_at_400_releases(
    epsilon: float,
    delta: float,
    paper: float,
    tree_add: float,
    tree_replace: float,
    ratio_add: float,
    ratio_replace: float,
) -> None:
    tree, toeplitz = mechanisms.encoder("tree", 400), mechanisms.encoder("toeplitz", 400)
    assert tree.column_norm**2 == 9
    theorem = theorem_ldp_sigma(epsilon, delta, 1 + math.log2(400))
    assert theorem == pytest.approx(paper, rel=0.005)
    worst_paper = theorem * tree.prefix_norms.max()
    for adjacency, sigma, ratio in (("add-remove", tree_add, ratio_add), ("replace-one", tree_replace, ratio_replace)):
        exact = gaussian_sigma(epsilon, delta) * joint_shift(adjacency)  # type: ignore[arg-type]
        assert exact * tree.column_norm == pytest.approx(sigma, rel=0.005)
        assert worst_paper / (exact * toeplitz.worst_prefix) == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [0.1, 1e-2, 1e-5, 1e-9])
def test_the_analytic_gaussian_is_that_of_another_library(epsilon: float, delta: float) -> None:
    from dp_accounting import get_sigma_gaussian

    assert gaussian_sigma(epsilon, delta) == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-6)
    assert gaussian_delta(1 / gaussian_sigma(epsilon, delta), epsilon) <= delta


def test_the_ends_of_what_is_computed_are_part_of_it() -> None:
    for epsilon, delta in ((1e-100, 0.1), (1e9, 0.1), (1.0, 1e-300)):
        assert 0 < gaussian_sigma(epsilon, delta) < math.inf
    for epsilon, delta in ((0.99e-100, 0.1), (1.01e9, 0.1), (1.0, 0.99e-300)):
        with pytest.raises(ArgumentError, match="for its noise to be computed safely"):
            gaussian_sigma(epsilon, delta)


def test_where_nobody_moves_anything_nothing_is_spent() -> None:
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_epsilon(1e9, 0.5) < math.inf
    assert gaussian_epsilon(1.01e9, 0.5) == math.inf


def composed_delta(epsilon: float, delta: float, times: int, i: int) -> Any:
    """1 - (1 - delta)^k (1 - d_i) of Kairouz, Oh & Viswanath, with 60 digits."""
    with mpmath.workdps(60):
        e = mpmath.exp(mpmath.mpf(epsilon))
        terms = (mpmath.binomial(times, j) * (e ** (times - j) - e ** (times - 2 * i + j)) for j in range(i))
        hidden = sum(terms, start=mpmath.mpf(0)) / (1 + e) ** times
        return 1 - (1 - mpmath.mpf(delta)) ** times * (1 - hidden)


COMPOSED = [
    (0.01, 12, 5),
    (0.3, 6, 1),
    (0.3, 6, 2),
    (0.3, 7, 3),
    (1.0, 40, 12),
    (1.0, 41, 20),
    (5.0, 9, 4),
    (2e-4, 300, 149),
]


@pytest.mark.parametrize(("epsilon", "times", "i"), COMPOSED)
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.004])
def test_composition_is_the_theorems_and_in_doubt_too_large(epsilon: float, times: int, i: int, delta: float) -> None:
    exact, found = composed_delta(epsilon, delta, times, i), (times - 2 * i) * epsilon
    for total, certified in ((float(exact) * (1 + 1e-10), True), (np.nextafter(float(exact), 0), False)):
        assert (optimal_composition(epsilon, delta, times, total) <= found + 1e-12) is certified


@pytest.mark.parametrize(("times", "least"), [(1, 0.3), (2, 0.0), (5, 0.3), (6, 0.0)])
def test_composition_ends_at_an_epsilon_of_nothing(times: int, least: float) -> None:
    assert optimal_composition(0.3, 0.0, times, 0.999) == least
    assert optimal_composition(0.3, 0.0, times, 1e-12) == pytest.approx(0.3 * times)


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_the_noise_of_other_papers_by_hand(epsilon: float) -> None:
    """Five rounds have a tree of four levels."""
    assert shariff_sheffet_sigma(epsilon, 0.04, 5) == pytest.approx(4 * 2 * 2 * math.log(100) / epsilon)
    assert zheng_sigma(epsilon, 0.0125) == pytest.approx(4 * math.sqrt(2 * math.log(100)) / epsilon)


@pytest.mark.parametrize("share", [699.0, 705.0, 750.0, 1e6])
def test_a_share_that_no_exponential_holds_is_refused_like_any_other(share: float) -> None:
    """e^710 is no float any more."""
    epsilon = share * 2 * math.sqrt(2 * math.log(2 / 0.1))
    with pytest.raises(ArgumentError, match=r"^epsilon must be small enough for advanced composition"):
        advanced_composition_share(epsilon, 0.1, 1)
