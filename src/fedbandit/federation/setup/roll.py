"""Who is a member at which sync: the federation's file, and the signed editions that have changed it since.

A person's guarantee does not depend on who else is a member, as long as every sync has a cohort:
- A silo's release is row k of the encoder applied to its own batches, with its own noise, whoever the others are. A
  silo that joins at sync j has empty batches before it; a silo that leaves releases nothing more. Either way its
  releases are a subset of those in the plan, and a person moves them by no more than the column norm.
- Where silos divide the noise of a sum, each adds the share for the smallest cohort that the plan allows. A sync with
  fewer silos is skipped, whoever is a member (`syncs.deadlines.closing`), so every sum has at least that noise.
- Sums, noise and 64-bit words are planned for all seats: fewer silos mean smaller sums and less noise than the
  regulariser and the radii allow for.
- A seat is given to one silo per term, so no party confuses two silos, whichever editions it knows.

New keys of a silo change who can speak for it, but nothing about its people: its ledger, its counts and the secret that
hashes its users' keys (`home.Home.salt`) stay the same.
"""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.agreement import Agreement, SilosLedger, unknown_party
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.wire.keys import PublicKeys
from fedbandit.federation.wire.subjects import OPERATOR

__all__ = [
    "EditionError",
    "Roll",
    "TwoLists",
    "binding_key",
    "kept_editions",
    "read_editions",
    "write_editions",
]


class EditionError(ArgumentError):
    """An edition is not the next one, is not signed by the operator, or does not make a valid federation."""

    def __init__(self, message: str) -> None:
        super().__init__("members", message)


