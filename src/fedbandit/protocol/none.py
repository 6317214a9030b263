"""No privacy: silos send their sums, the server adds them. FedLinUCB, the yardstick."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit.protocol.base import Protocol
from fedbandit.protocol.guarantee import Built, Request, nothing


@dataclass(frozen=True)
class NoProtocol(Protocol):
    """R sends sums, S and A do no more than add. No guarantee."""

    trust = "none"


def build(request: Request) -> Built:
    """Zero noise; nothing promised."""
    protocol = NoProtocol(request.encoder, request.flat_scales(0.0), request.bits, request.silos)
    return Built(protocol, nothing("every silo's sums are sent in the clear"))
