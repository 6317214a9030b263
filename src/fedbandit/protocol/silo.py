"""Silo-level LDP: each silo adds Gaussian noise to what it sends, and trusts nobody else (Algorithm 2, Theorem LDP).

`DecodedSilo` is P_alt: the silo decodes its own prefix sum before it sends, the server only adds.

A silo that could not send keeps drawing and storing its releases; `catch_up` folds those it missed into the next one
it delivers. That is post-processing of releases already accounted for, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.encoder import Encoder, Floats, Integers, Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing


@dataclass(frozen=True)
class SiloProtocol(Protocol):
    """R as in Algorithm 2, S the identity.

    Formal guarantee: the transcript of one silo is (column_norm * shift / sigma)-GDP for each of its users, against
    everybody outside the silo, whatever the others send. Assumes lazy acting and a public schedule.
    """

    trust = "silo"


@dataclass(frozen=True)
class DecodedSilo(Protocol):
    """P_alt: the silo sends its noisy prefix sum, a post-processing of the releases of `SiloProtocol`."""

    trust = "silo"

    def __post_init__(self) -> None:
        if self.encoder.fraction_bits:
            raise ValueError("decode_at must be 'analyzer' unless the mechanism decodes with whole numbers (tree)")

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        encoding, decoding = super().init(lead), self.encoder.init_decoder((*lead, self.width))
        return Stream(0, (*encoding.memory, *decoding.memory))

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        half = len(state.memory) // 2  # the tree remembers one array a level on either side
        encoding, (node,) = super().release(Stream(state.step, state.memory[:half]), batch, noise)
        decoding, prefix = self.encoder.decode_step(Stream(state.step, state.memory[half:]), node)
        return Stream(encoding.step, (*encoding.memory, *decoding.memory)), (np.rint(prefix).astype(np.int64),)

    def init_analyzer(self, lead: tuple[int, ...] = ()) -> Stream:
        return Stream(0, ())

    def decode(self, state: Stream, mixed: Message) -> tuple[Stream, Floats]:
        prefix = mixed[0].sum(axis=SILOS) * 2.0**-self.bits
        return Stream(state.step + 1, ()), np.asarray(prefix)


def catch_up(encoder: Encoder, releases: Sequence[Integers], delivered: Mapping[int, Floats]) -> Floats:
    """What a silo sends at its current step k so that the server's prefix sum is as if it had never been away.

    `releases` are y_0..y_k, drawn and stored at every tick; `delivered` maps the steps j < k that arrived to what was
    sent. Solves B[k,k] y'_k + sum_{delivered j} B[k,j] y'_j = sum_j B[k,j] y_j, the silo's own noisy prefix sum.
    """
    k = len(releases) - 1
    weights = encoder.decoder_row(k)
    prefix = np.tensordot(weights, np.stack(releases).astype(np.float64), axes=1)
    known = sum((weights[j] * sent for j, sent in delivered.items()), start=np.zeros_like(prefix))
    return np.asarray((prefix - known) / weights[k])


def build(request: Request) -> Built:
    """Noise enough for one silo's transcript, whatever the others do."""
    noise = gaussian_noise(request, joint_silos=False)
    make = DecodedSilo if request.decode_at == "silo" else SiloProtocol
    protocol = make(request.encoder, noise.scales, request.bits, request.silos)
    if noise.problem:
        return Built(protocol, nothing(noise.problem))
    privacy = request.asked
    guarantee = Guarantee(
        f"Each silo's whole transcript is ({privacy.epsilon:g}, {privacy.delta:g})-differentially private for each of "
        f"its users ({privacy.adjacency}), against the server and all other silos together.",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        "everybody outside the user's silo",
        noise.steps,
        (*COMMON_ASSUMPTIONS, "the user's own silo is trusted with the user's data"),
    )
    return Built(protocol, guarantee)
