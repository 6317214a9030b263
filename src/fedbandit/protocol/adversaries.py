"""How an adversary tells two worlds apart: what it sees of a sync, and the best score there is.

An adversary knows both worlds down to every user, and so can retrace what the silos' releases would be without noise
in either. What it sees of the noisy ones gives it a log-likelihood ratio, the best score there is (Neyman & Pearson).
It says "world 1" when the ratio is above zero, a threshold fixed before anything is drawn. Each trust model has its
adversaries in its own file; the one that several of them share is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from typing import Protocol as Interface

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit.protocol.base import SILOS, Message, Protocol

__all__ = ["Adversary", "Bound", "Moment", "SeesMessages", "gaussian_score", "summed"]

# What success refutes: mu-GDP (for Gaussian noise the same as (epsilon, delta)-DP), or (epsilon, delta)-DP as such.
Bound = Literal["gdp", "dp"]
UNNOISED = 0.5  # a number without noise is known to half a unit: certainty, in effect


class Moment(NamedTuple):
    """One sync, with what an adversary can retrace of it."""

    sync: int  # from 0
    users: int  # of one silo, in this batch
    expected: tuple[Integers, Integers]  # noiseless releases in world 0 and in world 1, (1 or trials, silos, width)
    sent: Sequence[Message]  # what the silos sent, this sync's last (earlier ones if an adversary remembers)
    held: Message  # what the analyzer holds


class Adversary(Interface):
    """Sees a part of the transcript and scores it."""

    @property
    def name(self) -> str:
        """Who it is."""
        ...

    @property
    def bound(self) -> Bound:
        """What its success refutes."""
        ...

    @property
    def remembers(self) -> bool:
        """Whether it needs the messages of earlier syncs to make sense of a later one."""
        ...

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        """Log-likelihood ratio of what it sees at this sync, world 1 over world 0: (trials,), or 0."""
        ...


def gaussian_score(
    observed: Numbers, expected: tuple[Numbers, Numbers], scales: Floats, axes: tuple[int, ...] = (-2, -1)
) -> Floats | float:
    """Log-likelihood ratio of Gaussians around `expected`, summed over `axes`: (trials, rows, width) to (trials,)."""
    gap = (expected[1] - expected[0]).astype(np.float64)
    if not gap.any():
        return 0.0
    weights = gap / np.maximum(scales, UNNOISED) ** 2
    residual = (observed - expected[0]).astype(np.float64)
    constant = 0.5 * np.sum(weights * gap, axis=axes)
    return np.asarray(np.sum(residual * weights, axis=axes) - constant)


def summed(pair: tuple[Integers, Integers]) -> tuple[Integers, Integers]:
    """Both expectations, added up over the silos."""
    low, high = (expected.sum(axis=SILOS, keepdims=True) for expected in pair)
    return low, high


@dataclass(frozen=True)
class SeesMessages:
    """Sees every message of every silo, each a noisy copy of its release."""

    name: str = "everybody outside the silo"
    bound: Bound = "gdp"
    remembers: bool = False

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        scales = protocol.release_scales(moment.users)
        copies = moment.sent[-1]  # each a noisy copy of the same release: there should be one
        return sum((gaussian_score(copy, moment.expected, scales) for copy in copies), start=0.0)
