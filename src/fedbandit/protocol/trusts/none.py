"""No privacy: silos send their sums, and the analyzer adds them. FedLinUCB, the yardstick."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.ledger import Clear
from fedbandit.protocol.adversaries import Adversary, SeesMessages
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.guarantee import Built, Request, nothing
from fedbandit.protocol.trust import Faith, Trust

__all__ = ["TRUST", "NoProtocol"]


@dataclass(frozen=True)
class NoProtocol(Protocol):
    """R sends sums; S and A only add. No guarantee."""

    sends = "sums of one batch, in the clear"

    def adversaries(self) -> tuple[Adversary, ...]:
        return (SeesMessages("everybody", bound="dp"),)


def _build(request: Request) -> Built:
    """Zero noise, and nothing promised."""
    protocol = NoProtocol(request.encoder, Scales.flat(0.0), request.dim, request.bits, request.silos)
    return Built(protocol, nothing("every silo's sums are sent in the clear"), lambda sync: Clear("everybody"))


TRUST = Trust(
    name="none",
    build=_build,
    faith=Faith.EVERYBODY,
    who="Everybody sees everything.",
    separate=True,
    endless=True,
)
