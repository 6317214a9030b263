"""A federation as its parties agreed on it: the plan, who takes part with which public keys, deadlines, the broker."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbandit import _validate
from fedbandit.federation.keys import PublicKeys, party_name
from fedbandit.federation.releasing import check_live
from fedbandit.federation.subjects import OPERATOR, has_mixer
from fedbandit.plan import Plan

FIELDS = ("id", "plan", "broker", "deadline", "settle", "settle_last", "start", "operator", "parties")


@dataclass(frozen=True)
class Federation:
    """Public, and the same file at every party; `fingerprint` is what people compare over the telephone."""

    id: str
    plan: Plan
    broker: str  # URL
    deadline: float  # seconds a round stays open after its first release
    settle: float  # seconds a batch stays open after its tick is due, for rewards under way
    settle_last: float  # the same for the last batch of the term: a reward that comes after it is lost
    start: float  # unix time from which a clock schedule counts
    operator: bytes  # public broker key of whoever runs the broker
    parties: tuple[PublicKeys, ...] = ()

    def __post_init__(self) -> None:
        party_name(self.id)
        check_live(self.plan)
        _validate.positive("deadline", self.deadline)
        for name in ("settle", "settle_last"):
            if not 0 <= getattr(self, name) < self.deadline:
                raise ValueError(f"{name} must lie between 0 and the deadline of {self.deadline:g} s")
        names = [party.name for party in self.parties]
        if len(set(names)) != len(names) or OPERATOR in names:
            raise ValueError(f"parties must have different names, none of them {OPERATOR!r}, got {', '.join(names)}")
        if len(self.silos) > self.plan.silos:
            raise ValueError(f"parties must hold at most the plan's {self.plan.silos} silos, got {len(self.silos)}")
        for role in ("mixer", "analyzer"):
            if sum(party.role == role for party in self.parties) > 1:
                raise ValueError(f"parties must hold at most one {role}")

    @cached_property
    def silos(self) -> tuple[str, ...]:
        """Names of the silos, sorted: their order in a cohort."""
        return tuple(sorted(party.name for party in self.parties if party.role == "silo"))

    @property
    def has_mixer(self) -> bool:
        return has_mixer(self.plan.trust)

    @property
    def cohort(self) -> int:
        """Fewest silos in a round, for which the guarantee is calibrated. Shuffle and vector-sum are calibrated for
        all silos: a round that somebody misses is skipped."""
        whole = self.plan.trust in ("shuffle", "vector-sum")
        return self.plan.silos if whole or self.plan.cohort is None else self.plan.cohort

    def party(self, name: str) -> PublicKeys:
        for party in self.parties:
            if party.name == name:
                return party
        raise LookupError(f"{name!r} is not a party of federation {self.id}")

    def holder(self, role: str) -> PublicKeys:
        """The one party in this role."""
        for party in self.parties:
            if party.role == role:
                return party
        raise LookupError(f"federation {self.id} has no {role} yet")

    def complete(self) -> None:
        """Refuse to run before everybody has joined."""
        roles = ("analyzer", "mixer") if self.has_mixer else ("analyzer",)
        missing = [role for role in roles if all(party.role != role for party in self.parties)]
        if len(self.silos) < self.plan.silos:
            missing.append(f"{self.plan.silos - len(self.silos)} of {self.plan.silos} silos")
        if missing:
            raise ValueError(f"federation {self.id} is not complete: it lacks {', '.join(missing)}")

    def admit(self, party: PublicKeys) -> Federation:
        """The federation with one more party; a name that is taken is refused, unless it is the same party again."""
        if any(known == party for known in self.parties):
            return self
        return replace(self, parties=(*self.parties, party))

    @property
    def fingerprint(self) -> str:
        """Short hash of everything above, keys included."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:32]

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "plan": self.plan.as_dict(),
            "broker": self.broker,
            "deadline": self.deadline,
            "settle": self.settle,
            "settle_last": self.settle_last,
            "start": self.start,
            "operator": self.operator.hex(),
            "parties": [party.as_dict() for party in self.parties],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Federation:
        _validate.known_keys("federation", data, FIELDS)
        missing = sorted(set(FIELDS) - set(data))
        if missing:
            raise ValueError(f"federation lacks {', '.join(missing)}")
        return cls(
            data["id"],
            Plan.from_dict(data["plan"]),
            data["broker"],
            data["deadline"],
            data["settle"],
            data["settle_last"],
            data["start"],
            bytes.fromhex(data["operator"]),
            tuple(PublicKeys.from_dict(party) for party in data["parties"]),
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> Federation:
        try:
            data = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise ValueError(f"{path} must hold one federation")
        return cls.from_dict(data)
