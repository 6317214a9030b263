"""The standard local model: each user adds noise to their own contribution and trusts not even their silo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.encoder import Floats, Integers
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request


@dataclass(frozen=True)
class LocalProtocol(Protocol):
    """Every contribution carries noise of standard deviation `scales`; from there on everything is post-processing.

    Formal guarantee: (shift / sigma)-GDP for each user against everybody. No composition over releases: a user's
    noisy contribution is drawn once, and sums of it tell no more than it does.
    """

    trust = "local"

    def privatise(self, sums: Integers, users: int, noise: NoiseSource) -> Integers:
        """The sum of `users` noisy contributions: their Gaussians add up to one of `users` times the variance."""
        scales = np.array(self.scales) * np.sqrt(users) * 2.0**self.bits
        return sums + noise.gaussian(scales, sums.shape[:-1])

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        """Nothing is added by the silo."""
        return np.zeros((*lead, self.width), dtype=np.int64)

    def prefix_gain(self, times: tuple[int, ...]) -> Floats:
        """Everybody so far has added noise once."""
        return np.asarray(np.sqrt(self.silos * np.array(times, dtype=float)))

    def pooled(self) -> Self:
        """The noise is the users': pooling their silos changes none of it."""
        return replace(self, silos=1)


def build(request: Request) -> Built:
    """Each user's own noise; the mechanism behind it composes nothing and must be `batches`."""
    if request.calibration != "exact" or request.encoder.name != "batches":
        raise ValueError("trust 'local' must have mechanism 'batches' and calibration 'exact': users add the noise")
    if request.acting != "lazy":
        raise ValueError("acting must be 'lazy' for trust 'local': a silo has no raw data to act on")
    if request.adaptive:
        raise ValueError("schedule must be public for trust 'local': a silo has no raw data to decide by")
    noise = gaussian_noise(request, joint_silos=False)
    protocol = LocalProtocol(request.encoder, noise.scales, request.bits, request.silos)
    privacy = request.asked
    guarantee = Guarantee(
        f"Each user's own data is ({privacy.epsilon:g}, {privacy.delta:g})-differentially private against everybody, "
        f"the user's silo included ({privacy.adjacency}).",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        "everybody",
        noise.steps,
        (COMMON_ASSUMPTIONS[0], "each user draws their own noise"),
    )
    return Built(protocol, guarantee)
