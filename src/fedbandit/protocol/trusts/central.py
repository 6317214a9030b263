"""A trusted analyzer: silos send sums in the clear, and it adds the noise once. The trust of the super single agent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import shariff_sheffet_sigma
from fedbandit.privacy.ledger import Entrusted
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import (
    Adversary,
    Bound,
    Moment,
    Residual,
    gaussian_residuals,
    gaussian_score,
    summed,
)
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import GaussianNoise, Stated, gaussian_noise
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.trust import AuditSize, Faith, Trust

__all__ = ["TRUST", "CentralProtocol", "SeesPublished"]


@dataclass(frozen=True)
class CentralProtocol(Protocol):
    """R encodes without noise; the trusted analyzer (S and A in one) adds the silos up and draws the noise.

    Formal guarantee: everything computed from the noisy totals is (column_norm * shift / sigma)-GDP for each user of
    any silo, against everybody but the analyzer, which sees every silo's sums.
    """

    sends = "sums of one batch, to the trusted analyzer, which adds the noise"
    mixer_draws = True

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        state, encoded = self.encoder.step(state, batch)
        return state, (encoded,)

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """The analyzer: one total, with noise drawn once."""
        (sums,) = held
        total = sums.sum(axis=SILOS, keepdims=True)
        return (total + self.draw(noise, total.shape[:-1]),)

    def prefix_gain(self, visits: tuple[int, ...]) -> Floats:
        """The noise of one draw, whatever the number of silos."""
        return self.encoder.prefix_norms

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesPublished(),)

    def pooled(self) -> Self:
        """The same for one silo: the noise is drawn once, whatever the number of silos."""
        return replace(self, silos=1)


@dataclass(frozen=True)
class SeesPublished:
    """Sees what a trusted analyzer makes public: the noisy total."""

    name: str = "everybody but the analyzer"
    bound: Bound = "gdp"
    remembers: bool = False

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        return gaussian_score(moment.held[0], summed(moment.expected), protocol.release_scales(moment.users))

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        expected, scales = summed(moment.expected)[world], claimed.release_scales(moment.users)
        return gaussian_residuals("noise of the analyzer", moment.held[0], expected, scales)


def _build(request: Request) -> Built:
    """Noise that is enough for the sum over all silos, drawn once by the analyzer."""
    noise = gaussian_noise(request, joint_silos=True, literature=_shariff_sheffet)
    scales = request.on_grid(noise.scales)
    cost = Entrusted("analyzer", noise.sigma, noise.shift)
    protocol = CentralProtocol(request.encoder, scales, request.dim, request.bits, request.silos)
    return Built(protocol, _guarantee(request, noise, scales), lambda sync: cost)


def _shariff_sheffet(request: Request) -> Stated:
    """The noise of Shariff & Sheffet 2018; with a `ratio` of 2 it lies on the three kinds of numbers as theirs does."""
    privacy, rounds = request.asked, request.encoder.size
    off_diagonal = shariff_sheffet_sigma(privacy.epsilon, privacy.delta, rounds)
    sigma = math.sqrt(2) * off_diagonal
    step = (
        f"Shariff & Sheffet 2018 add noise of {off_diagonal:.4f} to the numbers off the diagonal of every node of a "
        f"tree over {rounds:,} releases, and {sigma:.4f} to those on it. The next steps compute exactly what that "
        "promises."
    )
    return Stated(sigma, request.exact_scales(sigma), step)


def _guarantee(request: Request, noise: GaussianNoise, scales: Scales) -> Guarantee:
    if noise.problem:
        return nothing(noise.problem)
    privacy = request.asked
    return request.promise(
        f"Everything that leaves the analyzer is {privacy.pair}-differentially private for each "
        f"user of any silo ({privacy.adjacency}), against everybody but the analyzer.",
        against="everybody but the analyzer",
        steps=(*noise.steps, request.grid_step(scales)),
        assumes=(*COMMON_ASSUMPTIONS, "the analyzer is trusted with every silo's sums"),
        collusion=(
            "whoever colludes with the analyzer sees every silo's exact sums, and nothing is promised against them; "
            "all others together gain nothing"
        ),
        missing="nothing changes: the analyzer draws all the noise of every sync",
    )


TRUST = Trust(
    name="central",
    build=_build,
    faith=Faith.ANALYZER,
    who="Users trust their own silo and the analyzer, which sees every silo's sums.",
    calibrations=("exact", "paper", "published", "literature"),
    endless=True,
    audit=AuditSize(honest=2),
)