class TwoLists(EditionError):
    """The operator has signed two different editions with one number, so nobody knows who is a member."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"edition {number} exists twice, and the operator has signed both: no more editions are accepted. Compare"
            " the editions with the others and the operator, and begin a new term (`federation renew`, then `federation"
            " accept --new-term --end-term` at every silo)"
        )
        self.number = number


class Roll:
    """The federation's file and the editions after it; each edition is checked before it is taken."""

    def __init__(self, charter: Agreement, editions: Sequence[Edition] = ()) -> None:
        self.charter = charter
        self.editions: list[Edition] = []
        self._lists, self._begins = [charter], [0]
        self._remember: Callable[[str, bytes], bytes] | None = None
        self._recall: Callable[[str], bytes | None] | None = None
        self._one_at_a_time = threading.Lock()
        self.contradicted: int | None = None  # the number with which the operator has signed two editions
        for edition in editions:
            self.take(edition)

    # -- what holds ---------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Agreement:
        """The newest list of members, even if it only holds from a later sync on."""
        return self._lists[-1]

    @property
    def number(self) -> int:
        return len(self.editions)

    @property
    def hash(self) -> str:
        return self.hash_of(self.number)

    def hash_of(self, number: int) -> str:
        """The hash of an edition; for number 0, that of the federation's file without the broker's address."""
        return self.editions[number - 1].hash if number else _hash(self.charter.bond)

    def at(self, sync: int) -> Agreement:
        """The members of a sync."""
        return self._lists[bisect_right(self._begins, sync) - 1]

    def since(self, name: str) -> int:
        """The first sync that a party is a member of."""
        for begins, members in zip(self._begins, self._lists, strict=True):
            if members.member(name) is not None:
                return begins
        raise unknown_party(name, self.charter.id)

    def keys_of(self, name: str) -> list[PublicKeys]:
        """All public keys that a party has had, the newest first; empty if it never was a member."""
        found = (members.member(name) for members in reversed(self._lists))
        return list(dict.fromkeys(party for party in found if party is not None))

    def next_term(self, cards: Sequence[PublicKeys] = (), new_ledgers: Iterable[str] = ()) -> Agreement:
        """The federation as its next term begins, with new keys for some members. Silos that are given new keys here,
        and not by an edition, have lost the old ones; they and those of `new_ledgers` begin a new ledger."""
        agreed = replace(self.newest, term=self.newest.term + 1, seats=())  # a new term assigns all seats afresh
        for card in cards:
            agreed = agreed.rekeyed(card)
        begun = {*new_ledgers, *(card.name for card in cards if card.role == "silo")}
        ledgers = {silo: self._going_on(silo) for silo in self.newest.seats or self.newest.silos}
        ledgers = {**agreed.ledgers, **ledgers, **dict.fromkeys(begun, SilosLedger(agreed.term))}
        known = {silo: ledger for silo, ledger in sorted(ledgers.items()) if ledger != SilosLedger()}
        return replace(agreed, ledgers=known)

    def _going_on(self, silo: str) -> SilosLedger:
        """A silo's ledger as it goes on in the next term."""
        present, known = self.newest.member(silo), self.newest.ledger(silo)
        former = [keys.identity for keys in self.keys_of(silo) if keys != present]
        return known._replace(keys=tuple(dict.fromkeys((*former, *known.keys))))

    # -- what changes it ----------------------------------------------------------------------------------------------

    def tie(self, remember: Callable[[str, bytes], bytes], recall: Callable[[str], bytes | None]) -> None:
        """Read the editions that a store has kept, and from now on keep all editions there."""
        self._remember, self._recall = remember, recall
        for edition in self.editions:
            self._keep(edition)
        self.refresh()
        if (second := recall(_proof(self.hash_of(0)))) is not None:
            self.contradicted = Edition.decode(second).number

    def refresh(self) -> None:
        """Read the editions that the store has received since, e.g. from another worker of this silo."""
        if self._recall is None:
            return
        with self._one_at_a_time:
            while (stored := self._recall(_key(self.hash_of(0), self.number + 1))) is not None:
                self._append(self.checked(Edition.decode(stored)))

    def take(self, edition: Edition) -> bool:
        """Take the next edition; False if it is already here. TwoLists if it is a second edition with an old number,
        EditionError if it is anything else."""
        with self._one_at_a_time:
            if edition.number <= self.number:
                signer = self._lists[edition.number - 1].signer
                if edition.hash == self.hash_of(edition.number):
                    return False
                if not edition.is_by(signer):
                    raise EditionError("must be signed by the operator")
                self._keep_proof(edition)
                raise TwoLists(edition.number)
            checked = self.checked(edition)
            self._keep(checked)
            self._append(checked)
            return True

    def checked(self, edition: Edition) -> Edition:
        """The edition, if it is the next one, is signed by the operator, and makes a valid federation."""
        if edition.number != self.number + 1:
            raise EditionError(f"must follow edition {self.number}, got number {edition.number}")
        if not self.newest.signer:
            raise EditionError("cannot change: the federation's file has no key for signing changes")
        if not edition.is_by(self.newest.signer):
            raise EditionError(f"of number {edition.number} must be signed by the operator")
        if edition.previous != self.hash:
            raise EditionError(f"of number {edition.number} must follow the edition before it, but follow another")
        if not self._begins[-1] <= edition.from_sync < len(self.charter.plan.ticks):
            last = len(self.charter.plan.ticks) - 1
            raise EditionError(f"must hold from a sync between {self._begins[-1]} and {last}, got {edition.from_sync}")
        try:
            self._after(edition)
        except EditionError:
            raise
        except (ValueError, LookupError) as error:  # a signed edition may still be nonsense
            raise EditionError(f"of number {edition.number} do not make a federation: {error}") from None
        return edition

    def next(self, edition: Edition, key: Ed25519PrivateKey) -> Edition:
        """Sign a change as the next edition, and take it."""
        made = replace(edition, number=self.number + 1, previous=self.hash).signed(key)
        self.take(made)
        return made

    def _after(self, edition: Edition) -> Agreement:
        """The list of members after a change."""
        now = self.newest
        seats = now.seats or now.silos
        if edition.change == "operator":
            if len(edition.operator) != 32 or len(edition.signer) != 32:
                raise EditionError("must have two new keys of the operator")
            return replace(now, operator=edition.operator, signer=edition.signer, seats=seats)
        if edition.change == "dismiss":
            if edition.name not in now.silos:
                raise EditionError(f"can lose silos only, and {edition.name!r} is not a silo")
            if len(now.silos) - 1 < now.plan.smallest_cohort:
                raise EditionError(f"must keep at least {now.plan.smallest_cohort} silos, the plan's smallest cohort")
            return replace(now, parties=tuple(p for p in now.parties if p.name != edition.name), seats=seats)
        party = edition.party
        if party is None or party.name != edition.name or party.name == OPERATOR:
            raise EditionError("must have the keys of the named party")
        with _validate.reading("members"):
            _ = party.verifier, party.sealing
        used = {key for one in self._ever() for key in (one.identity, one.broker)} | {now.operator, now.signer}
        if {party.identity, party.broker} & used:
            raise EditionError(f"must have keys for {party.name!r} that have never been in use")
        if edition.change == "rotate":
            return replace(now.rekeyed(party), seats=seats)
        if party.role != "silo" or party.name in seats or now.member(party.name) is not None:
            raise EditionError(f"can only gain silos with a new name, got the {party.role} {party.name!r}")
        if len(seats) >= now.plan.silos:
            raise EditionError(f"already have all {now.plan.silos} seats of the plan: the next term can have more")
        return replace(now, parties=(*now.parties, party), seats=(*seats, party.name))

    def _ever(self) -> Iterable[PublicKeys]:
        """All public keys of this term. No key may be used a second time: a party that lost it or had to leave may
        still have it."""
        return (*self.charter.parties, *(edition.party for edition in self.editions if edition.party is not None))

    def _append(self, edition: Edition) -> None:
        self._lists.append(self._after(edition))
        self._begins.append(edition.from_sync)
        self.editions.append(edition)

    def _keep_proof(self, edition: Edition) -> None:
        """Keep a second edition with an old number: a process that starts again must not forget it."""
        self.contradicted = edition.number
        if self._remember is not None:
            self._remember(_proof(self.hash_of(0)), edition.encode())

    def _keep(self, edition: Edition) -> None:
        if self._remember is None:
            return
        kept = Edition.decode(self._remember(_key(self.hash_of(0), edition.number), edition.encode()))
        if kept.hash != edition.hash:
            raise TwoLists(edition.number)


