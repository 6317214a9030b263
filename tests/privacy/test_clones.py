"""Amplification computed: each step of its proof checked by brute force, and what comes out held against the lemma."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import comb
from scipy.stats import norm

from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_sigma, optimal_composition
from fedbandit.privacy.amplification import shuffled_epsilon, theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.clones import amplified_epsilon, amplified_sigma, clones_delta, shuffled_epsilon_of
from fedbandit.schedule import every

JOINT = math.sqrt(4.5)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def counted(local: float, chance: float, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Both laws of (clones, of U0 in all), by listing everything."""
    q = 1 / (1 + math.exp(-local))
    worlds = np.zeros((2, others + 1, others + 2))
    for c in range(others + 1):
        for a in range(c + 1):
            weight = comb(others, c) * chance**c * (1 - chance) ** (others - c) * comb(c, a) * 0.5**c
            for world, first in enumerate((q, 1 - q)):
                worlds[world, c, a + 1] += weight * first
                worlds[world, c, a] += weight * (1 - first)
    return worlds[0], worlds[1]


@pytest.mark.parametrize("others, chance", [(0, 0.5), (1, 1.0), (5, 0.3), (30, 0.9)])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.2, 0.49, 0.6])
def test_clones_by_listing_every_count(others, chance, epsilon):
    local = 0.5
    exact = hockey_stick(*counted(local, chance, others), epsilon)
    found = clones_delta(epsilon, local, chance, others)
    assert found == pytest.approx(exact, rel=1e-5, abs=1e-12)
    assert found >= exact * (1 - 1e-12)


def test_buckets_count_a_large_number_of_clones_upwards_and_not_by_much():
    others, chance, local, epsilon = 3_000, 0.5, 0.2, 0.01
    clones = np.arange(others + 1)
    logs = [math.lgamma(others + 1) - math.lgamma(c + 1) - math.lgamma(others - c + 1) for c in clones]
    weights = np.exp(np.array(logs) + others * math.log(0.5))
    fine = sum(w * clones_delta(epsilon, local, 1.0, int(c)) for w, c in zip(weights, clones, strict=True) if w > 1e-12)
    found = clones_delta(epsilon, local, chance, others)
    assert fine * (1 - 1e-9) <= found <= fine * 1.1


