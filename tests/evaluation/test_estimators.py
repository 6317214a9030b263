"""Estimators: against obp, against sums written out, and their intervals against the truth of a thousand logs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

from fedbandit.evaluation.estimators import Worth, doubly_robust, effective_size, interval, ips, snips, worth
from fedbandit.evaluation.evaluating import evaluate
from fedbandit.evaluation.targets import given
from tests.evaluation.logs import World

LOGS, DECISIONS, FEW = 1000, 800, 300
NEAR = (0.93, 0.97)  # 0.95 is hit within this by chance with probability 99.6 % (binomial, 1000 logs)


def test_values_are_those_of_obp(vectors: Callable[[str], Any]) -> None:
    """The known answers were made by obp's estimators; with other weights none of them would be met."""
    known = vectors("estimators")
    action, at = np.array(known["action"]), np.arange(len(known["action"]))
    target, predicted, rewards = (np.array(known[name]) for name in ("target", "predicted", "reward"))
    weights = target[at, action] / np.array(known["propensity"])
    averaged = (target * predicted).sum(axis=1)
    found = {
        "ips": ips(weights, rewards),
        "snips": snips(weights, rewards),
        "doubly robust": doubly_robust(weights, rewards, predicted[at, action], averaged),
    }
    for name, one in found.items():
        assert one.value == pytest.approx(known[name], rel=1e-12), name
    assert ips(1.01 * weights, rewards).value != pytest.approx(known["ips"], rel=1e-3)


def test_line_by_line() -> None:
    """The definitions as sums over decisions, without arrays."""
    rng = np.random.default_rng(2)
    w, r, q, v = rng.exponential(size=50), rng.random(50), rng.random(50), rng.random(50)
    terms = [v[i] + w[i] * (r[i] - q[i]) for i in range(50)]
    value = sum(terms) / 50
    spread = math.sqrt(sum((term - value) ** 2 for term in terms) / 49 / 50)
    found = doubly_robust(w, r, q, v)
    assert (found.value, found.stderr) == pytest.approx((value, spread), rel=1e-12)
    skewness = sum((term - value) ** 3 for term in terms) / 50 / (spread * math.sqrt(49)) ** 3
    kurtosis = sum((term - value) ** 4 for term in terms) / 50 / (spread * math.sqrt(49)) ** 4
    reach = scipy.stats.t(min(49, 100 / (kurtosis - 1))).ppf(0.975)
    for end, student in ((found.low, reach), (found.high, -reach)):
        z, a = (value - end) / spread, skewness / math.sqrt(50)
        assert z + a * z**2 / 3 + a**2 * z**3 / 27 + a / 6 == pytest.approx(student, rel=1e-9)
    ratio = sum(w[i] * r[i] for i in range(50)) / sum(w)
    linear = [w[i] * (r[i] - ratio) / (sum(w) / 50) for i in range(50)]
    assert snips(w, r).value == pytest.approx(ratio, rel=1e-12)
    assert snips(w, r).stderr == pytest.approx(math.sqrt(sum(one**2 for one in linear) / 49 / 50), rel=1e-9)
    assert found.effective == pytest.approx(sum(w) ** 2 / sum(one**2 for one in w), rel=1e-12)


def test_the_effective_size_counts_equal_weights_in_full() -> None:
    assert effective_size(np.ones(70)) == pytest.approx(70)
    assert effective_size(np.array([5.0, 0, 0, 0])) == pytest.approx(1)
    assert effective_size(np.zeros(4)) == 0
    assert math.isnan(snips(np.zeros(4), np.ones(4)).value)


# -- intervals --------------------------------------------------------------------------------------------------------

Wrong = Callable[[np.ndarray, np.ndarray], Worth]


def symmetric(weights: np.ndarray, rewards: np.ndarray) -> Worth:
    """The right value and spread, and a normal interval: it knows nothing of terms that are lopsided."""
    return interval(ips(weights, rewards).value, ips(weights, rewards).stderr, len(rewards), 0.0, 0.95)


def plain_mean(weights: np.ndarray, rewards: np.ndarray) -> Worth:
    """Forgets that another policy was logged."""
    return worth(rewards, np.ones(len(rewards)))


def unweighted_spread(weights: np.ndarray, rewards: np.ndarray) -> Worth:
    """The right value with the spread of plain rewards."""
    centre, spread = ips(weights, rewards).value, 1.96 * rewards.std() / math.sqrt(len(rewards))
    return Worth(centre, spread, centre - spread, centre + spread, len(rewards), 0.0)


def clipped(weights: np.ndarray, rewards: np.ndarray) -> Worth:
    """Weights above 2 cut off: less spread, and a bias that the interval does not know of."""
    return ips(np.minimum(weights, 2.0), rewards)


@pytest.fixture(scope="module")
def covered() -> dict[str, float]:
    """The share of logs whose 95 % interval holds the truth."""
    return coverage(DECISIONS, [plain_mean, unweighted_spread, clipped])


def coverage(decisions: int, wrong: list[Wrong]) -> dict[str, float]:
    """By the estimators and by wrong ones, of logs of so many decisions."""
    world, rng = World(4), np.random.default_rng(20261116)
    truth = world.truth()
    hits: dict[str, list[bool]] = {}
    for _ in range(LOGS):
        log, target = world.log(decisions, rng)
        judged = evaluate(log, {"target": given(target)})["target"].worth
        found: dict[str, Worth] = {str(name): one for name, one in judged.items()}
        weights = target[log.played] / log.propensity
        found |= {one.__name__: one(weights, log.reward) for one in wrong}
        for name, one in found.items():
            hits.setdefault(name, []).append(one.low <= truth <= one.high)
    return {name: float(np.mean(one)) for name, one in hits.items()}


@pytest.mark.parametrize("name", ["ips", "snips", "dr"])
def test_95_per_cent_intervals_hold_the_truth_of_95_per_cent_of_logs(covered: dict[str, float], name: str) -> None:
    assert NEAR[0] <= covered[name] <= NEAR[1], covered


@pytest.mark.parametrize("name", ["plain_mean", "unweighted_spread", "clipped"])
def test_and_those_of_a_wrong_estimator_do_not(covered: dict[str, float], name: str) -> None:
    assert not NEAR[0] <= covered[name] <= NEAR[1], covered


def test_small_logs_have_intervals_that_hold_as_often() -> None:
    """Worth some seventy decisions. A normal interval, which cannot be lopsided, misses the truth too often."""
    found = coverage(FEW, [symmetric])
    assert found.pop("symmetric") < NEAR[0]
    assert all(NEAR[0] <= one <= NEAR[1] for one in found.values()), found


def test_rewards_that_are_all_alike_have_no_skewness() -> None:
    found = worth(np.full(40, 0.25), np.ones(40))
    assert (found.low, found.high) == (0.25, 0.25)
    almost = worth(np.tile([0.0, 1.0], 20), np.ones(40))
    assert almost.high - 0.5 == pytest.approx(0.5 - almost.low, rel=1e-9)
