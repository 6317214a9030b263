"""One party at work: its keys, its federation, its place on the broker; seals what it says, opens what it is told."""

from __future__ import annotations

from collections.abc import Sequence

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

TIMELESS: tuple[Kind, ...] = ("greeting", "members")  # messages that are of no sync


class PlanMismatch(RuntimeError):
    """Another party, known and verified, works under another plan: `sender` says which party."""

    def __init__(self, sender: str, theirs: str, ours: str) -> None:
        super().__init__(f"{sender} works under plan {theirs[:16]}, not {ours[:16]}: they must be the same")
        self.sender = sender


class Outdated(EnvelopeError):
    """A message of a sync that its sender is no member of, or under keys that do not count any more: it has not heard
    of the newest members. What is in it, `payload`, is its word all the same, as far as that is held against it."""

    def __init__(self, context: Context, payload: bytes) -> None:
        super().__init__(f"{context.sender} is no member now, or has other keys: it is told of the newest members")
        self.context, self.payload = context, payload


class Party:
    """A member of a federation, with its private keys: those it has now, and those it had or will have.

    Which keys count, its own and the others', depends on the sync that a message is about. Greetings are of no sync:
    they are by the newest keys. Editions of the members are passed on under the oldest key: that is the one that
    whoever has not heard of the newer ones knows, and what counts is the operator's signature inside.
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
        self._verified: dict[str, Head] = {}  # by party: the last head that it was found to have signed

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
        """Check that the federation knows this party by these keys."""
        roll = Roll(agreement, editions)
        rings = [one.public(name, role) for one in (keys, *spare)]
        known = roll.keys_of(name)
        if not known:
            raise unknown_party(name, agreement.id)
        if known[0] not in rings:
            raise ArgumentError(
                "federation",
                f"{agreement.id} knows {name!r} by other keys or in another role: is the file, or the key, of another"
                " party or of another federation?",
            )
        return cls(agreement, keys, known[0], spare, roll)

    @property
    def agreement(self) -> Agreement:
        """The newest list of members."""
        return self.roll.newest

    @property
    def public(self) -> PublicKeys:
        """What the others know of this party now."""
        return next(iter(self.roll.keys_of(self.name)), self._known_as)

    @property
    def keys(self) -> PartyKeys:
        """The private keys that belong to it."""
        return self._ring.get(self.public.identity, self._first)

    @property
    def _oldest(self) -> PartyKeys:
        """The private keys that the others knew it by first."""
        known = self.roll.keys_of(self.name)
        return self._ring.get(known[-1].identity, self.keys) if known else self.keys

    @property
    def keyring(self) -> list[PartyKeys]:
        """All private keys, those in use first: the broker may know this party by others than it thinks."""
        return [self.keys, *(one for one in self._ring.values() if one is not self.keys)]

    def add_keys(self, keys: Sequence[PartyKeys]) -> None:
        """Keys that were made while this party runs: they are used once the federation knows it by them."""
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
        """Whether it does, and has the keys that the others know it by then: what it says under others is lost."""
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
        """A message of this party's that it has kept, signed with the keys that count for its sync: it may have heard
        of them only since. What is sealed in it stays the same. One that was only ever known by one key has signed with
        that: the same bytes would come of it."""
        if len(self.roll.keys_of(self.name)) == 1:
            return envelope
        return envelopes.resigned(envelope, self.keys_at(sync).signer)

    def open(self, envelope: bytes) -> tuple[Context, bytes]:
        """Verify and open an envelope for this party, from a member of the federation.

        One of another plan is stale, and refused, unless it is a greeting: plans differ when the analyzer says so in
        answer to this party's own question, and not because something of an earlier term was left in a queue.
        """
        claim = envelopes.claimed(envelope)
        known = self.roll.keys_of(claim.sender)
        if not known:
            raise EnvelopeError(f"{claim.sender!r} is not a party of federation {self.agreement.id}")
        if claim.plan != self.agreement.plan.hash and claim.kind != "greeting":
            raise EnvelopeError(f"stale: of plan {claim.plan[:16]}, not {self.agreement.plan.hash[:16]}")
        expected = self._context(claim.kind, claim.sender, self.name, claim.sync)._replace(plan=claim.plan)
        if claim.kind == "members":  # the operator has signed what is in it, whoever passes it on
            return claim, self._unsealed(envelope, expected, known)
        # Who is to leave, or has left, is greeted all the same: it must hear how far it has come.
        counts = known[0] if claim.kind == "greeting" else self.at(claim.sync).member(claim.sender)
        try:
            return claim, self._unsealed(envelope, expected, [] if counts is None else [counts])
        except EnvelopeError:
            if others := [one for one in known if one != counts]:
                raise Outdated(claim, self._unsealed(envelope, expected, others)) from None
            raise

    def _unsealed(self, envelope: bytes, expected: Context, senders: Sequence[PublicKeys]) -> bytes:
        """What is in an envelope by one of these keys, for any key of this party's."""
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
        """A head of this party's own chain, after so many syncs."""
        return heads.signed(self.name, count, hash_, self.keys_at(count - 1).signer)

    def checked(self, name: str, head: Head) -> Head:
        """The head, if that party has signed it, with whichever of its keys."""
        if not self.is_of(name, head):
            raise MessageError(f"head is not signed by {name}")
        return head

    def is_of(self, name: str, head: Head) -> bool:
        """Whether a party has signed a head, with a key that it has or had. Every silo shows the same head of the
        analyzer: it is looked at once."""
        if self._verified.get(name) == head:
            return True
        known = self.roll.keys_of(name)
        if name == self.name:  # it may have had others in an earlier term
            known += [keys.public(name, self._known_as.role) for keys in self._ring.values()]
        if not any(head.is_of(name, one.verifier) for one in known):
            return False
        self._verified[name] = head
        return True

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
        """With the edition that this party has."""
        return greeting._replace(edition=self.roll.number, members=bytes.fromhex(self.roll.hash))

    def subject_to(self, receiver: PublicKeys) -> str:
        """Where this party's messages for the receiver go."""
        party = receiver.name if receiver.role == "silo" else self.name
        return self.agreement.subjects.subject(receiver.role, party)

    @property
    def consumer(self) -> Consumer:
        """Where this party reads."""
        return self.agreement.subjects.consumer(self.public)

    def _sealed_for(self, receiver: PublicKeys, sync: int) -> PublicKeys:
        """The keys that a party has at a sync."""
        return self.at(sync).member(receiver.name) or receiver

    def _context(self, kind: Kind, sender: str, receiver: str, sync: int) -> Context:
        return Context(self.agreement.id, self.agreement.plan.hash, kind, sender, receiver, sync)