def test_optimal_composition_is_that_of_randomised_response():
    """Kairouz et al.: nothing composes worse than randomised response, whose products can be listed."""
    epsilon, times = 0.3, 6
    ones = np.arange(times + 1)
    q = 1 / (1 + math.exp(-epsilon))
    p = comb(times, ones) * q**ones * (1 - q) ** (times - ones)
    for i in range(times // 2 + 1):
        total = (times - 2 * i) * epsilon
        exact = hockey_stick(p, p[::-1], total)
        assert optimal_composition(epsilon, 0.0, times, exact * (1 + 1e-9) + 1e-15) == pytest.approx(total)
        if i:
            assert optimal_composition(epsilon, 0.0, times, exact * (1 - 1e-6)) > total + 0.1
    assert optimal_composition(epsilon, 1e-3, 4, 1e-3) == math.inf  # four of them spend more delta than that


def test_a_gaussian_is_moved_into_the_limits_at_the_cost_that_is_counted():
    """Steps 1 and 3 on a fine grid: how much must be filled up, and that it can be taken elsewhere."""
    x = np.linspace(-14, 14, 200_001)
    density = lambda centre: np.exp(-((x - centre) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])  # noqa: E731
    shift, spread, local, clone = 0.4, 1.3, 0.5, 0.9
    p, q = density(0.0), density(shift)
    low, high = math.exp(-local) * p, math.exp(local) * p
    cut, filled = np.maximum(q - high, 0).sum(), np.maximum(low - q, 0).sum()
    assert cut == pytest.approx(gaussian_delta(shift, local), rel=1e-6)
    assert filled == pytest.approx(math.exp(-local) * cut, rel=1e-6)
    assert (high - np.clip(q, low, high)).sum() > cut - filled  # there is room for what is left
    other, middle = density(spread), (p + q) / 2
    missing = np.maximum(math.exp(-clone) * middle - other, 0).sum()
    assert 0 < missing <= math.exp(-clone) * gaussian_delta(spread, clone) * (1 + 1e-6)


def shuffled_pair(shift: float, other: float, epsilon: float) -> float:
    """Exact delta of two shuffled Gaussians, one of which is the user's silo's: by integrating over the plane."""
    x = np.linspace(-7, 7, 1_401)
    phi = lambda centre: np.exp(-((x - centre) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])  # noqa: E731
    worlds = [(np.outer(phi(c), phi(other)) + np.outer(phi(other), phi(c))) / 2 for c in (0.0, shift)]
    one, other_world = worlds
    return max(hockey_stick(one, other_world, epsilon), hockey_stick(other_world, one, epsilon))


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_no_silo_in_any_place_makes_two_shuffled_gaussians_less_private_than_is_certified(delta):
    shift, spread = 0.5, 0.5
    certified = shuffled_epsilon_of(shift, spread, 2, delta)
    exact = max(shuffled_pair(shift, other, certified) for other in np.linspace(0.0, shift, 6))
    assert exact <= delta * (1 + 1e-6)
    hoped_for = shuffled_epsilon_of(shift, spread, 2_000, delta / 50)  # as if there were a thousand times as many
    assert shuffled_pair(shift, 0.0, hoped_for) > delta / 50


def test_the_proof_computed_certifies_less_than_the_lemma_in_closed_form():
    for silos, points in ((1_000, 100), (100_000, 1_000)):
        slack, local = 1e-3, 0.5 / points
        closed = shuffled_epsilon(local, silos, points, slack)
        chance, kept = math.exp(-points * local), math.tanh(local / 2) * slack
        assert clones_delta(closed, local, chance, silos - 1) <= kept
        assert clones_delta(closed / 20, local, chance, silos - 1) > kept  # and not by magnitudes less


def test_never_worse_than_without_a_mixer_and_never_better_than_the_sum_alone():
    epsilon, delta = 1e-2, 1e-6
    most = gaussian_sigma(epsilon, delta) * JOINT
    for silos in (2, 100, 10_000):
        sigma = amplified_sigma(JOINT, 25 * JOINT, silos, 1, epsilon, delta, most)
        assert sigma <= most
        summed = JOINT / (sigma * math.sqrt(silos))  # whoever adds the releases up sees one Gaussian
        assert gaussian_delta(summed, epsilon) <= delta
    assert sigma < most / 3
    assert amplified_epsilon(JOINT / sigma, 25 * JOINT / sigma, 10_000, 1, delta) <= epsilon
    assert amplified_epsilon(1.01 * JOINT / sigma, 25.3 * JOINT / sigma, 10_000, 1, delta) > epsilon


def test_optimal_composition_of_very_many():
    """(1 + e^epsilon)^times would not fit into a float; never worse than basic, and near the central limit."""
    epsilon, times, delta = 1e-3, 20_000, 1e-5
    found = optimal_composition(epsilon, 0.0, times, delta)
    limit = gaussian_epsilon(math.sqrt(times) * epsilon, delta)  # many small ones together are Gaussian
    assert found < times * epsilon
    assert limit * 0.95 < found < limit * 1.05


@pytest.mark.parametrize("epsilon, times", [(1.0, 9), (30.0, 4), (700.0, 2), (700.0, 5), (1e6, 40)])
def test_optimal_composition_of_whatever_epsilon_is_not_below_the_exact_one(epsilon, times):
    """With 60 digits; e to that epsilon fits into no float."""
    with mpmath.workdps(60):
        base = 1 + mpmath.exp(mpmath.mpf(epsilon))
        for i in range(times // 2 + 1):
            terms = (
                mpmath.binomial(times, j)
                * (
                    mpmath.exp((times - j) * mpmath.mpf(epsilon))
                    - mpmath.exp((times - 2 * i + j) * mpmath.mpf(epsilon))
                )
                for j in range(i)
            )
            exact = sum(terms, start=mpmath.mpf(0)) / base**times
            if 1e-12 < exact < 1 - 1e-6:
                assert (
                    optimal_composition(epsilon, 0.0, times, float(exact * (1 + mpmath.mpf(10) ** -6)))
                    <= (times - 2 * i) * epsilon
                )
                assert (
                    optimal_composition(epsilon, 0.0, times, float(exact * (1 - mpmath.mpf(10) ** -6)))
                    > (times - 2 * i) * epsilon
                )
        assert optimal_composition(epsilon, 0.0, times, 1e-300) == times * epsilon


@pytest.mark.parametrize("epsilon", [400.0, 1e3, 1e6])
def test_a_promise_of_next_to_nothing_can_be_planned(epsilon):
    plan = Plan(50, 20, 2, Privacy(epsilon, 1e-6), trust="shuffle", mechanism="tree", schedule=every(5), bits=24)
    assert plan.protocol.scales == pytest.approx(plan.changed(trust="silo").protocol.scales)


def test_among_very_many_delta_alone_may_cover_it():
    """One silo moves by a total variation of 0.06, of which a million others hide nearly all."""
    shift, delta = 0.15, 0.05
    assert gaussian_by_definition(shift, 0.0) > delta
    assert shuffled_epsilon_of(shift, shift, 10**6, delta) == 0.0


def test_silos_beyond_a_hundred_million_are_not_counted_on():
    hidden = [shuffled_epsilon_of(0.2, 0.2, silos, 1e-6) for silos in (10**8 - 10**7, 10**8 + 1, 10**9, 10**12)]
    assert hidden[0] > hidden[1] == hidden[2] == hidden[3]


def test_one_silo_has_nobody_to_hide_behind():
    assert shuffled_epsilon_of(0.5, 5.0, 1, 1e-5) == gaussian_epsilon(0.5, 1e-5)


MANY = Plan(
    10**6,
    100,
    10,
    Privacy(1e-3, 1e-6),
    trust="shuffle",
    mechanism="tree",
    calibration="paper",
    schedule=every(25),
    bits=8,
)


def test_a_plan_promises_where_the_lemma_does():
    sigma = theorem_sdp(1e-3, 1e-6, 10**6, 100, 3).sigma
    assert sigma == pytest.approx(4_488, abs=1)
    assert MANY.protocol.scales.bias == pytest.approx(sigma)
    assert MANY.changed(trust="silo").protocol.scales.bias == pytest.approx(18_661, abs=1)
    assert MANY.guarantee.promised
    assert "Without the mixer it is (0.0022" in MANY.guarantee.statement


def test_exactly_calibrated_it_needs_a_ninth_of_that():
    exact = MANY.changed(calibration="exact")
    assert exact.guarantee.promised
    assert exact.protocol.scales.bias == pytest.approx(500, abs=3)
    assert exact.changed(mechanism="batches").protocol.scales.bias == pytest.approx(138.6, abs=1)
    assert exact.changed(trust="silo").protocol.scales.bias == pytest.approx(9_137, abs=20)


def test_where_nothing_is_known_about_the_points_of_a_release_only_the_noise_counts():
    alone = MANY.changed(calibration="exact", trust="silo").protocol.scales
    for other in (MANY.changed(calibration="exact", visits="public"), MANY.changed(calibration="exact", silos=2)):
        assert other.protocol.scales == pytest.approx(alone)
        assert "With this much noise, the same holds without the mixer" in other.guarantee.statement
    assert not MANY.changed(visits="public").guarantee.promised  # the lemma's own noise is less than that
    toeplitz = MANY.changed(calibration="exact", mechanism="toeplitz")
    assert toeplitz.protocol.scales == pytest.approx(toeplitz.changed(trust="silo").protocol.scales)


def test_a_user_who_comes_back_is_in_more_releases_and_moves_each_further():
    often = MANY.changed(calibration="exact", mechanism="batches", privacy=Privacy(1e-3, 1e-6, participations=3))
    once = MANY.changed(calibration="exact", mechanism="batches")
    assert often.guarantee.promised
    assert often.protocol.scales.bias > 3 * once.protocol.scales.bias
    with pytest.raises(ValueError, match="participations must be 1 for trust 'shuffle' unless calibration is 'exact'"):
        MANY.changed(privacy=Privacy(1e-3, 1e-6, participations=3))
    with pytest.raises(ValueError, match="silos_per_user must be 1 for trust 'shuffle' unless calibration is 'exact'"):
        MANY.changed(privacy=Privacy(1e-3, 1e-6, silos_per_user=2))


def gaussian_by_definition(mu: float, epsilon: float) -> float:
    """delta of two unit Gaussians mu apart."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def epsilon_at(mu: float, delta: float) -> float:
    return float(brentq(lambda epsilon: gaussian_by_definition(mu, epsilon) - delta, 0, 60, xtol=1e-12))


def by_the_proof(shift: float, spread: float, silos: int, delta: float) -> float:
    """The epsilon of one shuffled release as the module's text has it: everything listed, nothing in buckets.

    Steps 1 and 3 may cost a quarter of delta each at an epsilon of 1; what they cost at epsilon itself is counted.
    """
    others, share = silos - 1, delta / 4 / (1 + math.e)
    local = epsilon_at(shift, share / (1 + others / 2))
    clone = epsilon_at(spread, share / others)
    moved = gaussian_by_definition(shift, local)
    of_others = math.exp(-clone) * (gaussian_by_definition(spread, clone) + moved / 2)
    worlds = counted(local, math.exp(-clone), others)

    def total(epsilon: float) -> float:
        return hockey_stick(*worlds, epsilon) + (1 + math.exp(epsilon)) * (moved + others * of_others)

    return 0.0 if total(0.0) < delta else float(brentq(lambda epsilon: total(epsilon) - delta, 0, local, xtol=1e-12))


@pytest.mark.parametrize(
    "shift, spread, delta", [(0.2, 0.2, 0.02), (0.02, 0.2, 1e-4), (0.1, 0.3, 0.02), (0.3, 0.3, 0.02)]
)
def test_one_shuffled_release_is_as_private_as_the_proof_says_step_by_step(shift, spread, delta):
    expected = by_the_proof(shift, spread, 45, delta)
    assert expected < 0.95 * epsilon_at(shift, delta)  # the mixer does hide something here
    found = shuffled_epsilon_of(shift, spread, 45, delta)
    assert expected * (1 - 1e-7) <= found <= expected * (1 + 1.1e-3)  # rounded up, by a thousandth at most


@pytest.mark.parametrize("silos", [2, 3, 12, 45])
@pytest.mark.parametrize(
    "shift, spread, delta", [(0.2, 0.2, 1e-4), (0.1, 0.3, 1e-7), (1.0, 1.0, 1e-4), (9.0, 9.0, 0.02)]
)
def test_where_the_proof_says_less_than_the_noise_alone_the_noise_counts(silos, shift, spread, delta):
    assert shuffled_epsilon_of(shift, spread, silos, delta) == pytest.approx(epsilon_at(shift, delta), rel=1e-9)


def test_among_more_silos_than_buckets_hardly_anything_is_given_away():
    expected = by_the_proof(0.05, 0.2, 300, 1e-3)
    assert expected * (1 - 1e-7) <= shuffled_epsilon_of(0.05, 0.2, 300, 1e-3) <= 1.05 * expected


def composed_by_listing(epsilon: float, delta: float, times: int, total: float) -> float:
    """The least of `times` epsilon, `times` - 2 epsilon, ... that holds for products of randomised response which gives
    itself away with probability delta: the worst mechanism there is."""
    ones = np.arange(times + 1)
    q = 1 / (1 + math.exp(-epsilon))
    hidden = comb(times, ones) * q**ones * (1 - q) ** (times - ones)
    kept = (1 - delta) ** times  # probability that nothing gave itself away
    fine = [
        e
        for e in epsilon * np.arange(times, -1, -2)
        if 1 - kept + kept * hockey_stick(hidden, hidden[::-1], e) <= total
    ]
    return min(fine, default=math.inf)


@pytest.mark.parametrize("releases", [1, 2, 7, 30])
@pytest.mark.parametrize("delta", [0.02, 1e-4])
def test_releases_compose_as_randomised_response_does_at_the_best_share_of_delta(releases, delta):
    shift, spread, silos = 0.2, 0.3, 50
    expected = []
    for share in (0.0, 0.5, 0.9):
        each = (1 - (1 - delta * (1 - share)) ** (1 / releases)) * (1 - 1e-6)
        expected.append(composed_by_listing(shuffled_epsilon_of(shift, spread, silos, each), each, releases, delta))
    found = amplified_epsilon(shift, spread, silos, releases, delta)
    assert found == pytest.approx(min(expected), rel=1e-9)
