"""Parties that lie with their own keys: their processes are honest, what leaves their machines is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedbandit.federation.setup.party import Party
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.parcels import SignedOutcome
from tests.torture.simulation.oracle import Oracle

__all__ = ["OneSided", "TwoStories", "honest"]


def honest(data: bytes) -> bytes:
    """What leaves the machine is what was said."""
    return data


@dataclass
class OneSided:
    """A silo that sends its releases to one of its receivers and not to the other."""

    oracle: Oracle
    deprived: str  # who gets nothing

    def __call__(self, data: bytes) -> bytes | None:
        said = self.oracle.overheard(data)
        return None if said is not None and (said.kind, said.receiver) == ("release", self.deprived) else data


@dataclass
class TwoStories:
    """An analyzer that tells one silo other models than the rest from some sync on, each of them signed, in a chain of
    their own."""

    analyzer: Party
    oracle: Oracle
    deceived: str
    since: int
    say: Callable[[str], None]
    told: dict[int, SignedOutcome] = field(default_factory=dict)

    def __call__(self, data: bytes) -> bytes:
        said = self.oracle.overheard(data)
        if said is None or (said.kind, said.receiver) != ("model", self.deceived) or said.sync < self.since:
            return data
        if said.sync not in self.told:
            self.told[said.sync] = self._another(said.sync, said.plain)
        self.say(f"{self.deceived} is told another model {said.sync}")
        receiver = self.analyzer.agreement.party(self.deceived)
        return self.analyzer.seal("model", receiver, said.sync, self.told[said.sync].encode())

    def _another(self, sync: int, plain: bytes) -> SignedOutcome:
        model = SignedOutcome.decode(plain, self.analyzer.agreement.plan)
        outcome = model.outcome._replace(prefix=model.outcome.prefix + 1.0)
        previous = self.told[sync - 1].head.hash if sync - 1 in self.told else model.previous
        return SignedOutcome(outcome, previous, self.analyzer.signed(sync + 1, heads.link(previous, outcome.encode())))
