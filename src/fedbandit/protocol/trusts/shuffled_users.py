"""Users behind a mixer: each adds noise to their own data, a mixer permutes a batch of them (Chowdhury & Zhou 2022).

This is their protocol P_Amp. Every user's message is noisy, and so a little private by itself; unlabelled among the
messages of everybody else in the batch, it is private enough. A batch is released once, so nothing is composed over
batches. The theorem hides its constants; here the noise is the least that its proof certifies when every step is
computed (`privacy.clones`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.budget import at_most
from fedbandit.privacy.clones import amplified_epsilon, amplified_sigma
from fedbandit.privacy.ledger import Gaussian
from fedbandit.privacy.sensitivity import joint_shift, rounding_shift
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.guarantee import BOUNDED_BY_USERS, Built, Guarantee, Request
from fedbandit.protocol.trust import AuditSize, Faith, Trust
from fedbandit.protocol.trusts.local import LocalProtocol, check_users
from fedbandit.protocol.trusts.shuffle import ShuffleProtocol

__all__ = ["TRUST", "Crowd", "ShuffledUsersProtocol"]


@dataclass(frozen=True)
class ShuffledUsersProtocol(ShuffleProtocol, LocalProtocol):
    """R as in the local model; S is a uniform permutation, here of the users of a batch; A adds them up.

    A is told no more than an unordered set of noisy users, and uses their sum. So a simulation may add up the users of
    a silo first. An audit must not: it has one user in every silo's batch.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for each user, by clones, if S is honest.
    """

    sends = "noisy contributions of users, through the mixer"


class Crowd(NamedTuple):
    """What the clones have to hide, in units of the covariance noise, and among whom."""

    shift: float  # how far one user's message moves
    spread: float  # the largest distance between messages of two users
    users: int  # of the smallest batch, in all silos, but for one who may tell the analyzer which message is theirs

    @classmethod
    def of(cls, request: Request) -> Crowd:
        """The users of the smallest batch, but one. Two messages are at most as far apart as replacing one user by
        another moves a message. That is so even where the promise is for somebody who stays away, which moves their
        message by less."""
        smallest = int(np.min(np.diff((0, *request.times))))
        one = joint_shift("replace-one", request.reward_bound, request.ratio)
        rounding = rounding_shift("replace-one", request.dim, request.bits, request.ratio)
        return cls(request.shift.total, one + rounding, max(1, request.silos * smallest - 1))

    def sigma(self, request: Request) -> float:
        """The least noise that meets the budget, with the mixer or without."""
        privacy, alone = request.asked, request.exact_sigma(joint_silos=False)
        return amplified_sigma(self.shift, self.spread, self.users, 1, privacy.epsilon, privacy.delta, most=alone)

    def epsilon(self, request: Request, sigma: float) -> float:
        """The epsilon that the clones certify at this noise."""
        return amplified_epsilon(self.shift / sigma, self.spread / sigma, self.users, 1, request.asked.delta)


def _build(request: Request) -> Built:
    check_users("shuffled-users", request)
    privacy = request.asked
    if privacy.participations > 1 or privacy.silos_per_user > 1:
        raise ArgumentError("participations", "must be 1 for trust 'shuffled-users': a user sends one message")
    if not request.counted:
        raise ArgumentError(
            "schedule",
            "must count rounds for trust 'shuffled-users': the number of users in a batch must be known beforehand",
        )
    crowd = Crowd.of(request)
    sigma = crowd.sigma(request)
    scales = request.on_grid(request.exact_scales(sigma))
    needs_mixer = sigma < request.exact_sigma(joint_silos=False)
    protocol = ShuffledUsersProtocol(request.encoder, scales, request.dim, request.bits, request.silos, needs_mixer)
    steps = _clone_steps(request, crowd, sigma) if needs_mixer else gaussian_noise(request, joint_silos=False).steps
    cost = Gaussian(sigma, sigma, request.user_shift(joint_silos=False))
    return Built(protocol, _guarantee(request, sigma, scales, steps), lambda sync: cost)


def _clone_steps(request: Request, crowd: Crowd, sigma: float) -> tuple[str, ...]:
    amplified = request.pair_of(crowd.epsilon(request, sigma))
    return (
        f"One user's message moves by at most {at_most(crowd.shift / sigma)} standard deviations of their own noise, "
        f"and the messages of two users are at most {at_most(crowd.spread / sigma)} apart, so everybody else is "
        "sometimes a clone of the user.",
        f"One other user of the smallest batch is counted as colluding. Among the remaining {crowd.users:,} users, a "
        f"message is {amplified}-DP once it is shuffled. It is sent once, so nothing is composed.",
    )


def _guarantee(request: Request, sigma: float, scales: Scales, steps: tuple[str, ...]) -> Guarantee:
    privacy = request.asked
    alone = request.pair_of(request.exact_epsilon(sigma, joint_silos=False))
    return request.promise(
        f"What the mixer passes on is {privacy.pair}-differentially private for each user ({privacy.adjacency}), "
        f"against the analyzer and the silos. Without the mixer each user's own data is {alone}.",
        against="the analyzer and the silos",
        steps=(
            *steps,
            f"Without the mixer, each user's own data is {alone}-DP, computed exactly.",
            request.grid_step(scales, "Each user's noise", messages=request.largest_batch),
        ),
        assumes=(
            BOUNDED_BY_USERS,
            "each user draws their own noise, sends through the mixer, and comes no more often than stated above",
            "the mixer does not collude with the analyzer or a silo",
            "every batch has as many users as planned",
        ),
        collusion=(
            "the promise is against the analyzer together with any one other user; if the mixer colludes too, only the "
            f"user's own noise is left: {alone}, against all of them together"
        ),
        missing="the batch has fewer users than the promise relies on, so the sync must be skipped",
        silos_count=False,
    )


TRUST = Trust(
    name="shuffled-users",
    build=_build,
    faith=Faith.TWO_WHO_DO_NOT_COLLUDE,
    who="Users trust nobody with their raw data. The mixer must not collude with the analyzer or a silo.",
    whole=True,
    silo_sees=False,
    live=False,  # a live silo would have to run on the users' own devices
    calibrations=("exact",),
    mechanism="batches",
    audit=AuditSize(rounds=2, trials=2_000),
)
