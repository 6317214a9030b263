"""From what a round brought to the model a silo decides with, and the bytes it travels in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.statistics import width
from fedbandit.federation import messages
from fedbandit.plan import Plan


class Outcome(NamedTuple):
    """Result of a round: the prefix sum over all silos, and which silos are in this round's total.

    An empty cohort is a round that was skipped; the prefix sum is then the one before it, and the model stays.
    """

    prefix: NDArray[np.float64]  # (width,), natural units
    cohort: NDArray[np.int64]  # (silos,), 1 for each silo that was counted, in order of their names

    def encode(self) -> bytes:
        return messages.encode(self)

    @classmethod
    def decode(cls, data: bytes, plan: Plan) -> Outcome:
        prefix, cohort = messages.decode(data, [(width(plan.dim),), (plan.silos,)])
        if prefix.dtype != np.float64 or not np.isfinite(prefix).all():
            raise messages.MessageError("prefix must be finite numbers")
        return cls(prefix, checked_cohort(cohort))

    @property
    def skipped(self) -> bool:
        return not self.cohort.any()


def checked_cohort(cohort: NDArray[np.int64]) -> NDArray[np.int64]:
    """A cohort is 0s and 1s."""
    if cohort.dtype != np.int64 or not np.isin(cohort, (0, 1)).all():
        raise messages.MessageError("cohort must hold 0s and 1s")
    return cohort


def model_after(plan: Plan, step: int, prefix: NDArray[np.float64]) -> Model:
    """The model from the prefix sum of `step` (from 0); every silo computes the same from the same bytes."""
    learner = plan.learner
    radius = plan.radius(plan.times[step])
    return linucb.fit(prefix, plan.dim, learner.regulariser, learner.floor, radius).model


def first_model(plan: Plan) -> Model:
    """The model before the first round: no data, the prior width in every direction."""
    learner = plan.learner
    nothing = np.zeros(width(plan.dim))
    return linucb.fit(nothing, plan.dim, learner.regulariser, learner.floor, plan.radius(0)).model
