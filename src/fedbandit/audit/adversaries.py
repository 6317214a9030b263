"""Who sees what: the adversaries of each trust model, and how each of them tells two worlds apart.

An adversary knows both worlds down to every user, and so can retrace what the silos' releases would be
without noise in either; what it sees of the noisy ones gives it a log-likelihood ratio, the best score there
is (Neyman & Pearson). It says "world 1" when the ratio is above zero, a threshold fixed before anything is
drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedbandit.audit.bounds import Bound
from fedbandit.audit.worlds import Floats, Integers
from fedbandit.protocol import base
from fedbandit.protocol.base import SILOS, Message
from fedbandit.protocol.silo import DecodedSilo
from fedbandit.protocol.vector_sum import ONES, VectorSumProtocol

Numbers = NDArray[Any]
UNNOISED = 0.5  # a number without noise is known to half a unit: certainty, in effect


class Moment(NamedTuple):
    """One synchronisation, with what the adversary can retrace of it."""

    step: int  # from 0
    users: int  # of one silo, in this batch
    expected: tuple[Integers, Integers]  # noiseless releases in world 0 and in world 1, (1 or trials, silos, width)
    messages: Sequence[Message]  # what the silos sent, this step's last (earlier ones if they are needed)
    mixed: Message  # what S passed on


class Adversary(Protocol):
    """Sees a part of the transcript and scores it."""

    @property
    def name(self) -> str:
        """Who it is."""
        ...

    @property
    def bound(self) -> Bound:
        """What its success refutes."""
        ...

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        """Log-likelihood ratio of what it sees at this step, world 1 over world 0: (trials,), or 0."""
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


def _own_scales(protocol: base.Protocol, users: int) -> Floats:
    """Noise in one silo's release, in release units; in the local model its users have added it."""
    drawn = np.sqrt(users) if protocol.trust == "local" else 1.0
    return np.asarray(np.array(protocol.scales) * drawn * 2.0**protocol.release_bits)


def _summed(pair: tuple[Integers, Integers]) -> tuple[Integers, Integers]:
    low, high = (expected.sum(axis=SILOS, keepdims=True) for expected in pair)
    return low, high


@dataclass(frozen=True)
class Everyone:
    """Sees every message of every silo: the adversary of trust `silo` (and `local`, and `none`)."""

    name: str = "everybody outside the silo"
    bound: Bound = "gdp"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        scales = _own_scales(protocol, moment.users)
        releases = _undecoded(protocol, moment) if isinstance(protocol, DecodedSilo) else moment.messages[-1]
        total: Floats | float = 0.0
        for array in releases:  # each a noisy copy of the same release: there should be one
            total = total + gaussian_score(array, moment.expected, scales)
        return total


def _undecoded(protocol: DecodedSilo, moment: Moment) -> Message:
    """The releases behind prefix sums: y = C A^-1 s, row by row."""
    row = protocol.encoder.row(moment.step)
    prefixes = [message[0] for message in moment.messages]
    changes = ((j, prefixes[j] - prefixes[j - 1] if j else prefixes[0]) for j in np.flatnonzero(row))
    return (sum(int(row[j]) * change for j, change in changes),)  # type: ignore[return-value]


@dataclass(frozen=True)
class Outsider:
    """Sees what a trusted server makes public: the noisy total."""

    name: str = "everybody but the server"
    bound: Bound = "gdp"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        return gaussian_score(moment.mixed[0], _summed(moment.expected), _own_scales(protocol, moment.users))


@dataclass(frozen=True)
class Analyzer:
    """The analyzer of a secure sum, with `colluding` silos (the last ones) telling it what they sent."""

    colluding: int = 0
    bound: Bound = "gdp"

    @property
    def name(self) -> str:
        silos = "1 colluding silo" if self.colluding == 1 else f"{self.colluding} colluding silos"
        return f"the analyzer with {silos}" if self.colluding else "the analyzer"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        honest = protocol.silos - self.colluding
        told = sum(array[..., honest:, :].sum(axis=SILOS, dtype=np.uint64) for array in moment.messages[-1])
        total = protocol.total(moment.mixed) - np.asarray(told, dtype=np.uint64).view(np.int64)
        low, high = (expected[..., :honest, :] for expected in moment.expected)
        scales = _own_scales(protocol, moment.users) * np.sqrt(honest)
        return gaussian_score(total[..., None, :], _summed((low, high)), scales)


@dataclass(frozen=True)
class ShareHolder:
    """Holds one share of every release and takes it for the release itself: right, if shares did not hide it."""

    name: str
    share: int  # 0: the mixer's, 1: the analyzer's
    bound: Bound = "gdp"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        words: Numbers = moment.messages[-1][self.share]
        return gaussian_score(words.view(np.int64), moment.expected, _own_scales(protocol, moment.users))


@dataclass(frozen=True)
class Server:
    """Sees unlabelled releases: any of them may be the user's silo's; all other silos are alike in both worlds."""

    name: str = "the server behind the shuffler"
    bound: Bound = "dp"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        variances = _own_scales(protocol, moment.users) ** 2
        others = moment.expected[0][..., 1:2, :]
        residual = (moment.mixed[0] - others).astype(np.float64)
        logs = []
        for expected in moment.expected:
            gap = (expected[..., :1, :] - others).astype(np.float64)
            each = np.sum(residual * (gap / variances) - gap**2 / (2 * variances), axis=-1)
            logs.append(logsumexp(each, axis=-1))
        return np.asarray(logs[1] - logs[0])


@dataclass(frozen=True)
class Counter:
    """Sees the counts of ones that a shuffler of bits leaves: binomial, scored by their mean and variance."""

    name: str = "the server behind the shuffler"
    bound: Bound = "dp"

    def score(self, protocol: base.Protocol, moment: Moment) -> Floats | float:
        assert isinstance(protocol, VectorSumProtocol)
        node = protocol.node(moment.step + 1)
        trials = node.users * node.noise_bits
        steps = 2.0**-protocol.bits / node.unit  # grid steps of P_1D in one unit of the statistics
        low, high = (expected * steps for expected in _summed(moment.expected))
        centred = moment.mixed[0] - trials * ONES - node.users / node.unit  # every number is shifted by L = 1
        deviation = np.full(protocol.width, np.sqrt(trials * ONES * (1 - ONES)))
        return gaussian_score(centred, (low, high), deviation)
