"""A federation as its parties agreed on it: the plan, who takes part with which public keys, times, the broker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Integers
from fedbandit._validate import ArgumentError
from fedbandit.federation.timing import Timing, is_time
from fedbandit.federation.wire.keys import PublicKeys, Role, party_name
from fedbandit.federation.wire.subjects import OPERATOR, Subjects
from fedbandit.plan import Plan
from fedbandit.protocol.trust import names as trust_names
from fedbandit.protocol.trust import trust as declared
from fedbandit.schedule import Clock

__all__ = ["Agreement", "check_broker", "check_live", "check_trust", "unknown_party"]

FIELDS = ("id", "plan", "broker", "timing", "operator", "parties")
LATER = ("signer",)  # fields that came later; a federation without them has the members that it began with
SCHEMES = ("nats", "tls")


@dataclass(frozen=True)
class Agreement:
    """Public, and the same file at every party; `fingerprint` is what people compare over the telephone.

    It is also what a list of members is, at some sync of the term (`roll.Roll`): then with other parties, and with
    `seats`. A seat is a silo's place in every cohort. The plan has so many of them as silos at most; each is taken once
    in a term, so that no party, whichever lists it has heard of, takes one silo for another.
    """

    id: str
    plan: Plan
    broker: str  # URL, or those of its nodes with commas
    timing: Timing
    operator: bytes  # public broker key of whoever runs the broker
    parties: tuple[PublicKeys, ...] = ()
    signer: bytes = b""  # public key that lists of members are signed with; none: the members do not change
    seats: tuple[str, ...] = ()  # who has, or had, each seat; by default the silos in the order of their names

    def __post_init__(self) -> None:
        party_name(self.id)
        check_live(self.plan)
        if self.timing.start is None:
            raise ArgumentError("start", "must be agreed on: every silo's clock counts from it")
        _check_end(self.plan, self.timing.start)
        names = [party.name for party in self.parties]
        if len(set(names)) != len(names) or OPERATOR in names:
            raise ArgumentError(
                "parties", f"must have different names, none of them {OPERATOR!r}, got {', '.join(names)}"
            )
        if len(self.silos) > self.plan.silos:
            raise ArgumentError(
                "parties", f"must hold at most the plan's {self.plan.silos} silos, got {len(self.silos)}"
            )
        for role in ("mixer", "analyzer"):
            if sum(party.role == role for party in self.parties) > 1:
                raise ArgumentError("parties", f"must hold at most one {role}")

    @cached_property
    def silos(self) -> tuple[str, ...]:
        """Names of the silos, in the order of their seats."""
        names = sorted(party.name for party in self.parties if party.role == "silo")
        return tuple(name for name in self.seats if name in names) if self.seats else tuple(names)

    @cached_property
    def _seat(self) -> dict[str, int]:
        return {name: seat for seat, name in enumerate(self.seats or self.silos)}

    def cohort(self, present: Collection[str]) -> Integers:
        """Some silos as 0s and 1s, by seat."""
        taken = np.zeros(self.plan.silos, dtype=np.int64)
        taken[[self._seat[name] for name in self.silos if name in present]] = 1
        return taken

    def counted(self, cohort: Integers) -> list[str]:
        """The silos of a cohort; a seat that no member has is nobody's."""
        return [name for name in self.silos if cohort[self._seat[name]]]

    @cached_property
    def subjects(self) -> Subjects:
        """Who may say what to whom, as the plan's protocol routes its messages.

        A silo sends to the analyzer first, so the mixer never counts a silo in whose other half is lost.
        """
        protocol = self.plan.protocol
        direct = any(part.reader == "analyzer" and not part.blind for part in protocol.parts)
        to_analyzer: tuple[Role, ...] = ("analyzer",) if direct else ()
        return Subjects(self.id, (*to_analyzer, "mixer") if protocol.has_mixer else to_analyzer)

    @cached_property
    def _by_name(self) -> dict[str, PublicKeys]:
        return {party.name: party for party in self.parties}

    @cached_property
    def _by_role(self) -> dict[Role, PublicKeys]:
        return {party.role: party for party in reversed(self.parties)}

    def member(self, name: str) -> PublicKeys | None:
        """The party of this name, if there is one."""
        return self._by_name.get(name)

    def party(self, name: str) -> PublicKeys:
        if name not in self._by_name:
            raise unknown_party(name, self.id)
        return self._by_name[name]

    def holder(self, role: Role) -> PublicKeys:
        """The one party in this role."""
        if role not in self._by_role:
            raise ArgumentError(
                "federation", f"{self.id} has no {role} yet: take its complete file (`federation accept`)"
            )
        return self._by_role[role]

    def complete(self) -> None:
        """Refuse to run before there are enough to make a cohort: whoever comes later takes a seat that is free."""
        roles = ("analyzer", "mixer") if self.plan.protocol.has_mixer else ("analyzer",)
        missing = [role for role in roles if all(party.role != role for party in self.parties)]
        if (lacking := self.plan.smallest_cohort - len(self.silos)) > 0:
            missing.append(f"{lacking} of {self.plan.smallest_cohort} silos")
        if missing:
            lacks = f"it lacks {', '.join(missing)}"
            do = "once they were admitted, take the complete file (`federation accept`)"
            raise ArgumentError("parties", f"of federation {self.id} are not complete: {lacks}; {do}")

    def check_keys(self) -> None:
        """Refuse keys that cannot be used, of whichever party."""
        for party in self.parties:
            with _validate.reading(f"public keys of {party.name}"):
                _ = party.verifier, party.sealing

    def admit(self, party: PublicKeys) -> Agreement:
        """The agreement with one more party; a name that is taken is refused, unless it is the same party again."""
        if any(known == party for known in self.parties):
            return self
        return replace(self, parties=(*self.parties, party))

    def rekeyed(self, party: PublicKeys) -> Agreement:
        """The agreement, for a new term, with other keys of a member: the name and the role stay."""
        known = self.party(party.name)
        if (known.role, known == party) != (party.role, False):
            raise ArgumentError(
                "card", f"must have new keys of {party.name!r}, the {known.role}: it is of a {party.role}, or the same"
            )
        return replace(self, parties=tuple(party if one == known else one for one in self.parties))

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of everything above, keys included."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def bond(self) -> str:
        """The same wherever the broker is: what stores are tied to, and what every greeting says of the members. Of a
        thousand parties it takes megabytes of JSON to hash, so it is made once."""
        return replace(self, broker="").fingerprint

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "plan": self.plan.as_dict(),
            "broker": self.broker,
            "timing": asdict(self.timing),
            "operator": self.operator.hex(),
            "parties": [party.as_dict() for party in self.parties],
            **({"signer": self.signer.hex()} if self.signer else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Agreement:
        _validate.known_keys("federation", data, (*FIELDS, *LATER), required=FIELDS)
        check_broker(data["broker"])
        return cls(
            data["id"],
            Plan.from_dict(data["plan"]),
            data["broker"],
            Timing.from_dict(data["timing"]),
            bytes.fromhex(data["operator"]),
            tuple(PublicKeys.from_dict(party) for party in data["parties"]),
            bytes.fromhex(data.get("signer", "")),
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_dict(), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: Path) -> Agreement:
        with _validate.reading(str(path)):
            return cls.from_dict(_validate.table(str(path), path.read_bytes()))


def unknown_party(name: str, federation: str) -> ArgumentError:
    """Nobody of this name is in the federation's file, or in the editions after it."""
    says = (
        f"{name!r} is not a party of federation {federation}: is this the file of another one, or was it not admitted?"
    )
    return ArgumentError("party", says)


def check_broker(urls: str) -> None:
    """Refuse what is not the URL of a NATS server, or of several, with commas."""
    try:
        parts = [urlparse(url) for url in urls.split(",")]
        fine = all(part.scheme in SCHEMES and part.hostname and part.port != 0 for part in parts)
    except (ValueError, AttributeError, TypeError):  # a port that is no number, or none that there is; not a text
        parts, fine = [], False
    if not fine:
        raise ArgumentError("broker", f"must be nats://HOST:PORT or tls://HOST:PORT, got {urls!r}")
    if len({part.scheme for part in parts}) > 1:
        raise ArgumentError("broker", f"must be all nats:// or all tls://, got {urls!r}")


def check_trust(name: str) -> None:
    """Refuse trust models that no live federation can run."""
    if not declared(name).live:
        live = ", ".join(one for one in trust_names() if declared(one).live)
        raise ArgumentError("trust", f"must be one that runs live ({live}), got {name!r}, which is only simulated")


def check_live(plan: Plan) -> None:
    """Refuse plans that cannot run live with the guarantee they print."""
    check_trust(plan.trust)
    if plan.acting != "lazy":
        raise ArgumentError("acting", f"must be 'lazy' in a live federation, got {plan.acting!r}")
    if plan.privacy is not None and not plan.guarantee.promised:
        raise ArgumentError("plan", f"must have a guarantee to run live: {plan.guarantee.statement}")
    _check_calendar(plan)


def _check_end(plan: Plan, start: float) -> None:
    """Refuse a clock whose last tick is not a time."""
    if isinstance(plan.schedule, Clock) and not is_time(start + plan.rounds * plan.schedule.period):
        raise ArgumentError("schedule", f"must end before the year 5000, got {plan.rounds} periods of {plan.schedule}")


def _check_calendar(plan: Plan) -> None:
    """A calendar that counts requests moves with whoever asks: one request more shifts every later batch."""
    if isinstance(plan.schedule, Clock):
        return
    if plan.endless:
        raise ArgumentError("endless", f"must be false in a live federation unless a clock ticks, got {plan.schedule}")
    if plan.privacy is None:
        return
    if plan.privacy.adjacency == "add-remove":
        raise ArgumentError(
            "schedule",
            f"must be a clock in a live federation under add-remove, got {plan.schedule}: it counts people",
        )
    if plan.privacy.apart:
        raise ArgumentError(
            "apart",
            f"must be 0 in a live federation unless a clock ticks, got {plan.privacy.apart}: places are counted",
        )
    if plan.visits != "public":
        raise ArgumentError(
            "schedule",
            f"must be a clock in a live federation, got {plan.schedule}: who asks would move every later batch. "
            'Use clock(seconds), or set visits="public": that, when and how often somebody asks is then public',
        )
