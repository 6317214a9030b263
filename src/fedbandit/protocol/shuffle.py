"""SDP by amplification (Theorem SDP): silos send as under silo-level LDP, a shuffler hides who sent what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbandit.privacy.amplification import largest_epsilon, theorem_sdp, theorem_sdp_constants_one
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import FLIP, LEAK
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing


@dataclass(frozen=True)
class ShuffleProtocol(Protocol):
    """R as in Algorithm 2, S a uniform permutation of the silos' messages.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for one user among all silos, by the amplification lemma
    and advanced composition over the releases a datum touches; needs S honest, and a local epsilon of at most 1/T.
    """

    trust = "shuffle"

    def mix(self, messages: Message, noise: NoiseSource) -> Message:
        order = noise.permutation(messages[0].shape[SILOS])
        return tuple(np.take(array, order, axis=SILOS) for array in messages)


def build(request: Request) -> Built:
    """The lemma's noise (calibration "paper"), or the theorem's with every hidden constant 1 ("published")."""
    privacy, levels = request.asked, request.encoder.touches
    if privacy.participations > 1 or privacy.silos_per_user > 1:
        raise ValueError("participations must be 1 for trust 'shuffle': the amplification lemma has one datum a user")
    if request.calibration == "published":
        sigma = theorem_sdp_constants_one(
            privacy.epsilon, privacy.delta, request.silos, request.rounds, 1 + np.log2(request.encoder.steps)
        )
        why = "these are the constants of the published simulation, not the theorem's"
        return Built(_protocol(request, sigma), nothing(why))
    if request.calibration != "paper":
        raise ValueError("calibration must be 'paper' or 'published' for trust 'shuffle', whose theorem sets the noise")
    try:
        local = theorem_sdp(privacy.epsilon, privacy.delta, request.silos, request.rounds, levels)
    except ValueError:
        limit = largest_epsilon(privacy.delta, request.silos, request.rounds, levels)
        within = f"epsilon must be at most about {limit:.2g}" if limit else "silos must be more: no epsilon is in reach"
        raise ValueError(
            f"{within} for trust 'shuffle' with {request.silos} silos, {request.rounds} rounds and delta = "
            f"{privacy.delta:g} (Theorem SDP needs a local epsilon <= 1/T), got epsilon = {privacy.epsilon:g}"
        ) from None
    protocol = _protocol(request, local.sigma)
    if request.acting == "eager":
        return Built(protocol, nothing(FLIP))
    if not request.public_schedule:
        return Built(protocol, nothing(LEAK))
    unshuffled = request.exact_epsilon(local.sigma, joint_silos=False)
    if unshuffled > privacy.epsilon:
        return Built(
            protocol, nothing(f"the lemma's sensitivity is too small here: {unshuffled:.3g} without a shuffler")
        )
    guarantee = Guarantee(
        f"What the shuffler passes on is ({privacy.epsilon:g}, {privacy.delta:g})-differentially private for each user "
        f"of any silo ({privacy.adjacency}), against the server. At this noise it is so without the shuffler too.",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        "the server",
        (
            f"Half of the budget for each stream, shared over {levels} releases by advanced composition: each shuffled "
            f"release must be ({local.epsilon:.3g}, {local.delta:.3g})-DP.",
            f"The amplification lemma with {request.silos} silos of {request.rounds} points allows a local epsilon of "
            f"{local.local_epsilon:.3g} at delta_0 = {local.local_delta:.3g}: sigma_0 = {local.sigma:.5g}.",
            "The lemma takes the sensitivity of a stream to be 1; what each silo's transcript promises on its own, "
            f"computed exactly, is ({unshuffled:.3g}, {privacy.delta:g})-DP, so the statement holds either way.",
        ),
        (*COMMON_ASSUMPTIONS, "the shuffler does not collude with the server (for the amplified statement)"),
    )
    return Built(protocol, guarantee)


def _protocol(request: Request, sigma: float) -> ShuffleProtocol:
    return ShuffleProtocol(request.encoder, request.flat_scales(sigma), request.bits, request.silos)
