"""Silo-level LDP behind a mixer that adds: the analyzer sees one noisy sum."""

from dataclasses import dataclass

from fedbandit import Plan
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import Adversary, SeesMessages
from fedbandit.protocol.base import SILOS, Message, Part, Protocol
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Request, nothing
from fedbandit.protocol.trust import Faith, Trust


@dataclass(frozen=True)
class Summing(Protocol):
    """R as under trust `silo`; S adds the releases up."""

    parts = (Part("mixer"),)
    sends = "noisy sums of one batch, to the mixer, which adds them up"

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        return (held[0].sum(axis=SILOS, keepdims=True),)

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages("the mixer"),)


def build(request: Request) -> Built:
    noise = gaussian_noise(request, joint_silos=False)
    scales = request.on_grid(noise.scales)
    protocol = Summing(request.encoder, scales, request.dim, request.bits, request.silos)
    if noise.problem:
        return Built(protocol, nothing(noise.problem), lambda sync: noise.cost())
    promise = request.promise(
        f"Each silo's transcript is {request.asked.pair}-differentially private for each of its users "
        f"({request.asked.adjacency}), against mixer, analyzer and all other silos together.",
        against="everybody outside the user's silo",
        steps=(*noise.steps, request.grid_step(scales)),
        assumes=(*COMMON_ASSUMPTIONS, "the user's own silo is trusted with the user's data"),
        collusion="the promise is against all of them together",
        missing="nothing changes: each silo's noise protects its own users",
    )
    return Built(protocol, promise, lambda sync: noise.cost())


TRUST = Trust(
    name="summing",
    build=build,
    faith=Faith.OWN_SILO,
    who="Users trust their own silo. Everybody else may collude.",
    separate=True,
)


def plan(asked: Plan) -> Plan:
    return asked.changed(trust="summing")
