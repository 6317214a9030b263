"""A test of an application's own choices: do they depend on other people's outcomes?

The guarantee of a plan with `apprentice` assumes that they do not (see `protocol.guarantee.OWN_CHOICE`). A choice that
follows the outcomes of earlier people before these were released carries those outcomes into the releases a second
time.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats, Integers

__all__ = ["SUSPICIOUS", "follows_others"]

SHUFFLES = 2000
SUSPICIOUS = 1e-3  # a smaller p-value is reported as a dependence


def follows_others(action: Integers, reward: Floats, seed: int = 0) -> float:
    """The p-value of a permutation test: is the last person's action repeated more or less often after it paid?

    `action` and `reward` (decisions,) are in the order of time, and neighbours in time are compared. If choices depend
    only on a person's own record, and people come independently of each other, then, given the last action, its reward
    says nothing about whether the action is repeated. So rewards are permuted among decisions with the same action. The
    test looks for one kind of dependence, and a large p-value does not prove that there is none.
    """
    last, rewards = action[:-1], reward[:-1]
    again = (action[1:] == last).astype(np.float64)
    groups = [np.flatnonzero(last == one) for one in np.unique(last)]
    for group in groups:
        again[group] -= again[group].mean()
    seen = abs(float(again @ rewards))
    rng, larger = np.random.default_rng(seed), 0
    for _ in range(SHUFFLES):
        larger += abs(float(again @ _shuffled(rewards, groups, rng))) >= seen - 1e-12
    return (1 + larger) / (1 + SHUFFLES)


def _shuffled(rewards: Floats, groups: list[Integers], rng: np.random.Generator) -> Floats:
    mixed = rewards.copy()
    for group in groups:
        mixed[group] = rng.permutation(rewards[group])
    return mixed
