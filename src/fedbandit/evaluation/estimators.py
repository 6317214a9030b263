"""What a policy would have earned, estimated from a log of another policy's decisions.

Each decision of the log has a weight w = target probability / logged probability of the action that was played. Let r
be its reward, q the predicted reward of the played action and v the prediction averaged over the target's actions:

    ips      mean of w r
    snips    mean of w r over mean of w
    dr       mean of v + w (r - q)

ips and dr are unbiased if the logged probabilities are true, and positive wherever the target's are; snips is
consistent. Intervals come from the empirical moments of the terms (for snips, of their linearisation
w (r - value) / mean w), and allow for two effects of the weights. First, the terms are skewed: a few decisions with
large weights pull the mean up, and if none of them happens to be in the log, a symmetric interval ends too low. With z
the mean's error in standard errors, a = skewness / sqrt(decisions) and

    g(z) = z + a z^2 / 3 + a^2 z^3 / 27 + a / 6,

g(z) is normal up to terms in 1 / decisions, and g is increasing, so it can be inverted (Hall 1992, "On the removal of
skewness by transformation"). Second, the variance itself is estimated from few decisions. So g(z) is compared with
Student's law with 2 decisions / (kurtosis - 1) degrees of freedom: those of a variance that is as uncertain (for normal
terms, the number of decisions).
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

from scipy.special import cbrt, ndtri, stdtrit

from fedbandit import _validate
from fedbandit._arrays import Floats

__all__ = ["ESTIMATORS", "Estimator", "Worth", "doubly_robust", "effective_size", "interval", "ips", "snips", "worth"]

Estimator = Literal["ips", "snips", "dr"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
SYMMETRIC = 1e-7  # skewness / sqrt(decisions) below this counts as 0: it would be lost in rounding


class Worth(NamedTuple):
    """An estimated mean reward with its interval, and the number of equally weighted decisions that it is worth."""

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
    """Predictions, corrected by the rewards that were seen.

    `played` predicts the rewards of the actions in the log, `averaged` those of the target's actions. The interval
    holds if each prediction was fitted without the decision that it is for.
    """
    return worth(averaged + weights * (rewards - played), weights, level)


def worth(terms: Floats, weights: Floats, level: float = 0.95) -> Worth:
    """The mean of independent terms, with an interval of this level that allows for their skewness."""
    count, value, effective = len(terms), float(terms.mean()), effective_size(weights)
    if count < 2:
        return interval(value, math.nan, count, effective, level)
    off = terms - value
    spread = float(off.std())
    stderr = spread / math.sqrt(count - 1)
    bend = float((off**3).mean()) / spread**3 / math.sqrt(count) if spread else 0.0
    uncertain = float((off**4).mean()) / spread**4 - 1 if spread else 0.0
    freedom = min(count - 1, 2 * count / max(uncertain, 1e-9))
    reach = float(stdtrit(freedom, (1 + _validate.within("level", level, 0, 1)) / 2))
    low, high = (value - _untransformed(one, bend) * stderr for one in (reach, -reach))
    return Worth(value, stderr, low, high, count, effective)


def _untransformed(normal: float, bend: float) -> float:
    """The z with g(z) = normal; `bend` is the skewness over the root of the number of decisions."""
    if abs(bend) < SYMMETRIC:
        return normal
    return 3 / bend * (float(cbrt(1 + bend * (normal - bend / 6))) - 1)


def interval(value: float, stderr: float, decisions: int, effective: float, level: float) -> Worth:
    """A value with its normal interval."""
    reach = float(ndtri((1 + _validate.within("level", level, 0, 1)) / 2)) * stderr
    return Worth(value, stderr, value - reach, value + reach, decisions, effective)


def effective_size(weights: Floats) -> float:
    """(sum w)^2 / sum w^2: the number of decisions whose plain mean would be as certain (Kish)."""
    largest = float(weights.max(initial=0.0))
    if not largest:
        return 0.0
    scaled = weights / largest  # the squares of unscaled weights may overflow
    return float(scaled.sum()) ** 2 / float((scaled**2).sum())
