"""The standard local model: each user adds noise to their own contribution, and need not trust even their silo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import zheng_sigma
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import Adversary, SeesMessages
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.calibration import GaussianNoise, Stated, gaussian_noise
from fedbandit.protocol.guarantee import BOUNDED_BY_USERS, Built, Guarantee, Request, nothing
from fedbandit.protocol.trust import Faith, Trust

__all__ = ["TRUST", "LocalProtocol", "check_users", "users_request"]


@dataclass(frozen=True)
class LocalProtocol(Protocol):
    """Every contribution carries noise of standard deviation `scales`; everything after that is post-processing.

    Formal guarantee: (shift / sigma)-GDP for each user against everybody. Nothing is composed over releases: a user's
    noisy contribution is drawn once, and sums of it tell no more than it does.
    """

    sends = "noisy contributions of users, added up"

    def privatise(self, sums: Integers, users: int, noise: NoiseSource) -> Integers:
        """The sum of `users` noisy contributions: their Gaussians add up to one with `users` times the variance."""
        return sums + noise.gaussian(self.release_scales(users), sums.shape[:-1])

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        """No noise: the silo adds none."""
        return np.zeros((*lead, self.width), dtype=np.int64)

    def release_scales(self, users: int) -> Floats:
        """Every user of the batch has added noise; a release is in the units of the statistics (C = I)."""
        return np.asarray(self.drawn_scales * np.sqrt(users))

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages("everybody, the silo included"),)

    def prefix_gain(self, visits: tuple[int, ...]) -> Floats:
        """Everybody so far has added noise once, and it is forgotten as they are."""
        variance, gains = 0.0, []
        for users in np.diff((0, *visits)).tolist():
            variance = self.encoder.forget**2 * variance + self.silos * users
            gains.append(np.sqrt(variance))
        return np.array(gains)

    def pooled(self) -> Self:
        """The same for one silo: the noise is the users', and pooling silos does not change it."""
        return replace(self, silos=1)


def check_users(name: str, request: Request) -> None:
    """Refuse what is impossible where users add the noise, under the trust model `name`."""
    if request.encoder.name != "batches":
        calibrations = "'exact' or 'literature'" if name == "local" else "'exact'"
        raise ArgumentError(
            "trust", f"{name!r} must have mechanism 'batches' and calibration {calibrations}: users add the noise"
        )
    if request.acting != "lazy":
        raise ArgumentError("acting", f"must be 'lazy' for trust {name!r}: a silo has no raw data to act on")
    if request.adaptive:
        raise ArgumentError("schedule", f"must be public for trust {name!r}: a silo has no raw data to decide by")


def users_request(request: Request) -> Request:
    """The same request with all visits of a user counted as visits to different silos. Every visit, in whichever round
    or silo, draws noise of its own, so all visits compose in squares, as silos do."""
    privacy = request.asked
    if privacy.apart:
        raise ArgumentError("apart", f"must be 0 for trust 'local', got {privacy.apart}: each visit has its own noise")
    visits = privacy.participations * privacy.silos_per_user
    return replace(request, privacy=replace(privacy, participations=1, silos_per_user=visits))


def _build(request: Request) -> Built:
    """Each user's own noise; the mechanism after it has nothing to compose and must be `batches`."""
    check_users("local", request)
    comes = "comes at most {} times, with new noise each time"
    noise = gaussian_noise(users_request(request), joint_silos=False, comes=comes, literature=_zheng)
    scales = request.on_grid(noise.scales)
    protocol = LocalProtocol(request.encoder, scales, request.dim, request.bits, request.silos)
    return Built(protocol, _guarantee(request, noise, scales), lambda sync: noise.cost())


def _zheng(request: Request) -> Stated:
    """The noise of Zheng et al. 2020, the same on every number."""
    if request.ratio != 1:
        raise ArgumentError("ratio", f"must be 1 for the noise of Zheng et al., got {request.ratio!r}")
    sigma = zheng_sigma(request.asked.epsilon, request.asked.delta)
    step = (
        f"Zheng et al. 2020 let each user add noise of {sigma:.4f} to each of their numbers. The next steps compute "
        "exactly what that promises."
    )
    return Stated(sigma, Scales.flat(sigma), step)


def _guarantee(request: Request, noise: GaussianNoise, scales: Scales) -> Guarantee:
    if noise.problem:
        return nothing(noise.problem)
    privacy = request.asked
    return request.promise(
        f"Each user's own data is {privacy.pair}-differentially private against everybody, "
        f"the user's silo included ({privacy.adjacency}).",
        against="everybody",
        steps=(*noise.steps, request.grid_step(scales, "Each user's noise")),
        assumes=(BOUNDED_BY_USERS, "each user draws their own noise, and comes no more often than stated above"),
        collusion="the promise is against all of them together",
        missing="nothing changes: users protect themselves",
        silos_count=False,
    )


TRUST = Trust(
    name="local",
    build=_build,
    faith=Faith.NOBODY,
    who="Nobody has to be trusted: each user's data is noisy before the silo sees it.",
    separate=True,
    silo_sees=False,
    live=False,  # a live silo would have to run on the users' own devices
    calibrations=("exact", "literature"),
    mechanism="batches",
)
