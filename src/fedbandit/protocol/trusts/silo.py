"""Silo-level LDP: each silo adds Gaussian noise to what it sends, and trusts nobody else (Algorithm 2, Theorem LDP).

`DecodedSilo` is P_alt: the silo decodes its own prefix sum before it sends, and the analyzer only adds.

A silo that could not send keeps drawing and storing its releases. `outgoing` folds those that were missed into the next
one that is delivered. That is post-processing of releases already accounted for, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import (
    Adversary,
    Bound,
    Moment,
    Residual,
    SeesMessages,
    gaussian_residuals,
    gaussian_score,
)
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import GaussianNoise, gaussian_noise
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.trust import Faith, Trust

__all__ = ["TRUST", "DecodedSilo", "EndlessSilo", "SeesPrefixSums", "SiloProtocol"]


@dataclass(frozen=True)
class SiloProtocol(Protocol):
    """R as in Algorithm 2; S is the identity.

    Formal guarantee: the transcript of one silo is (column_norm * shift / sigma)-GDP for each of its users, against
    everybody outside the silo, whatever the others send. It assumes lazy acting and a public schedule.
    """

    waits = True

    def outgoing(self, drawn: Sequence[Message], arrived: Mapping[int, Message]) -> Message:
        """What the silo sends so that the analyzer's prefix sum comes out as if the silo had never been away.

        Let y be the releases drawn and y' those sent. This solves B[k,k] y'_k + sum over arrived j of B[k,j] y'_j =
        sum_j B[k,j] y_j, which is the silo's own noisy prefix sum, for y'_k, what to send now.
        """
        k = len(drawn) - 1
        if all(j in arrived and np.array_equal(arrived[j][0], drawn[j][0]) for j in range(k)):
            return drawn[k]
        weights = self.encoder.decoder_row(k)
        prefix = np.tensordot(weights, np.stack([message[0] for message in drawn]).astype(np.float64), axes=1)
        known = sum((weights[j] * message[0] for j, message in arrived.items()), start=np.zeros_like(prefix))
        return (np.rint((prefix - known) / weights[k]).astype(np.int64),)

    def kept_weights(self, missed: Collection[int], sync: int) -> Floats:
        """At a sync that the silo is in, the whole weight of every batch: the silo makes up for what it missed.

        At a sync that it misses, its earlier messages y'_m still count: A adds sum_m B[sync, m] y'_m. In terms of the
        silo's own prefix sums s_m that is sum_m v_m s_m, and each s_m has every batch up to m at its weight. v solves
        v B = B[sync] on the syncs m that the silo was in, from the last of them to the first.
        """
        if sync not in missed:
            return self.encoder.target_row(sync)
        weights, left = np.zeros(sync + 1), self.encoder.decoder_row(sync).copy()
        for m in sorted(set(range(sync)) - set(missed), reverse=True):
            row = self.encoder.decoder_row(m)
            share = left[m] / row[m]
            left[: m + 1] -= share * row
            weights[: m + 1] += share * self.encoder.target_row(m)
        return weights

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages(),)


@dataclass(frozen=True)
class EndlessSilo(Protocol):
    """R as in `SiloProtocol`, for a federation without an end. A silo that was away is left out: to make up for what it
    missed would take everything that it ever drew.

    Formal guarantee: that of `SiloProtocol`, for all releases there ever are.
    """

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages(),)


@dataclass(frozen=True)
class DecodedSilo(Protocol):
    """P_alt: the silo sends its noisy prefix sum and the analyzer only adds.

    Formal guarantee: that of `SiloProtocol`, whose releases these messages are computed from.
    """

    sends = "noisy prefix sums, to the analyzer"

    def __post_init__(self) -> None:
        if self.encoder.fraction_bits:
            raise ArgumentError(
                "decode_at", "must be 'analyzer' unless the mechanism decodes with whole numbers (tree, batches)"
            )
        if self.encoder.forget != 1:
            raise ArgumentError(
                "forget",
                f"must be 1 where silos decode, got {self.encoder.forget:g}: weighted sums are not whole numbers",
            )

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        encoding, decoding = super().init(lead), self.encoder.init_decoder((*lead, self.width))
        return Stream(0, (*encoding.memory, *decoding.memory))

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        encoding, decoding = self._parted(state)
        encoding, (node,) = super().release(encoding, batch, noise)
        decoding, prefix = self.encoder.decode_step(decoding, node)
        return Stream(encoding.done, (*encoding.memory, *decoding.memory)), (np.rint(prefix).astype(np.int64),)

    def without(self, state: Stream) -> Stream:
        encoding, decoding = self._parted(state)
        encoding = super().without(encoding)
        decoding, _ = self.encoder.decode_step(decoding, np.zeros(self.width))
        return Stream(encoding.done, (*encoding.memory, *decoding.memory))

    def _parted(self, state: Stream) -> tuple[Stream, Stream]:
        """The states of the encoder and of the decoder."""
        encoders = len(self.encoder.init(()).memory)  # arrays that the encoder remembers; the rest are the decoder's
        return Stream(state.done, state.memory[:encoders]), Stream(state.done, state.memory[encoders:])

    def init_analyzer(self, lead: tuple[int, ...] = ()) -> Stream:
        return Stream(0, ())

    def decode(self, state: Stream, held: Message) -> tuple[Stream, Floats]:
        prefix = held[0].sum(axis=SILOS) * 2.0**-self.bits
        return Stream(state.done + 1, ()), np.asarray(prefix)

    def skip(self, state: Stream, lead: tuple[int, ...] = ()) -> Stream:
        return Stream(state.done + 1, ())

    def kept_weights(self, missed: Collection[int], sync: int) -> Floats:
        """All or nothing: each message is a whole prefix sum, so a sync has all of a silo or none of it."""
        return np.full(sync + 1, 0.0 if sync in missed else 1.0)

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesPrefixSums(),)


@dataclass(frozen=True)
class SeesPrefixSums:
    """Sees every silo's noisy prefix sums s, and works out the releases behind them: y = C A^-1 s, row by row."""

    name: str = "everybody outside the silo"
    bound: Bound = "gdp"
    remembers: bool = True

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        return gaussian_score(_release(protocol, moment), moment.expected, protocol.release_scales(moment.users))

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        release, scales = _release(claimed, moment), claimed.release_scales(moment.users)
        return gaussian_residuals(f"noise that {self.name} sees", release, moment.expected[world], scales)


