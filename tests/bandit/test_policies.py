"""Policies: probabilities against quadrature and sampling, exact propensities, the floor, names and data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import chi2, norm

from fedbandit._arrays import Floats
from fedbandit.bandit.policies import UCB, Pick, Policy, as_policy, drawn
from tests.statistical import ALPHA

MEANS = np.array([0.5, 0.55, 0.2, 0.55, -0.4])
SPREADS = np.array([0.2, 0.1, 0.4, 0.12, 0.3])


def scores(seed: int, arms: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=arms), rng.uniform(0.2, 2.0, size=arms)


def wins_by_quadrature(means: Floats, deviations: Floats) -> Floats:
    """The probability that each of some independent normals is the largest, by an adaptive rule."""

    def density(t: float, a: int) -> float:
        others = np.delete(ndtr((t - means) / deviations), a)
        z = (t - means[a]) / deviations[a]
        return float(np.exp(-z * z / 2) / (deviations[a] * np.sqrt(2 * np.pi)) * others.prod())

    return np.array(
        [
            quad(density, m - 9 * s, m + 9 * s, args=(a,), limit=400, epsabs=1e-12, points=sorted({m, *means}))[0]
            for a, (m, s) in enumerate(zip(means, deviations, strict=True))
        ]
    )


def test_ucb_is_the_largest_bound_and_the_first_of_equals() -> None:
    assert UCB.probabilities(MEANS, SPREADS).tolist() == [1, 0, 0, 0, 0]  # 0.7, 0.65, 0.6, 0.67, -0.1
    assert UCB.choose(np.array([0.1, 0.3, 0.3]), np.full(3, 0.2), 0.99) == Pick(1, 1.0)
    assert UCB.certain
    assert not Policy(floor=0.1).certain


@pytest.mark.parametrize("arms", [1, 2, 5, 40])
def test_thompson_is_the_chance_to_be_the_largest(arms: int) -> None:
    for seed in range(3):
        means, spreads = scores(seed, arms)
        found = Policy("thompson", scale=0.7).probabilities(means, spreads)
        np.testing.assert_allclose(found, wins_by_quadrature(means, 0.7 * spreads), atol=2e-8)
        assert found.sum() == pytest.approx(1, abs=1e-12)
    wrong = Policy("thompson").probabilities(means, spreads)
    assert arms == 1 or np.abs(found - wrong).max() > 1e-3, "another scale would be noticed"


def test_thompson_of_two_actions_is_in_closed_form() -> None:
    means, spreads = np.array([0.3, 0.5]), np.array([0.3, 0.4])
    expected = norm.cdf(-0.2 / 0.5)
    np.testing.assert_allclose(Policy("thompson").probabilities(means, spreads), [expected, 1 - expected], atol=1e-9)


def test_thompson_without_any_spread_is_greedy_and_with_a_narrow_one_nearly() -> None:
    policy = Policy("thompson")
    assert policy.probabilities(MEANS, np.zeros(5)).tolist() == [0, 1, 0, 0, 0]
    narrow = policy.probabilities(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    assert narrow[0] == pytest.approx(norm.sf(1), abs=1e-3)  # counted as 1/16 of the widest


def test_thompson_of_a_hundred_thousand_actions() -> None:
    found = Policy("thompson").probabilities(np.zeros(100_000), np.ones(100_000))
    np.testing.assert_allclose(found, 1e-5, rtol=1e-9)


def test_inverse_gap_is_square_cb() -> None:
    error = np.sqrt(np.mean(SPREADS**2))
    gamma = 2.0 * np.sqrt(5) / error
    expected = 1 / (5 + gamma * (0.55 - MEANS))
    expected[1] = 0  # the first of the two largest means has the rest
    expected[1] = 1 - expected.sum()
    np.testing.assert_allclose(Policy("inverse-gap", scale=2.0).probabilities(MEANS, SPREADS), expected, rtol=1e-12)
    assert Policy("inverse-gap").probabilities(MEANS, np.zeros(5)).tolist() == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["ucb", "thompson", "inverse-gap"])
def test_a_floor_reaches_every_action_and_shares_are_probabilities(name: str) -> None:
    means, spreads = np.stack([MEANS, MEANS[::-1]]), np.stack([SPREADS, SPREADS])
    plain, floored = as_policy(name), as_policy({"name": name, "floor": 0.2})
    found = floored.probabilities(means, spreads)
    np.testing.assert_allclose(found, 0.8 * plain.probabilities(means, spreads) + 0.04, rtol=1e-12)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-12)
    assert found.min() >= 0.04 - 1e-15
    for row, mean, spread in zip(found, means, spreads, strict=True):
        np.testing.assert_array_equal(row, floored.probabilities(mean, spread))


@pytest.mark.parametrize("policy", [Policy(floor=0.3), Policy("thompson"), Policy("inverse-gap", floor=0.05)], ids=str)
def test_choices_come_as_often_as_their_propensities_say(policy: Policy) -> None:
    """A chi-square test of size ALPHA, which a policy with another floor fails."""
    rng, draws = np.random.default_rng(5), 200_000
    counts, expected = np.zeros(5), policy.probabilities(MEANS, SPREADS)
    for chance in rng.random(1000):  # the draw itself, and what it says of its probability
        choice = policy.choose(MEANS, SPREADS, chance)
        assert choice.propensity == expected[choice.action]
    found = np.array([drawn(expected, chance).action for chance in rng.random(draws)])
    np.add.at(counts, found, 1)
    assert _accepted(counts, expected)
    assert not _accepted(counts, 0.97 * expected + 0.03 / 5)


def _accepted(counts: Floats, expected: Floats) -> bool:
    possible = expected > 0
    assert counts[~possible].sum() == 0
    wanted = counts.sum() * expected[possible]
    return bool(((counts[possible] - wanted) ** 2 / wanted).sum() <= chi2.isf(ALPHA, possible.sum() - 1))


def test_a_chance_at_the_very_end_takes_an_action_that_can_be_taken() -> None:
    assert drawn(np.array([0.3, 0.7, 0.0]), np.nextafter(1, 0)).action == 1
    assert drawn(np.array([0.0, 1.0]), 0.0).action == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "greedy"}, "policy must be one of ucb, thompson, inverse-gap; got 'greedy'"),
        ({"name": "thompson", "scale": 0.0}, "scale must be a finite number > 0, got 0.0"),
        ({"name": "thompson", "floor": 1.5}, "floor must lie in [0, 1], got 1.5"),
        ({"name": "ucb", "scale": 2.0}, "scale must be 1 for policy 'ucb', got 2.0: the plan's radii are its scale"),
        ({"name": "ucb", "rate": 2.0}, "policy does not know 'rate'; it takes floor, name, scale"),
        ({"floor": 0.1}, "policy must give 'name'"),
        (7, "policy must be a Policy, a name or a table, got 7"),
    ],
)
def test_what_is_no_policy_is_refused(values: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        as_policy(values)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_as_data_and_in_words() -> None:
    policy = Policy("thompson", scale=0.5, floor=0.1)
    assert as_policy(policy.as_dict()) == policy == as_policy(policy)
    assert (str(policy), str(UCB)) == ("thompson (scale 0.5, floor 0.1)", "ucb")
