"""Drafts: plans whose schedule and matrix are still open, so that many can be compared within milliseconds.

The noise of prefix sum k is proportional to the norm of the worst column of C (or of the worst sum of columns, if
visits lie apart) times the norm of row k of B. So the noise under any schedule and mechanism is the noise of a single
release times numbers that are read off the matrix. No plan has to be made to compare them.

`QUICK` is the mechanism with which schedules are compared: good mechanisms have about the same noise, and this one
costs no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.bandit.confidence import NoiseLaw, practical
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.prediction import ARMS, Course, Prediction, followed, noises
from fedbandit.protocol import mechanisms
from fedbandit.schedule import Clock, Every
from fedbandit.simulator.attendance import EVERYBODY, Attendance

__all__ = ["QUICK", "Draft"]

QUICK = "toeplitz"


@dataclass(frozen=True)
class Draft:
    """A plan with practical radii, who comes to its silos, and how much of a row its constant has.

    `plan` has the trust, the budget with its cap, the split and the horizon; its schedule and mechanism do not matter.
    """

    plan: Plan
    arms: int = ARMS
    attendance: Attendance = EVERYBODY
    constant_share: float = PAPERS_SHARE
    drift: float = 0.0

    def cost(self, times: Sequence[int], mechanism: str = QUICK, forget: float = 1.0) -> float:
        """The predicted regret per visit, with syncs after these rounds of the plan."""
        return self.predicted(times, mechanism, forget).mean()

    def predicted(self, times: Sequence[int], mechanism: str = QUICK, forget: float = 1.0) -> Prediction:
        """The predicted regret over time, with syncs after these rounds of the plan."""
        law = self._law(_gain(mechanism, len(times), forget))
        course = Course(
            self.plan.silos,
            [self.plan.people * time for time in times],
            noises(law),
            practical(law, self.plan.dim, self.plan.alpha).regularisers.tolist(),
            forget,
            self.plan.cap,
            locally=self._single.serves_uncounted == "local",
            centre=self.plan.centre,
        )
        share, drift = self.constant_share, self.drift
        return followed(course, self.plan.dim, self.arms, self.attendance, constant_share=share, drift=drift)

    def _law(self, gain: Floats) -> NoiseLaw:
        """The noise of every decoded sum."""
        one = self._single.noise_law
        return replace(one, bias=one.bias * gain, diagonal=one.diagonal * gain, off_diagonal=one.off_diagonal * gain)

    @cached_property
    def _single(self) -> Plan:
        """The plan with a single release, at the end."""
        plan = self.plan
        last = (
            Clock(plan.schedule.period, first=plan.rounds) if isinstance(plan.schedule, Clock) else Every(plan.rounds)
        )
        return plan.changed(schedule=last, mechanism="batches", forget=1.0)


@lru_cache(maxsize=1024)
def _gain(mechanism: str, syncs: int, forget: float) -> Floats:
    """How many times noisier each decoded sum is than a single release, (syncs,)."""
    encoder = mechanisms.encoder(mechanism, syncs, forget)
    return np.asarray(encoder.column_norm * encoder.prefix_norms)