def _release(protocol: Protocol, moment: Moment) -> Integers:
    """The newest release behind the prefix sums."""
    row = protocol.encoder.row(moment.sync)
    prefixes = [message[0] for message in moment.sent]
    changes = ((j, prefixes[j] - prefixes[j - 1] if j else prefixes[0]) for j in np.flatnonzero(row))
    return sum((int(row[j]) * change for j, change in changes), start=np.zeros_like(prefixes[0]))


def _build(request: Request) -> Built:
    """Noise that is enough for one silo's transcript, whatever the others do."""
    noise = gaussian_noise(request, joint_silos=False)
    whole = EndlessSilo if request.encoder.endless else SiloProtocol
    make = DecodedSilo if request.decode_at == "silo" else whole
    scales = request.on_grid(noise.scales)
    protocol = make(request.encoder, scales, request.dim, request.bits, request.silos)
    return Built(protocol, _guarantee(request, noise, scales), lambda sync: noise.cost())


def _guarantee(request: Request, noise: GaussianNoise, scales: Scales) -> Guarantee:
    if noise.problem:
        return nothing(noise.problem)
    privacy = request.asked
    return request.promise(
        f"Each silo's whole transcript is {privacy.pair}-differentially private for each of its users "
        f"({privacy.adjacency}), against the analyzer and all other silos together.",
        against="everybody outside the user's silo",
        steps=(*noise.steps, request.grid_step(scales)),
        assumes=(*COMMON_ASSUMPTIONS, "the user's own silo is trusted with the user's data"),
        collusion="the promise is against all of them together",
        missing=f"nothing changes: each silo's noise protects its own users; {_made_up(request)}",
    )


def _made_up(request: Request) -> str:
    return (
        "a silo that was missing does not make up for what it missed"
        if request.encoder.endless
        else "a silo that was missing makes up for what it missed"
    )


TRUST = Trust(
    name="silo",
    build=_build,
    faith=Faith.OWN_SILO,
    who="Users trust their own silo. All other silos, the analyzer and anybody they talk to may collude.",
    separate=True,
    endless=True,
    decodes_at=("analyzer", "silo"),
)
