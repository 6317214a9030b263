"""The noise of a trusted analyzer without one: each silo adds a share of the noise and splits its release in two.

A silo's integer release is cut into two uniformly random shares modulo 2^64, one for the mixer S and one sealed for the
analyzer A. S adds its shares and passes the sealed ones on; A adds those to S's total. Each of them alone sees uniform
words. Together they learn the noisy sum over silos and, as long as they do not collude, nothing else. A silo that drops
out is left out. If S and A do collude, each silo is still left with its own share of the noise.

A silo that missed syncs must not fold them into a later release. That would make its column norm larger, and the noise
of the others, which comes sync by sync, would not cover it. It is simply left out; `kept_weights` says what that
does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedbandit._arrays import Floats, Integers, Words
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.budget import at_most
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import (
    Adversary,
    Bound,
    Moment,
    Residual,
    gaussian_residuals,
    gaussian_score,
    summed,
    uniform_residuals,
)
from fedbandit.protocol.base import SILOS, Message, Part, Protocol
from fedbandit.protocol.calibration import GaussianNoise, gaussian_noise
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.personal import own_entries
from fedbandit.protocol.trust import AuditSize, Faith, Trust

__all__ = ["TRUST", "PersonalSecureSum", "SecureSumProtocol", "SeesOwnToo", "SeesShares", "SeesTotal", "split"]


NO_NOISE = Scales.flat(0.0)
SILOS_NOISE = "noise of the silos"


@dataclass(frozen=True)
class SecureSumProtocol(Protocol):
    """R adds this silo's share of the noise and splits; S adds its shares; A adds its own to S's total.

    Formal guarantee: sigma^2 is divided over h silos, the smallest number of honest silos in a sync. Then A's view is
    that of the noisy sum, (column_norm * shift / sigma)-GDP for each user of any silo, and S's view is uniform words. c
    colluding silos know their own noise and can subtract it, which is why h leaves them out. Every silo sees the
    decoded sums, so by default one is counted as colluding (c = 1): the promise is then against any one other silo,
    too. S sees the decoded sums as well, but no more than that and uniform words: what holds against A and those silos
    holds against S and those silos.
    """

    colluding: int = 0

    parts: ClassVar[tuple[Part, ...]] = (Part("mixer", np.uint64), Part("analyzer", np.uint64))
    sends = "noisy sums of one batch, in two shares"

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        state, (noisy,) = super().release(state, batch, noise)
        return state, split(noisy, noise)

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """S: the total of its own shares."""
        (own,) = held
        return (own.sum(axis=SILOS, dtype=np.uint64, keepdims=True),)

    def total(self, held: Message) -> Integers:
        for_mixer, for_analyzer = (array.sum(axis=SILOS, dtype=np.uint64) for array in held)
        return np.asarray(for_mixer + for_analyzer).view(np.int64)

    def adversaries(self) -> tuple[Adversary, ...]:
        colluders = (SeesTotal(self.colluding),) if self.colluding else ()
        shares = SeesShares("the mixer", 0), SeesShares("the analyzer, by its shares alone", 1)
        return SeesTotal(), *colluders, *shares


@dataclass(frozen=True)
class PersonalSecureSum(SecureSumProtocol):
    """The secure sum, and a release of each silo for itself (`protocol.personal` has the guarantee)."""

    columns: tuple[int, ...] = ()
    own_scales: Scales = NO_NOISE

    parts = (*SecureSumProtocol.parts, Part("silo"))
    sends = "noisy sums of one batch, in two shares; some of them once more, noisier, to the silo itself"

    @property
    def widest_noise(self) -> float:
        return max(*self.scales, *self.own_scales)

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        _, encoded = self.encoder.step(state, batch)
        after, shares = super().release(state, batch, noise)
        own = np.where(own_entries(self.dim, self.columns), encoded, 0)
        return after, (*shares, own + noise.gaussian(self.own_drawn_scales, batch.shape[:-1]))

    @cached_property
    def own_drawn_scales(self) -> Floats:
        """The noise of every number of a silo's own release, in release units; 0 for numbers not in it (width,)."""
        return np.where(own_entries(self.dim, self.columns), self.own_scales.packed(self.dim), 0.0) * (
            2.0**self.release_bits
        )

    def total(self, held: Message) -> Integers:
        return super().total(held[:2])

    def adversaries(self) -> tuple[Adversary, ...]:
        return tuple(SeesOwnToo(one.colluding) if isinstance(one, SeesTotal) else one for one in super().adversaries())


