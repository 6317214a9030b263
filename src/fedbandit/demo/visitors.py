"""The simulator's own users, one by one, for the live federation and for everything it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.plan import Plan
from fedbandit.simulator.kernels import contexts_of
from fedbandit.simulator.randomness import REWARD, uniform, user_key
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import Synthetic, synthetic

__all__ = ["GroupRegret", "Visitors", "simulated_regret"]

RUN = 0  # the simulator's run that has these users


@dataclass(frozen=True)
class Visitors:
    """One user for every silo and round of a synthetic task: the actions on offer, and the luck behind the reward."""

    silos: int
    rounds: int
    dim: int
    arms: int
    seed: int

    @property
    def task(self) -> Synthetic:
        return synthetic(self.dim, self.arms)

    @cached_property
    def contexts(self) -> Floats:
        """The features of every action, (silos, rounds, arms, dim)."""
        sets = [
            contexts_of(self.seed, RUN, silo, round_, self.arms, self.dim)
            for silo in range(self.silos)
            for round_ in range(1, self.rounds + 1)
        ]
        return np.stack(sets).astype(np.float64).reshape(self.silos, self.rounds, self.arms, self.dim)

    @cached_property
    def means(self) -> Floats:
        """The expected reward of every action, (silos, rounds, arms)."""
        return np.asarray(self.contexts @ self.task.theta(self.seed, RUN))

    def reward(self, silo: int, round_: int, action: int) -> float:
        """The Bernoulli reward of an action; `round_` counts from 0."""
        luck = uniform(np.uint64(user_key(np.uint64(self.seed), RUN, silo, round_ + 1, REWARD)))
        return float(luck < self.means[silo, round_, action])

    def regret(self, actions: Integers) -> Floats:
        """The cumulative regret of all silos after every round, (rounds,), for the actions (silos, rounds) taken."""
        chosen = np.take_along_axis(self.means, actions[..., None], axis=-1)[..., 0]
        return np.asarray(np.cumsum((self.means.max(axis=-1) - chosen).sum(axis=0)))


class GroupRegret(NamedTuple):
    """The cumulative regret of all silos, and the range of its end over draws of the noise."""

    rounds: Integers
    mean: Floats
    least: float
    most: float

    @property
    def final(self) -> float:
        return float(self.mean[-1])


def simulated_regret(visitors: Visitors, plans: dict[str, Plan], draws: int) -> dict[str, GroupRegret]:
    """The regret of each plan on the same users, over draws of its noise.

    A plan's noise depends on its name, so a plan that is simulated under several names meets the same users with
    different noise.
    """
    named = {
        f"{name}, draw {draw}": plan
        for name, plan in plans.items()
        for draw in range(draws if plan.privacy is not None else 1)
    }
    frame = simulate(visitors.task, named, runs=1, seed=visitors.seed).frame
    curves = {}
    for name in plans:
        drawn = frame.filter(frame["name"].is_in([label for label in named if label.startswith(f"{name}, draw ")]))
        mean = drawn.select("round", "regret").group_by("round").mean().sort("round")
        ends = drawn.filter(drawn["round"] == visitors.rounds)["regret"].to_numpy()
        curves[name] = GroupRegret(mean["round"].to_numpy(), mean["regret"].to_numpy(), ends.min(), ends.max())
    return curves
