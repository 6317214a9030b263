"""A trusted server: silos send sums in the clear, the server adds the noise once. The super single agent's trust."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.encoder import Floats, Integers, Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing


@dataclass(frozen=True)
class CentralProtocol(Protocol):
    """R encodes without noise; the trusted server (S and A in one) adds the silos up and draws the noise.

    Formal guarantee: everything computed from the noisy totals is (column_norm * shift / sigma)-GDP for each user of
    any silo, against everybody but the server, which sees every silo's sums.
    """

    trust = "central"

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        state, encoded = self.encoder.step(state, batch)
        return state, (encoded,)

    def mix(self, messages: Message, noise: NoiseSource) -> Message:
        total = messages[0].sum(axis=SILOS, keepdims=True)
        return (total + self.draw(noise, total.shape[:-1]),)

    def prefix_gain(self, times: tuple[int, ...]) -> Floats:
        return self.encoder.prefix_norms

    def pooled(self) -> Self:
        """The noise is drawn once whatever the number of silos."""
        return replace(self, silos=1)


def build(request: Request) -> Built:
    """Noise enough for the sum over all silos, drawn once by the server."""
    noise = gaussian_noise(request, joint_silos=True)
    protocol = CentralProtocol(request.encoder, noise.scales, request.bits, request.silos)
    if noise.problem:
        return Built(protocol, nothing(noise.problem))
    privacy = request.asked
    guarantee = Guarantee(
        f"All that leaves the server is ({privacy.epsilon:g}, {privacy.delta:g})-differentially private for each user "
        f"of any silo ({privacy.adjacency}), against everybody but the server.",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        "everybody but the server",
        noise.steps,
        (*COMMON_ASSUMPTIONS, "the server is trusted with every silo's sums"),
    )
    return Built(protocol, guarantee)
