"""A party of a federation: its keys and its place on the broker. It seals what it sends and opens what it receives."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.agreement import Agreement, unknown_party
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.wire import envelopes, heads
from fedbandit.federation.wire.envelopes import NOBODY, Context, EnvelopeError, Kind
from fedbandit.federation.wire.heads import Greeting, Head
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, Role
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.subjects import Consumer

__all__ = ["TIMELESS", "Outdated", "Party", "PlanMismatch"]

TIMELESS: tuple[Kind, ...] = ("greeting", "members")  # kinds of messages that belong to no sync


class PlanMismatch(RuntimeError):
    """A verified party, `sender`, works under another plan."""

    def __init__(self, sender: str, theirs: str, ours: str) -> None:
        super().__init__(f"{sender} works under plan {theirs[:16]}, not {ours[:16]}: they must be the same")
        self.sender = sender


class Outdated(EnvelopeError):
    """A message whose sender is not a member at its sync, or has used keys that no longer count: the sender does not
    know the newest members. `payload` was still sent by it, and may be used as evidence against it."""

    def __init__(self, context: Context, payload: bytes) -> None:
        super().__init__(f"{context.sender} is not a member now, or has other keys: it is told of the newest members")
        self.context, self.payload = context, payload


class Party:
    """A member of a federation, with its private keys: the present ones, and former and future ones.

    Which keys count, its own and those of others, depends on the sync of a message. Greetings belong to no sync and are
    signed with the newest keys. Editions of the members are passed on under the oldest key, because a receiver may not
    know the newer ones yet; what counts is the operator's signature inside.
    """

    def __init__(
        self,
        agreement: Agreement,
        keys: PartyKeys,
        public: PublicKeys,
        spare: Sequence[PartyKeys] = (),
        roll: Roll | None = None,
    ) -> None:
        self.roll = Roll(agreement) if roll is None else roll
        self._known_as, self._first = public, keys
        self._ring = {one.identity: one for one in (keys, *spare)}
        self._verified: dict[str, Head] = {}  # by party, the last head whose signature was verified

    @classmethod
    def member(
        cls,
        agreement: Agreement,
        keys: PartyKeys,
        name: str,
        role: Role,
        spare: Sequence[PartyKeys] = (),
        editions: Sequence[Edition] = (),
    ) -> Party:
        """The party of this name; refused unless the federation knows it by one of these keys."""
        roll = Roll(agreement, editions)
        rings = [one.public(name, role) for one in (keys, *spare)]
        known = roll.keys_of(name)
        if not known:
            raise unknown_party(name, agreement.id)
        if known[0] not in rings:
            raise ArgumentError(
                "federation",
                f"{agreement.id} knows {name!r} by other keys or in another role: do the file or the keys belong to"
                " another party or another federation?",
            )
        return cls(agreement, keys, known[0], spare, roll)

    @property
    def agreement(self) -> Agreement:
        """The newest list of members."""
        return self.roll.newest

    @property
    def public(self) -> PublicKeys:
        """The newest public keys of this party."""
        return next(iter(self.roll.keys_of(self.name)), self._known_as)

    @property
    def keys(self) -> PartyKeys:
        """The private keys that belong to `public`."""
        return self._ring.get(self.public.identity, self._first)

    @property
    def _oldest(self) -> PartyKeys:
        """The private keys that belong to its first public keys."""
        known = self.roll.keys_of(self.name)
        return self._ring.get(known[-1].identity, self.keys) if known else self.keys

    @property
    def keyring(self) -> list[PartyKeys]:
        """All private keys, the ones in use first: the broker may know this party by other ones."""
        return [self.keys, *(one for one in self._ring.values() if one is not self.keys)]

    def add_keys(self, keys: Sequence[PartyKeys]) -> None:
        """Add keys that were made while this party runs: they are used once the federation knows them."""
        self._ring |= {one.identity: one for one in keys}

    @property
    def name(self) -> str:
        return self._known_as.name

    def at(self, sync: int) -> Agreement:
        """The members of a sync."""
        return self.roll.at(sync)

    def is_member(self, sync: int) -> bool:
        """Whether this party takes part in a sync."""
        return self.at(sync).member(self.name) is not None

    def takes_part(self, sync: int) -> bool:
        """Whether this party is a member at a sync and has the keys that count then: messages under others are lost."""
        public = self.at(sync).member(self.name)
        return public is not None and public.identity in self._ring

    def keys_at(self, sync: int) -> PartyKeys:
        """The private keys that count for a sync."""
        public = self.at(sync).member(self.name) or self.public
        return self._ring.get(public.identity, self.keys)

    def seal(self, kind: Kind, receiver: PublicKeys, sync: int, plain: bytes) -> bytes:
        context = self._context(kind, self.name, receiver.name, sync)
        if kind in TIMELESS:
            keys = self.keys if kind == "greeting" else self._oldest
            return envelopes.seal(plain, context, receiver.sealing, keys.signer)
        return envelopes.seal(plain, context, self._sealed_for(receiver, sync).sealing, self.keys_at(sync).signer)

    def resigned(self, sync: int, envelope: bytes) -> bytes:
        """A stored message of this party, signed again with the keys that count for its sync: the party may have
        learnt of them since. The sealed content stays the same. A party that has only ever had one key signed with it,
        and would get the same bytes."""
        if len(self.roll.keys_of(self.name)) == 1:
            return envelope
        return envelopes.resigned(envelope, self.keys_at(sync).signer)

    def open(self, envelope: bytes) -> tuple[Context, bytes]:
        """Verify and open an envelope from a member of the federation to this party.

        A message of another plan is stale and refused, unless it is a greeting: plans differ if the analyzer says so in
        answer to this party's own question, not if a message of an earlier term was left in a queue.
        """
        claim = envelopes.claimed(envelope)
        known = self.roll.keys_of(claim.sender)
        if not known:
            raise EnvelopeError(f"{claim.sender!r} is not a party of federation {self.agreement.id}")
        if claim.plan != self.agreement.plan.hash and claim.kind != "greeting":
            raise EnvelopeError(f"stale: of plan {claim.plan[:16]}, not {self.agreement.plan.hash[:16]}")
        expected = self._context(claim.kind, claim.sender, self.name, claim.sync)._replace(plan=claim.plan)
        if claim.kind == "members":  # the operator has signed the content, whoever passes it on
            return claim, self._unsealed(envelope, expected, known)
        # A party that will leave or has left is still greeted: it must hear which state of it others have seen.
        counts = known[0] if claim.kind == "greeting" else self.at(claim.sync).member(claim.sender)
        try:
            return claim, self._unsealed(envelope, expected, [] if counts is None else [counts])
        except EnvelopeError:
            if others := [one for one in known if one != counts]:
                raise Outdated(claim, self._unsealed(envelope, expected, others)) from None
            raise

    def _unsealed(self, envelope: bytes, expected: Context, senders: Sequence[PublicKeys]) -> bytes:
        """The content of an envelope that is signed with one of these keys and sealed for any key of this party."""
        problem = EnvelopeError(f"{expected.sender!r} is not a member")
        for sender in senders:
            for keys in self.keyring:
                try:
                    return envelopes.unseal(envelope, expected, sender.verifier, keys.opener)
                except EnvelopeError as error:
                    problem = error
        raise problem

    def differs(self, context: Context) -> PlanMismatch | None:
        """The mismatch, if the sender of a verified message works under another plan."""
        ours = self.agreement.plan.hash
        return None if context.plan == ours else PlanMismatch(context.sender, context.plan, ours)

    def signed(self, count: int, hash_: bytes) -> Head:
        """A signed head of this party's own chain, after `count` syncs."""
        return heads.signed(self.name, count, hash_, self.keys_at(count - 1).signer)

    def checked(self, name: str, head: Head) -> Head:
        """The head, if that party has signed it with any of its keys; refused otherwise."""
        if not self.is_of(name, head):
            raise MessageError(f"head is not signed by {name}")
        return head

    def is_of(self, name: str, head: Head) -> bool:
        """Whether a party has signed a head, with a present or former key. Every silo shows the same head of the
        analyzer, so the last verified head is remembered."""
        if self._verified.get(name) == head:
            return True
        if not any(head.is_of(name, verifier) for verifier in self.verifiers(name)):
            return False
        self._verified[name] = head
        return True

    def verifiers(self, name: str) -> list[Ed25519PublicKey]:
        """The keys with which a party may have signed its heads, also in earlier terms."""
        known = [keys.verifier for keys in self.roll.keys_of(name)]
        if name == self.name:
            known += [keys.signer.public_key() for keys in self._ring.values()]
        return known + [Ed25519PublicKey.from_public_bytes(key) for key in self.roll.charter.ledger(name).keys]

    def seal_anonymously(self, kind: Kind, receiver: PublicKeys, sync: int, plain: bytes) -> bytes:
        context = self._context(kind, NOBODY, receiver.name, sync)
        return envelopes.seal_anonymously(plain, context, self._sealed_for(receiver, sync).sealing)

    def open_anonymous(self, kind: Kind, sync: int, ciphertext: bytes) -> bytes:
        context, problem = self._context(kind, NOBODY, self.name, sync), EnvelopeError("there is no key to open it")
        for keys in self.keyring:
            try:
                return envelopes.unseal_anonymously(ciphertext, context, keys.opener)
            except EnvelopeError as error:
                problem = error
        raise problem

    def greeting(self, greeting: Greeting) -> Greeting:
        """The greeting, with the edition of the members that this party has."""
        return greeting._replace(edition=self.roll.number, members=bytes.fromhex(self.roll.hash))

    def subject_to(self, receiver: PublicKeys) -> str:
        """The subject for messages from this party to the receiver."""
        party = receiver.name if receiver.role == "silo" else self.name
        return self.agreement.subjects.subject(receiver.role, party)

    @property
    def consumer(self) -> Consumer:
        """The consumer from which this party reads."""
        return self.agreement.subjects.consumer(self.public)

    def _sealed_for(self, receiver: PublicKeys, sync: int) -> PublicKeys:
        """The public keys of a receiver at a sync."""
        return self.at(sync).member(receiver.name) or receiver

    def _context(self, kind: Kind, sender: str, receiver: str, sync: int) -> Context:
        return Context(self.agreement.id, self.agreement.plan.hash, kind, sender, receiver, sync)