def binding_key(plan_hash: str) -> str:
    """The key under which a store keeps the fingerprint of the federation with this plan."""
    return f"agreement {plan_hash}"


def kept_editions(recall: Callable[[str], bytes | None], plan_hash: str) -> list[Edition]:
    """The editions that a store has kept of the term with this plan."""
    bound, found = recall(binding_key(plan_hash)), list[Edition]()
    while bound is not None and (stored := recall(_key(_hash(bound.decode()), len(found) + 1))) is not None:
        found.append(Edition.decode(stored))
    return found


def _hash(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def _key(charter: str, number: int) -> str:
    return f"edition {charter[:16]} {number}"


def _proof(charter: str) -> str:
    return f"edition {charter[:16]} twice"


def read_editions(file: Path) -> list[Edition]:
    """The editions in a file; empty if the file does not exist."""
    if not file.exists():
        return []
    try:
        with _validate.reading(str(file)):
            found = json.loads(file.read_bytes())
            if not isinstance(found, list):
                raise TypeError(f"it must be a list of editions, got {type(found).__name__}")
            return [Edition.from_dict(one) for one in found]
    except ArgumentError as error:
        do = "replace it by the newest copy, of the operator or of another party"
        raise ArgumentError(error.field, f"{error.message}; {do}") from None


def write_editions(file: Path, editions: Sequence[Edition]) -> None:
    """Write the editions in one step: a concurrent reader finds the old ones or the new ones."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps([edition.as_dict() for edition in editions], indent=1) + "\n")
    part.replace(file)
