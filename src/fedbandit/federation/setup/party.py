"""One party at work: its keys, its federation, its place on the broker; seals what it says, opens what it is told."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit._validate import ArgumentError
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.wire import envelopes, heads
from fedbandit.federation.wire.envelopes import NOBODY, Context, EnvelopeError, Kind
from fedbandit.federation.wire.heads import Head
from fedbandit.federation.wire.keys import PartyKeys, PublicKeys, Role
from fedbandit.federation.wire.messages import MessageError
from fedbandit.federation.wire.subjects import Consumer

__all__ = ["Party", "PlanMismatch"]


class PlanMismatch(RuntimeError):
    """Another party, known and verified, works under another plan: `sender` says which party."""

    def __init__(self, sender: str, theirs: str, ours: str) -> None:
        super().__init__(f"{sender} works under plan {theirs[:16]}, not {ours[:16]}: they must be the same")
        self.sender = sender


@dataclass(frozen=True)
class Party:
    """A member of a federation, with its private keys."""

    agreement: Agreement
    keys: PartyKeys
    public: PublicKeys

    @classmethod
    def member(cls, agreement: Agreement, keys: PartyKeys, name: str, role: Role) -> Party:
        """Check that the federation knows this party by these keys."""
        public = keys.public(name, role)
        if agreement.party(name) != public:
            raise ArgumentError("federation", f"{agreement.id} knows {name!r} by other keys or in another role")
        return cls(agreement, keys, public)

    @property
    def name(self) -> str:
        return self.public.name

    def seal(self, kind: Kind, receiver: PublicKeys, sync: int, plain: bytes) -> bytes:
        context = self._context(kind, self.name, receiver.name, sync)
        return envelopes.seal(plain, context, receiver.sealing, self.keys.signer)

    def open(self, envelope: bytes) -> tuple[Context, bytes]:
        """Verify and open an envelope for this party, from a member of the federation.

        One of another plan is stale, and refused, unless it is a greeting: plans differ when the analyzer says so in
        answer to this party's own question, and not because something of an earlier term was left in a queue.
        """
        claim = envelopes.claimed(envelope)
        try:
            sender = self.agreement.party(claim.sender)
        except LookupError as error:
            raise EnvelopeError(str(error)) from None
        if claim.plan != self.agreement.plan.hash and claim.kind != "greeting":
            raise EnvelopeError(f"stale: of plan {claim.plan[:16]}, not {self.agreement.plan.hash[:16]}")
        expected = self._context(claim.kind, claim.sender, self.name, claim.sync)._replace(plan=claim.plan)
        return claim, envelopes.unseal(envelope, expected, sender.verifier, self.keys.opener)

    def differs(self, context: Context) -> PlanMismatch | None:
        """The mismatch, if the sender of a verified message works under another plan."""
        ours = self.agreement.plan.hash
        return None if context.plan == ours else PlanMismatch(context.sender, context.plan, ours)

    def signed(self, count: int, hash_: bytes) -> Head:
        """A head of this party's own chain."""
        return heads.signed(self.name, count, hash_, self.keys.signer)

    def checked(self, name: str, head: Head) -> Head:
        """The head, if that party has signed it."""
        if not head.is_of(name, self.agreement.party(name).verifier):
            raise MessageError(f"head is not signed by {name}")
        return head

    def seal_anonymously(self, kind: Kind, receiver: PublicKeys, sync: int, plain: bytes) -> bytes:
        return envelopes.seal_anonymously(plain, self._context(kind, NOBODY, receiver.name, sync), receiver.sealing)

    def open_anonymous(self, kind: Kind, sync: int, ciphertext: bytes) -> bytes:
        context = self._context(kind, NOBODY, self.name, sync)
        return envelopes.unseal_anonymously(ciphertext, context, self.keys.opener)

    def subject_to(self, receiver: PublicKeys) -> str:
        """Where this party's messages for the receiver go."""
        party = receiver.name if receiver.role == "silo" else self.name
        return self.agreement.subjects.subject(receiver.role, party)

    @property
    def consumer(self) -> Consumer:
        """Where this party reads."""
        return self.agreement.subjects.consumer(self.public)

    def _context(self, kind: Kind, sender: str, receiver: str, sync: int) -> Context:
        return Context(self.agreement.id, self.agreement.plan.hash, kind, sender, receiver, sync)
