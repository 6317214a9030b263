"""How an adversary tells two worlds apart: what it sees of a sync, and the best score that this allows.

An adversary knows both worlds down to every user, so it can retrace what the silos' releases would be without noise in
either world. What it sees of the noisy ones gives it a log-likelihood ratio, the best score there is (Neyman &
Pearson). It says "world 1" when the ratio is above zero, a threshold fixed before anything is drawn. Each trust model
has its adversaries in its own file; the one that several of them share is here.

An adversary also reports what it sees of the noise itself (`residuals`). An auditor who knows which world was played
then tests whether that noise is the noise that the guarantee counts on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from typing import Protocol as Interface

import numpy as np
from scipy.special import ndtri

from fedbandit._arrays import Floats, Integers, Numbers, Words
from fedbandit.protocol.base import SILOS, Message, Protocol

__all__ = [
    "Adversary",
    "Bound",
    "Moment",
    "Residual",
    "SeesMessages",
    "gaussian_residuals",
    "gaussian_score",
    "place_residuals",
    "summed",
    "uniform_residuals",
]

# What an adversary's success refutes: mu-GDP (for Gaussian noise the same as (epsilon, delta)-DP), or
# (epsilon, delta)-DP as such.
Bound = Literal["gdp", "dp"]
UNNOISED = 0.5  # a number without noise is taken to be known to half a unit, which is certainty in effect
FOLLOWED = 4  # messages whose places among shuffled ones are tested
WEYL = np.uint64(0x9E3779B97F4A7C15)  # odd, and its multiples spread evenly: 2^64 over the golden ratio


class Moment(NamedTuple):
    """One sync, and what an adversary can retrace of it."""

    sync: int  # from 0
    users: int  # of one silo, in this batch
    expected: tuple[Integers, Integers]  # noiseless releases in world 0 and in world 1, (1 or trials, silos, width)
    sent: Sequence[Message]  # what the silos sent; the last is of this sync (earlier ones if an adversary remembers)
    held: Message  # what the analyzer holds


class Residual(NamedTuple):
    """A stream of noise at one sync. If the claim is true, these are standard Gaussians, independent in every way."""

    name: str  # whose noise
    values: Floats  # (trials, rows, width)
    coincidence: float  # the chance that two vectors of the stream agree
    uniform: bool = False  # whether these are the words of a share, which must not depend on what the share hides
    beside: str = ""  # another stream, of the same silos, that this one must not depend on


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

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """What it sees of the noise at this sync, in units of the claimed noise, given which world was played."""
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


def gaussian_residuals(
    name: str, observed: Numbers, expected: Numbers, scales: Floats, beside: str = ""
) -> tuple[Residual, ...]:
    """The noise that is left of `observed` (trials, rows, width): one number per entry where noise is claimed."""
    noisy = np.flatnonzero(scales > 0)
    if not len(noisy):
        return ()
    values = ((observed - expected)[..., noisy] / scales[noisy]).astype(np.float64)
    return (Residual(name, values, float(np.prod(1 / (2 * np.sqrt(np.pi) * scales[noisy]))), beside=beside),)


def uniform_residuals(name: str, words: Words) -> tuple[Residual, ...]:
    """Uniform words turned into Gaussians of the same rank: once by their high bits, once by their low bits."""
    sides = ((name, words), (f"{name}, low bits", words.byteswap()))
    return tuple(
        Residual(side, ndtri(((bits >> np.uint64(11)) + 0.5) * 2.0**-53), 2.0 ** (-53 * words.shape[-1]), uniform=True)
        for side, bits in sides
    )


def place_residuals(name: str, sent: Integers, held: Integers, scales: Floats) -> tuple[Residual, ...]:
    """Where some messages of `sent` (trials, senders, width) are in `held`, which has them in another order.

    In a uniformly random order of M messages, the place of one is uniform over M, that of the next one among the
    remaining places is uniform over M - 1, and so on, all of them independent. To make a uniform number of a place,
    something between 0 and 1 is added to it that depends on the message alone, and so not on the order.
    """
    senders = sent.shape[SILOS]
    if senders < 2:
        return ()
    followed = np.linspace(0, senders - 1, min(FOLLOWED, senders - 1)).astype(int)
    found = np.stack([_place(sent[..., one, :], held) for one in followed], axis=-1)  # (trials, followed)
    earlier = np.tril(found[..., :, None] > found[..., None, :], -1).sum(axis=-1)
    marks = sent[..., followed, :].sum(axis=-1).astype(np.uint64) * WEYL
    between = ((marks >> np.uint64(11)) + 0.5) * 2.0**-53
    uniform = (found - earlier + between) / (senders - np.arange(len(followed)))
    one = 1 / (2 * math.sqrt(math.pi) * float(np.linalg.norm(scales)))  # the chance that two sums of a message agree
    alike = float(np.prod(one / (senders - np.arange(len(followed)))))
    return (Residual(name, ndtri(uniform)[..., None, :], alike),)


def _place(message: Integers, held: Integers) -> Integers:
    """The place of a message (trials, width) in `held` (trials, senders, width); 0 if it is not there."""
    return np.asarray(np.argmax((held == message[..., None, :]).all(axis=-1), axis=-1))


def summed(pair: tuple[Integers, Integers]) -> tuple[Integers, Integers]:
    """The expected releases of both worlds, each added up over the silos."""
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
        # Each array that has the shape of a release is a noisy copy of it. There should be one.
        copies = [array for array in moment.sent[-1] if array.shape[-1] == protocol.width]
        return sum((gaussian_score(copy, moment.expected, scales) for copy in copies), start=0.0)

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        scales = claimed.release_scales(moment.users)
        return gaussian_residuals(f"noise that {self.name} sees", moment.sent[-1][0], moment.expected[world], scales)
