"""From the public model to a choice, and the probability with which it was made.

A policy is a function of the actions' scores: `means` <x, theta> and `spreads` beta ||x||_{V^-1}, the half-widths of
their confidence intervals. It gives the probability of every action. The choice is then drawn from these very numbers,
so a logged propensity is exact by construction. A policy is post-processing of releases: whatever it does, it costs no
budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import ndtr

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError

__all__ = ["FLATTEST", "REACH", "RESOLUTION", "UCB", "Pick", "Policy", "PolicyName", "as_policy", "drawn"]

PolicyName = Literal["ucb", "thompson", "inverse-gap"]
FLATTEST = 16.0  # a spread counts as at least the largest over this, so that Thompson's grid has a bounded size
REACH = 8.0  # standard deviations: the probability beyond is 6e-16, and taken as 0
RESOLUTION = 2.0  # points of the grid per standard deviation: the trapezoid rule is then exact to 1e-9
CELLS = 1 << 20  # most numbers of Thompson's grid that are held at a time


class Pick(NamedTuple):
    """An action (its index), and the probability with which the policy takes it."""

    action: int
    propensity: float


@dataclass(frozen=True)
class Policy:
    """How a lazily acting silo chooses.

    ucb: the largest mean + spread, the first of equals. `scale` must be 1: the plan's radii decide how wide spreads
    are.
    thompson: every action's mean is drawn independently from N(mean, (scale spread)^2), and the largest wins. The
    probability of that is a one-dimensional integral, which is computed.
    inverse-gap: SquareCB. With A actions, gap_a the distance to the largest mean and gamma = scale sqrt(A / mean of the
    squared spreads), p_a = 1 / (A + gamma gap_a) for all but the best action, which gets the rest.
    `floor` is the share of decisions that are uniformly random instead.

    >>> policy = Policy("inverse-gap", floor=0.1)
    >>> policy.probabilities(np.array([0.6, 0.5]), np.array([0.1, 0.1])).round(3).tolist()
    [0.686, 0.314]
    """

    name: PolicyName = "ucb"
    scale: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _validate.one_of("policy", self.name, get_args(PolicyName))
        _validate.positive("scale", self.scale)
        _validate.reward("floor", self.floor)
        if self.name == "ucb" and self.scale != 1:
            raise ArgumentError(
                "scale", f"must be 1 for policy 'ucb', got {self.scale!r}: the plan's radii are its scale"
            )

    @property
    def certain(self) -> bool:
        """Whether every choice has probability 1, so that its log tells nothing about other policies."""
        return self.name == "ucb" and self.floor == 0

    def probabilities(self, means: Floats, spreads: Floats) -> Floats:
        """The probability of every action, (..., arms); probabilities sum to 1 over the last axis."""
        chosen = _LAWS[self.name](means, spreads, self.scale)
        return np.asarray((1 - self.floor) * chosen + self.floor / means.shape[-1])

    def choose(self, means: Floats, spreads: Floats, chance: float) -> Pick:
        """The choice among some actions (arms,); `chance` is a uniform number in [0, 1)."""
        if self.certain:
            return Pick(int(np.argmax(means + spreads)), 1.0)
        return drawn(self.probabilities(means, spreads), chance)

    def as_dict(self) -> dict[str, Any]:
        """The policy as plain data."""
        return {"name": self.name, "scale": self.scale, "floor": self.floor}

    def __str__(self) -> str:
        options = [f"scale {self.scale:g}"] if self.scale != 1 else []
        options += [f"floor {self.floor:g}"] if self.floor else []
        return f"{self.name} ({', '.join(options)})" if options else self.name


UCB = Policy()


def as_policy(value: Policy | str | dict[str, Any]) -> Policy:
    """A policy from itself, from its name, or from what `as_dict` wrote.

    >>> as_policy("thompson") == as_policy({"name": "thompson"}) == Policy("thompson")
    True
    """
    if isinstance(value, Policy):
        return value
    if isinstance(value, str):
        return Policy(_validate.one_of("policy", value, get_args(PolicyName)))
    if not isinstance(value, dict):
        raise ArgumentError("policy", f"must be a Policy, a name or a table, got {value!r}")
    _validate.known_keys("policy", value, Policy.__dataclass_fields__, required=("name",))
    return Policy(**value)


def drawn(probabilities: Floats, chance: float) -> Pick:
    """Draw an action: its share of [0, 1), in the order of actions, contains the uniform number `chance`."""
    bounds = np.cumsum(probabilities)
    action = int(np.searchsorted(bounds, chance * bounds[-1], side="right"))
    if action == len(bounds):  # the product was rounded up to the last bound
        action = int(np.flatnonzero(probabilities)[-1])
    return Pick(action, float(probabilities[action]))


def _ucb(means: Floats, spreads: Floats, scale: float) -> Floats:
    return _point_mass(means + spreads)


def _inverse_gap(means: Floats, spreads: Floats, scale: float) -> Floats:
    arms = means.shape[-1]
    error = np.sqrt(np.mean(spreads**2, axis=-1, keepdims=True))
    best = _point_mass(means)
    gaps = means.max(axis=-1, keepdims=True) - means
    others = np.where(best > 0, 0.0, error / (error * arms + scale * math.sqrt(arms) * gaps + (error == 0)))
    return np.asarray(others + best * (1 - others.sum(axis=-1, keepdims=True)))


def _thompson(means: Floats, spreads: Floats, scale: float) -> Floats:
    lead, arms = means.shape[:-1], means.shape[-1]
    flat = zip(means.reshape(-1, arms), np.broadcast_to(spreads, means.shape).reshape(-1, arms), strict=True)
    return np.array([_largest_of(mean, scale * spread) for mean, spread in flat]).reshape(*lead, arms)


def _largest_of(means: Floats, deviations: Floats) -> Floats:
    """For independent normals (arms,): the probability that each is the largest.

    The probability of a is the integral of f_a(t) times the product of F_b(t) over all others b, by the trapezoid rule
    over the range in which the largest lies. Actions that cannot reach this range have probability 0.
    """
    widest = deviations.max()
    if widest == 0:
        return _point_mass(means)
    spread = np.maximum(deviations, widest / FLATTEST)
    low, high = (means - REACH * spread).max(), (means + REACH * spread).max()
    rivals = np.flatnonzero(means + REACH * spread > low)
    means, spread = means[rivals, None], spread[rivals, None]
    points = math.ceil((high - low) * RESOLUTION / spread.min()) + 1
    at_once, shares = max(1, CELLS // len(rivals)), np.zeros(len(rivals))
    grid = np.linspace(low, high, points)
    for first in range(0, points, at_once):
        z = (grid[first : first + at_once] - means) / spread
        below = ndtr(z)
        shares += (np.exp(-z * z / 2) / (spread * below) * below.prod(axis=0)).sum(axis=1)
    probabilities = np.zeros(len(deviations))
    probabilities[rivals] = shares / shares.sum()
    return probabilities


def _point_mass(scores: Floats) -> Floats:
    """1 for the largest of (..., arms), the first of equals, else 0."""
    return np.asarray(np.arange(scores.shape[-1]) == np.argmax(scores, axis=-1)[..., None], dtype=np.float64)


_LAWS = {"ucb": _ucb, "thompson": _thompson, "inverse-gap": _inverse_gap}