def split(release: Integers, noise: NoiseSource) -> tuple[Words, Words]:
    """Two shares, each uniform on its own, whose sum modulo 2^64 is the release."""
    mask = noise.words(release.shape)
    return mask, release.view(np.uint64) - mask


@dataclass(frozen=True)
class SeesTotal:
    """The analyzer, to whom `colluding` silos (the last ones) tell what they sent."""

    colluding: int = 0
    bound: Bound = "gdp"
    remembers: bool = False

    @property
    def name(self) -> str:
        silos = "1 colluding silo" if self.colluding == 1 else f"{self.colluding} colluding silos"
        return f"the analyzer with {silos}" if self.colluding else "the analyzer"

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        honest = protocol.silos - self.colluding
        told = sum(array[..., honest:, :].sum(axis=SILOS, dtype=np.uint64) for array in moment.sent[-1][:2])
        total = protocol.total(moment.held) - np.asarray(told, dtype=np.uint64).view(np.int64)
        low, high = (expected[..., :honest, :] for expected in moment.expected)
        scales = protocol.release_scales(moment.users) * np.sqrt(honest)
        return gaussian_score(total[..., None, :], summed((low, high)), scales)

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """The noise of the total, and the noise of each silo, from shares that add up to the silo's release."""
        if self.colluding:
            return ()
        scales = claimed.release_scales(moment.users)
        total = claimed.total(moment.held)[..., None, :]
        for_mixer, for_analyzer = moment.sent[-1][:2]
        each = np.asarray(for_mixer + for_analyzer).view(np.int64)
        return (
            *gaussian_residuals(
                "noise of the total", total, summed(moment.expected)[world], scales * claimed.silos**0.5
            ),
            *gaussian_residuals(SILOS_NOISE, each, moment.expected[world], scales),
        )


@dataclass(frozen=True)
class SeesOwnToo(SeesTotal):
    """The analyzer, which also sees what honest silos release to themselves. Nobody really sees that, but the proof
    allows it."""

    @property
    def name(self) -> str:
        return f"{super().name}, silos' own releases known"

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        assert isinstance(protocol, PersonalSecureSum)
        honest = slice(0, protocol.silos - self.colluding)
        own = np.where(own_entries(protocol.dim, protocol.columns), 1, 0)
        low, high = (expected[..., honest, :] * own for expected in moment.expected)
        seen = gaussian_score(moment.sent[-1][2][..., honest, :], (low, high), protocol.own_drawn_scales)
        return super().score(protocol, moment) + seen

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """Also the noise of silos' own releases."""
        assert isinstance(claimed, PersonalSecureSum)
        if self.colluding:
            return ()
        own = gaussian_residuals(
            "noise of silos' own releases",
            moment.sent[-1][2],
            moment.expected[world],
            claimed.own_drawn_scales,
            beside=SILOS_NOISE,
        )
        return (*super().residuals(claimed, moment, world), *own)


@dataclass(frozen=True)
class SeesShares:
    """Holds one share of every release and takes it for the release itself, which would be right if shares did not hide
    it."""

    name: str
    part: int  # which part of a message
    bound: Bound = "gdp"
    remembers: bool = False

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        words = moment.sent[-1][self.part]
        return gaussian_score(words.view(np.int64), moment.expected, protocol.release_scales(moment.users))

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """Its shares, which must be uniform whatever they hide."""
        return uniform_residuals(f"shares of {self.name}", moment.sent[-1][self.part])


def _build(request: Request) -> Built:
    """The noise of the sum, divided over the smallest number of honest silos that a sync can have."""
    honest = request.cohort - request.colluding
    if honest < 1:
        field, way_out = (
            ("silos", "let more take part") if request.cohort == request.silos else ("cohort", "make it larger")
        )
        raise ArgumentError(
            field,
            f"must be more than {request.colluding} for trust 'secure-sum' to hold against {request.colluding} of the "
            f"silos, got {request.cohort}: {way_out}, or use trust 'silo', where each silo's own noise is enough",
        )
    noise = gaussian_noise(request, joint_silos=True)
    own_share = 1 / math.sqrt(honest)
    scales = request.on_grid(noise.scales.times(own_share))
    made = (request.encoder, scales, request.dim, request.bits, request.silos, request.colluding)
    protocol = SecureSumProtocol(*made)
    if request.personal is not None:
        protocol = PersonalSecureSum(*made, request.personal.columns, request.own_scales())
    return Built(protocol, _guarantee(request, noise, honest, scales), lambda sync: noise.cost(own_share))


