"""A look at an application's own choices: do they depend on what came of other people's?

The guarantee of a plan with `apprentice` assumes that they do not (see `protocol.guarantee.OWN_CHOICE`): a choice that
follows the outcomes of earlier people, before these were released, carries them into the releases once more.
"""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Floats, Integers

__all__ = ["SUSPICIOUS", "follows_others"]

SHUFFLES = 2000
SUSPICIOUS = 1e-3  # a p-value below it is reported as a dependence


def follows_others(action: Integers, reward: Floats, seed: int = 0) -> float:
    """The p-value of a permutation test on choices and rewards in the order of time, (decisions,) each: is the last
    person's action taken more often, or less, where it paid?

    Compared are neighbours in time. If choices depend on a person's own record alone, and people come independently of
    each other, then the last reward says nothing about whether its action comes again, given that action: rewards are
    permuted among decisions with the same action. One kind of dependence is looked for, and a large p-value is no
    proof that there is none.
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
