"""What a policy would have earned, from a log of what another one did.

Each decision of the log has a weight w = target probability / logged probability of the action that was played. With
r its reward, q the predicted reward of the played action and v the prediction averaged over the target's actions:

    ips      mean of w r
    snips    mean of w r over mean of w
    dr       mean of v + w (r - q)

ips and dr are unbiased if the logged probabilities are true and are positive wherever the target's are; snips is
consistent. Intervals are normal, from the empirical variance of the terms (for snips of their linearisation
w (r - value) / mean w), so they hold for many decisions whose weights are not dominated by a few.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

from scipy.special import ndtri

from fedbandit import _validate
from fedbandit._arrays import Floats

__all__ = ["ESTIMATORS", "Estimator", "Worth", "doubly_robust", "effective_size", "interval", "ips", "snips", "worth"]

Estimator = Literal["ips", "snips", "dr"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class Worth(NamedTuple):
    """An estimated mean reward with its interval, and how many equally weighted decisions it is worth."""

    value: float
    stderr: float
    low: float
    high: float
    decisions: int
    effective: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def ips(weights: Floats, rewards: Floats, level: float = 0.95) -> Worth:
    """Inverse propensity score.

    >>> import numpy as np
    >>> round(ips(np.array([2.0, 0.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0])).value, 3)
    0.5
    """
    return worth(weights * rewards, weights, level)


def snips(weights: Floats, rewards: Floats, level: float = 0.95) -> Worth:
    """Self-normalised inverse propensity score; not a number if all weights are 0."""
    total = weights.sum()
    if total == 0:
        return Worth(math.nan, math.nan, math.nan, math.nan, len(weights), 0.0)
    value = float(weights @ rewards / total)
    return worth(value + weights * (rewards - value) / weights.mean(), weights, level)


def doubly_robust(weights: Floats, rewards: Floats, played: Floats, averaged: Floats, level: float = 0.95) -> Worth:
    """Predictions, corrected by what was seen: `played` predicts the rewards of the actions of the log, `averaged`
    those of the target's. Where predictions were fitted without the decisions that they are for, the interval holds."""
    return worth(averaged + weights * (rewards - played), weights, level)


def worth(terms: Floats, weights: Floats, level: float = 0.95) -> Worth:
    """The mean of independent terms, with a normal interval of this level."""
    count = len(terms)
    stderr = float(terms.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    return interval(float(terms.mean()), stderr, count, effective_size(weights), level)


def interval(value: float, stderr: float, decisions: int, effective: float, level: float) -> Worth:
    """A value with its normal interval."""
    reach = float(ndtri((1 + _validate.within("level", level, 0, 1)) / 2)) * stderr
    return Worth(value, stderr, value - reach, value + reach, decisions, effective)


def effective_size(weights: Floats) -> float:
    """(sum w)^2 / sum w^2: of as many decisions a plain mean would be as certain (Kish)."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square else 0.0