def _guarantee(request: Request, noise: GaussianNoise, honest: int, scales: Scales) -> Guarantee:
    if noise.problem:
        return nothing(noise.problem)
    privacy, own_sigma, against = request.asked, noise.sigma / math.sqrt(honest), _against(request.colluding)
    alone = request.exact_epsilon(own_sigma, joint_silos=False)
    mus = (request.mu(own_sigma, joint_silos=False), request.mu(noise.sigma, joint_silos=True))
    # One number if one silo adds all the noise.
    instead = " instead of ".join(dict.fromkeys(at_most(mu, 5) for mu in mus))
    return request.promise(
        f"The noisy sums are {privacy.pair}-differentially private for each user of any silo "
        f"({privacy.adjacency}), against {against}. If mixer and analyzer collude, each silo's own noise still gives "
        f"{request.pair_of(alone)}.",
        against=against,
        steps=(
            *noise.steps,
            f"At least {_silos(request.cohort)} in a sync. {_left_out(request.colluding)} {_shares(request, honest)}",
            "Each share alone is uniform modulo 2^64 whatever the release is. So what the mixer sees, and what the "
            "analyzer sees, can be computed from the noisy sum and from random numbers that depend on nothing.",
            "Together, mixer and analyzer see each silo's release with no noise but the silo's own: mu is then "
            f"{instead}, which is an exact epsilon of {at_most(alone)}.",
            request.grid_step(scales),
        ),
        assumes=(
            *COMMON_ASSUMPTIONS,
            "mixer and analyzer do not collude (for the first statement)",
            f"a sync with fewer than {request.cohort} silos is not opened",
        ),
        collusion=(
            f"mixer and analyzer together, even with all other silos: epsilon = {at_most(alone)}; "
            f"{_beyond(request, noise, honest)}"
        ),
        missing=_missing(request),
    )


def _against(colluding: int) -> str:
    """Against whom the sums are private."""
    if not colluding:
        return "the mixer alone or the analyzer alone"
    return f"{_others(colluding)} together with either the mixer or the analyzer"


def _others(silos: int) -> str:
    return "any one other silo" if silos == 1 else f"any {silos} other silos"


def _left_out(colluding: int) -> str:
    if colluding == 0:
        return "The analyzer knows none of their noise. (Another silo does know its own, and sees the sum.)"
    who = "One of them knows its" if colluding == 1 else f"{colluding} of them know their"
    return f"{who} own noise and may subtract it from the sum, which every silo sees."


def _silos(number: int) -> str:
    return "1 silo takes part" if number == 1 else f"{number} silos take part"


def _shares(request: Request, honest: int) -> str:
    """How the noise of the sum is divided."""
    if honest == 1:
        return f"{'The other one' if request.colluding else 'It'} adds all of the noise stated above."
    others = "of the other" if request.colluding else "of the"
    return f"Each {others} {honest} adds noise with 1/{honest} of the variance above, and independent Gaussians add up."


def _beyond(request: Request, noise: GaussianNoise, honest: int) -> str:
    """What is left if one more silo colludes than the plan counts on."""
    if honest == 1:
        return "more silos together gain nothing, because each silo's own noise is enough"
    epsilon = request.exact_epsilon(noise.sigma * math.sqrt(1 - 1 / honest), joint_silos=True)
    return f"{_others(request.colluding + 1)}, even with one of the two: epsilon = {at_most(epsilon)}"


def _missing(request: Request) -> str:
    if request.cohort == request.silos:
        return "the sync is skipped for all silos: the noise of every silo is needed"
    return (
        f"the sync goes ahead without it if at least {request.cohort} of the {request.silos} silos are there, and is "
        "skipped for all silos otherwise; a silo that was missing does not make up for what it missed"
    )


TRUST = Trust(
    name="secure-sum",
    build=_build,
    faith=Faith.TWO_WHO_DO_NOT_COLLUDE,
    who="Users trust their own silo. The mixer and the analyzer must not collude with each other.",
    endless=True,
    personal=True,
    shares_noise=True,
    calibrations=("exact",),
    audit=AuditSize(honest=2),
)
