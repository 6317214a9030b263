"""What the parties of a federation agreed on: the plan, who takes part with which public keys, times, the broker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Integers
from fedbandit._validate import ArgumentError
from fedbandit.federation.timing import Timing, is_time
from fedbandit.federation.wire.keys import PUBLIC_BYTES, PublicKeys, Role, party_name
from fedbandit.federation.wire.subjects import OPERATOR, Subjects
from fedbandit.plan import Plan
from fedbandit.protocol.trust import names as trust_names
from fedbandit.protocol.trust import trust as declared
from fedbandit.schedule import Clock

__all__ = ["Agreement", "SilosLedger", "check_broker", "check_live", "check_trust", "unknown_party"]

FIELDS = ("id", "plan", "broker", "timing", "operator", "parties")
# Fields added later, not written while they have their defaults. Without `signer`, members stay as the term began.
LATER = ("signer", "term", "ledgers")
SCHEMES = ("nats", "tls")


class SilosLedger(NamedTuple):
    """The ledger of a silo over the terms. What was seen of the silo before it began was of another ledger."""

    since: int = 1  # the term in which it began
    keys: tuple[bytes, ...] = ()  # identities that may have signed it in earlier terms, apart from the present ones

    def as_dict(self) -> dict[str, Any]:
        return {"since": self.since, "keys": [key.hex() for key in self.keys]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SilosLedger:
        _validate.known_keys("ledger", data, cls._fields, required=cls._fields)
        keys = tuple(bytes.fromhex(key) for key in data["keys"])
        if any(len(key) != PUBLIC_BYTES["identity"] for key in keys):
            raise ArgumentError("ledgers", f"must have keys of {PUBLIC_BYTES['identity']} bytes")
        return cls(data["since"], keys)


@dataclass(frozen=True)
class Agreement:
    """The federation's file: public, and the same at every party. People compare its `fingerprint` by telephone.

    An agreement is also the list of members at a later sync of the term (`roll.Roll`), with other parties and with
    `seats`. A seat is a silo's place in every cohort. A plan has as many seats as silos. Each seat is given to one silo
    per term, so no party confuses two silos, whichever lists of members it knows.
    """

    id: str
    plan: Plan
    broker: str  # its URL, or the URLs of its nodes, separated by commas
    timing: Timing
    operator: bytes  # public broker key of the operator, who runs the broker
    parties: tuple[PublicKeys, ...] = ()
    signer: bytes = b""  # public key that verifies changes of the members; empty: the members do not change
    seats: tuple[str, ...] = ()  # the silo that has, or had, each seat; by default the silos in order of their names
    term: int = 1  # its number; one file after the other has a greater one
    ledgers: Mapping[str, SilosLedger] = field(default_factory=dict, hash=False)  # only those that are not the default

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
        _validate.count("term", self.term)
        for name, ledger in self.ledgers.items():
            if _validate.count("since", ledger.since) > self.term:
                raise ArgumentError("ledgers", f"must begin by term {self.term}, got {ledger.since} for {name!r}")
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
        """The present silos as 0s and 1s, by seat."""
        taken = np.zeros(self.plan.silos, dtype=np.int64)
        taken[[self._seat[name] for name in self.silos if name in present]] = 1
        return taken

    def counted(self, cohort: Integers) -> list[str]:
        """The names of the silos in a cohort; seats of silos that are no longer members are left out."""
        return [name for name in self.silos if cohort[self._seat[name]]]

    @cached_property
    def subjects(self) -> Subjects:
        """Who may send what to whom, as the plan's protocol routes its messages.

        A silo sends to the analyzer first, so that the mixer never counts a silo whose other half is lost.
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
        """The party that has this role."""
        if role not in self._by_role:
            raise ArgumentError(
                "federation", f"{self.id} has no {role} yet: take its complete file (`federation accept`)"
            )
        return self._by_role[role]

    def complete(self) -> None:
        """Refuse to run before there are enough silos for a cohort; silos that come later take free seats."""
        roles = ("analyzer", "mixer") if self.plan.protocol.has_mixer else ("analyzer",)
        missing = [role for role in roles if all(party.role != role for party in self.parties)]
        if (lacking := self.plan.smallest_cohort - len(self.silos)) > 0:
            missing.append(f"{lacking} of {self.plan.smallest_cohort} silos")
        if missing:
            lacks = f"of federation {self.id} are not complete, still missing: {', '.join(missing)}"
            do = "the founder admits them (`federation admit`), then all take the complete file (`federation accept`)"
            raise ArgumentError("parties", f"{lacks}; {do}")

    def check_keys(self) -> None:
        """Refuse public keys that cannot be used."""
        for party in self.parties:
            with _validate.reading(f"public keys of {party.name}"):
                _ = party.verifier, party.sealing

    def admit(self, party: PublicKeys) -> Agreement:
        """The agreement with one more party; a name that is taken is refused, unless it is the very same party."""
        if any(known == party for known in self.parties):
            return self
        return replace(self, parties=(*self.parties, party))

    def rekeyed(self, party: PublicKeys) -> Agreement:
        """The agreement with new keys for a member; its name and role stay."""
        known = self.party(party.name)
        if (known.role, known == party) != (party.role, False):
            has = "has the keys that are known" if known == party else f"is of a {party.role}"
            raise ArgumentError("card", f"must have new keys of the {known.role} {party.name!r}, but {has}")
        return replace(self, parties=tuple(party if one == known else one for one in self.parties))

    def ledger(self, silo: str) -> SilosLedger:
        return self.ledgers.get(silo, SilosLedger())

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the whole agreement, keys included."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:32]

    @cached_property
    def bond(self) -> str:
        """The fingerprint without the broker's address. Stores are tied to it, and greetings name the members by it.
        With a thousand parties megabytes of JSON are hashed, so it is computed once."""
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
            **({"term": self.term} if self.term > 1 else {}),
            **({"ledgers": {name: one.as_dict() for name, one in self.ledgers.items()}} if self.ledgers else {}),
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
            term=data.get("term", 1),
            ledgers={party_name(name): SilosLedger.from_dict(one) for name, one in data.get("ledgers", {}).items()},
        )

    def save(self, path: Path) -> None:
        """Write the file in one step: before all members have it, it may exist nowhere else."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.as_dict(), indent=1, sort_keys=True) + "\n")
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Agreement:
        with _validate.reading(str(path)):
            data = _validate.table(str(path), path.read_bytes())
            if not data.keys() & {"plan", "parties"}:
                raise ArgumentError(str(path), "must be a federation's file, as `federation init` writes it")
            return cls.from_dict(data)


def unknown_party(name: str, federation: str) -> ArgumentError:
    """The error for a name that is neither in the federation's file nor in the editions after it."""
    says = (
        f"{name!r} is not a party of federation {federation}: is the file another federation's, or was it not admitted?"
    )
    return ArgumentError("party", says)


def check_broker(urls: str) -> None:
    """Refuse anything but the URL of a NATS server, or several URLs separated by commas."""
    try:
        parts = [urlparse(url) for url in urls.split(",")]
        fine = all(part.scheme in SCHEMES and part.hostname and part.port != 0 for part in parts)
    except (ValueError, AttributeError, TypeError):  # not a string, or a port that is not a number or out of range
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
    """Refuse plans that cannot keep their stated guarantee live."""
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
    """Refuse most calendars that count requests: one more request would shift every later batch."""
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
            f"must be a clock in a live federation, got {plan.schedule}: every request would move all later batches. "
            'Use clock(seconds), or set visits="public": then it is public that, when and how often somebody asks',
        )
