"""What an application's own choice, and the features that it sends, may depend on: with the person's own record the
releases move as far as the proof counts on, with other people's unreleased data further, and that is why the guarantee
says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedbandit._arrays import Floats
from fedbandit.bandit.statistics import contributions, unpack
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.guarantee import OWN_DATA
from fedbandit.schedule import every

PLAN = Plan(3, 60, 3, Privacy(1.0, 1e-5), "silo", schedule=every(20), apprentice=True)
USERS = 20
Choosing = Callable[[int, Floats, list[float]], int]


def own_record(person: int, actions: Floats, earlier: list[float]) -> int:
    """A guideline: what it says of this person's record, and of nobody else's."""
    return int(np.argmax(actions[:, 0]))


def what_worked_last(person: int, actions: Floats, earlier: list[float]) -> int:
    """Everybody's reward so far decides: data of others that were not released."""
    return int(sum(earlier) % 2)


def moved(choosing: Choosing) -> float:
    """How far one person, replaced, moves the sums of their batch, in the units of the sensitivity; the worst found."""
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(200):
        records = rng.normal(size=(USERS, 2, PLAN.dim))
        records /= np.linalg.norm(records, axis=-1, keepdims=True)
        rewards = (rng.random((USERS, 2)) < 0.5).astype(float)  # of each action
        other = records.copy(), rewards.copy()
        other[0][0], other[1][0] = -records[0], 1 - rewards[0]
        bias, covariance = unpack(_sums(choosing, records, rewards) - _sums(choosing, *other), PLAN.dim)
        worst = max(worst, float(np.sqrt(PLAN.ratio * (bias @ bias) + (covariance**2).sum())))
    return worst


def _sums(choosing: Choosing, records: Floats, rewards: Floats) -> Floats:
    total, earlier = np.zeros(PLAN.protocol.width), list[float]()
    for person in range(USERS):
        action = choosing(person, records[person], earlier)
        total += contributions(records[person, action], rewards[person, action], PLAN.bits) * 2.0**-PLAN.bits
        earlier.append(float(rewards[person, action]))
    return total


@pytest.mark.parametrize(
    ("choosing", "covered"), [(own_record, True), (what_worked_last, False)], ids=["own record", "others' data"]
)
def test_only_a_choice_by_the_own_record_is_covered(choosing: Choosing, covered: bool) -> None:
    assert (moved(choosing) <= PLAN.request.shift.total) is covered


@pytest.mark.parametrize(("popular", "covered"), [(False, True), (True, False)], ids=["own record", "others' data"])
def test_only_features_of_the_own_record_are_covered(popular: bool, covered: bool) -> None:
    """A feature that says what was popular until then lets one person move everybody after them."""

    def sums(first: float) -> Floats:
        rewards, rows = [first, *[1.0] * (USERS - 1)], []
        for person in range(USERS):
            liked = rewards[0] if popular and person else 0.0
            rows.append(np.array([np.sqrt(1 - liked / 2), np.sqrt(liked / 2), 0.0]))
        packed = contributions(np.stack(rows), np.array(rewards), PLAN.bits)
        return np.asarray(packed.sum(axis=0) * 2.0**-PLAN.bits)

    bias, covariance = unpack(sums(0.0) - sums(1.0), PLAN.dim)
    assert (float(np.sqrt(bias @ bias + (covariance**2).sum())) <= PLAN.request.shift.total) is covered


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central", "local"])
def test_every_promise_says_what_data_may_depend_on(trust: str) -> None:
    plan = PLAN.changed(trust=trust, apprentice=False, mechanism="batches")
    assert OWN_DATA in plan.guarantee.assumes
    assert OWN_DATA not in PLAN.changed(trust="none").guarantee.assumes
