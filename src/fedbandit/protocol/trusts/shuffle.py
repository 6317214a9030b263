"""SDP by amplification (Theorem SDP): silos send as under silo-level LDP, a mixer hides who sent what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import published_levels
from fedbandit.privacy.amplification import Amplified, largest_epsilon, published_sdp_sigma, theorem_sdp
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.ledger import Gaussian
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import Adversary, Bound, Moment, Residual, SeesMessages
from fedbandit.protocol.base import SILOS, Message, Part, Protocol
from fedbandit.protocol.calibration import FLIP, LEAK, PUBLISHED, published_scales
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.trust import AuditSize, Faith, Trust

__all__ = ["TRUST", "SeesShuffled", "ShuffleProtocol"]


@dataclass(frozen=True)
class ShuffleProtocol(Protocol):
    """R as in Algorithm 2, S a uniform permutation of the silos' messages.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for one user among all silos, by the amplification lemma
    and advanced composition over the releases a datum touches; needs S honest, and a local epsilon of at most 1/T.
    """

    parts = (Part(blind=True),)
    sends = "noisy sums of one batch, through the mixer"

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """S: the messages in a random order."""
        (messages,) = held
        return (np.take(messages, noise.permutation(messages.shape[SILOS]), axis=SILOS),)

    def adversaries(self) -> tuple[Adversary, ...]:
        return SeesShuffled(), SeesMessages("the analyzer together with the mixer")


@dataclass(frozen=True)
class SeesShuffled:
    """Sees unlabelled releases: any of them may be the user's silo's; all other silos are alike in both worlds."""

    name: str = "the analyzer behind the mixer"
    bound: Bound = "dp"
    remembers: bool = False

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        variances = protocol.release_scales(moment.users) ** 2
        others = moment.expected[0][..., 1:2, :]
        residual = (moment.held[0] - others).astype(np.float64)
        logs = []
        for expected in moment.expected:
            gap = (expected[..., :1, :] - others).astype(np.float64)
            each = np.sum(residual * (gap / variances) - gap**2 / (2 * variances), axis=-1)
            logs.append(logsumexp(each, axis=-1))
        return np.asarray(logs[1] - logs[0])

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """Left to the one who sees the messages before they are shuffled."""
        return ()


def _build(request: Request) -> Built:
    """The lemma's noise (calibration "paper"), or the published simulation's ("published")."""
    privacy = request.asked
    if privacy.participations > 1 or privacy.silos_per_user > 1:
        raise ArgumentError(
            "participations", "must be 1 for trust 'shuffle': the amplification lemma has one datum per user"
        )
    if request.calibration == "published":
        levels = published_levels(request.encoder.size)
        sigma = published_sdp_sigma(privacy.epsilon, privacy.delta, request.silos, request.rounds, levels)
        return _built(request, published_scales(sigma), nothing(PUBLISHED))
    if request.calibration != "paper":
        raise ArgumentError(
            "calibration", "must be 'paper' or 'published' for trust 'shuffle', whose theorem sets the noise"
        )
    local = _local_budget(request)
    return _built(request, Scales.flat(local.sigma), _guarantee(request, local))


def _local_budget(request: Request) -> Amplified:
    """The theorem's local mechanism; where there is none, an error says how far the theorem reaches."""
    privacy, releases = request.asked, request.encoder.touches
    try:
        return theorem_sdp(privacy.epsilon, privacy.delta, request.silos, request.rounds, releases)
    except ArgumentError:
        limit = largest_epsilon(privacy.delta, request.silos, request.rounds, releases)
        theorem = (
            f"{request.rounds} rounds and delta = {exactly(privacy.delta)} (Theorem SDP needs a local epsilon <= 1/T)"
        )
        if not limit:
            raise ArgumentError(
                "silos", f"must be more than {request.silos} for trust 'shuffle': no epsilon is in reach with {theorem}"
            ) from None
        raise ArgumentError(
            "epsilon",
            f"must be at most about {limit:.2g} for trust 'shuffle' with {request.silos} silos, {theorem}, got "
            f"{exactly(privacy.epsilon)}",
        ) from None


def _guarantee(request: Request, local: Amplified) -> Guarantee:
    if request.acting == "eager":
        return nothing(FLIP)
    if not request.public_schedule:
        return nothing(LEAK)
    privacy = request.asked
    unshuffled = request.exact_epsilon(local.sigma, joint_silos=False)
    if unshuffled > privacy.epsilon:
        return nothing(f"the lemma's sensitivity is too small here: {at_most(unshuffled)} without a mixer")
    return request.promise(
        f"What the mixer passes on is {privacy.pair}-differentially private for each user "
        f"of any silo ({privacy.adjacency}), against the analyzer. At this noise it is so without the mixer too.",
        against="the analyzer",
        steps=(
            f"Half of the budget for each stream, shared over {_counted(request.encoder.touches)} by advanced "
            f"composition: each shuffled release must be ({local.epsilon:.3g}, {local.delta:.3g})-DP.",
            f"The amplification lemma with {request.silos} silos of {request.rounds} points allows a local epsilon of "
            f"{local.local_epsilon:.3g} at delta_0 = {local.local_delta:.3g}: sigma_0 = {local.sigma:.5g}.",
            *_unknown_points(request),
            "The lemma takes the sensitivity of a stream to be 1; what each silo's transcript promises on its own, "
            f"computed exactly, is {request.pair_of(unshuffled)}-DP, so the statement holds either way.",
            request.grid_step(request.on_grid(Scales.flat(local.sigma))),
        ),
        assumes=(*COMMON_ASSUMPTIONS, "the mixer does not collude with the analyzer (for the amplified statement)"),
        collusion="the noise alone still gives the promise, against all of them together, for the lemma asks for so "
        "much of it",
        missing="the sync is skipped for all: the lemma counts on every silo",
    )


def _counted(releases: int) -> str:
    return "1 release" if releases == 1 else f"{releases} releases"


def _unknown_points(request: Request) -> tuple[str, ...]:
    """On a clock the lemma sets the noise, and does not prove anything about it."""
    if request.counted:
        return ()
    return (
        "On a clock nobody knows how many points a silo will have, so the lemma proves nothing here: its noise is that "
        "of one point per period, and the promise rests on the next step alone.",
    )


def _built(request: Request, scales: Scales, guarantee: Guarantee) -> Built:
    """The protocol with this noise. A release costs what it would without a mixer: that is what can be composed."""
    drawn = request.on_grid(scales)
    protocol = ShuffleProtocol(request.encoder, drawn, request.dim, request.bits, request.silos)
    cost = Gaussian(scales.diagonal, scales.diagonal, request.user_shift(joint_silos=False))
    return Built(protocol, guarantee, lambda sync: cost)


TRUST = Trust(
    name="shuffle",
    build=_build,
    faith=Faith.TWO_WHO_DO_NOT_COLLUDE,
    who="Users trust their own silo. The mixer must not collude with the analyzer.",
    whole=True,
    calibrations=("paper", "published"),
    audit=AuditSize(trials=2_000),
)
