"""Rewards are hidden and nothing else: the model of Azize & Basu 2024, where contexts and actions are public.

Sums of x x^T are sent as they are, and sums of x y with noise. Anybody may read who shows up, and with what features;
only what came of it is protected. So this does not meet a definition that protects contexts too, as all promises here
do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.ledger import Clear
from fedbandit.privacy.sensitivity import rounding_shift
from fedbandit.protocol.adversaries import Adversary, SeesMessages
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.guarantee import Built, Request, nothing
from fedbandit.protocol.trust import Faith, Trust

__all__ = ["TRUST", "PublicContextsProtocol", "reward_sigma"]


@dataclass(frozen=True)
class PublicContextsProtocol(Protocol):
    """R adds noise to the bias alone; S and A only add.

    Formal guarantee: for two worlds that differ in one user's reward and in nothing else, the transcript is
    (column_norm * shift / sigma)-GDP, which is mu^2/2-zCDP. Worlds that differ in a context can be told apart.
    """

    sends = "sums of x x^T in the clear and noisy sums of x y"

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages("everybody", bound="dp"),)


def reward_sigma(request: Request) -> float:
    """The noise that hides one user's reward in all releases together; a reward moves x y by at most 1, and roundings,
    of the user's numbers and of releases, move it further."""
    privacy = request.asked
    moved = 1.0 + rounding_shift("replace-one", request.dim, request.bits) + request.release_rounding
    shift = moved * privacy.participations * math.sqrt(privacy.silos_per_user)
    return gaussian_sigma(privacy.epsilon, privacy.delta) * shift * request.encoder.column_norm


def _build(request: Request) -> Built:
    """Noise enough for rewards. Nothing is promised for contexts, so by the definition used here nothing at all."""
    if request.asked.apart:
        raise ArgumentError(
            "apart", f"must be 0 for trust 'public-contexts', got {request.asked.apart}: all visits count"
        )
    if request.acting != "lazy":
        raise ArgumentError(
            "acting",
            "must be 'lazy' for trust 'public-contexts': anybody may read the next action, which would reveal the raw "
            "rewards that it was chosen by",
        )
    drawn = request.on_grid(Scales.flat(reward_sigma(request))).bias
    protocol = PublicContextsProtocol(
        request.encoder, Scales(drawn, 0.0, 0.0), request.dim, request.bits, request.silos
    )
    why = (
        f"contexts and actions are in the clear. Only rewards are {request.asked.pair}-differentially private, "
        "provided that it is public anyway who comes, and what they are offered and given"
    )
    return Built(protocol, nothing(why), lambda sync: Clear("everybody"))


TRUST = Trust(
    name="public-contexts",
    build=_build,
    faith=Faith.EVERYBODY,
    who="Everybody sees contexts and actions. Rewards are hidden from everybody but the user's silo.",
    separate=True,
    live=False,  # no live silo sends sums of which a part is in the clear
    calibrations=("exact",),
)
