"""One party at work: its keys, its federation, its place on the broker; seals what it says, opens what it is told."""

from __future__ import annotations

from dataclasses import dataclass

from fedbandit.federation import sealing, subjects
from fedbandit.federation.consortium import Federation
from fedbandit.federation.keys import PartyKeys, PublicKeys
from fedbandit.federation.sealing import NOBODY, Context, EnvelopeError


class PlanMismatch(RuntimeError):
    """Another party, known and verified, works under another plan."""


@dataclass(frozen=True)
class Party:
    """A member of a federation, with its private keys."""

    federation: Federation
    keys: PartyKeys
    public: PublicKeys

    @classmethod
    def member(cls, federation: Federation, keys: PartyKeys, name: str, role: str) -> Party:
        """Check that the federation knows this party by these keys."""
        public = keys.public(name, role)
        if federation.party(name) != public:
            raise ValueError(f"federation {federation.id} knows {name!r} by other keys or in another role")
        return cls(federation, keys, public)

    @property
    def name(self) -> str:
        return self.public.name

    def seal(self, kind: str, receiver: PublicKeys, step: int, plain: bytes) -> bytes:
        context = self._context(kind, self.name, receiver.name, step)
        return sealing.seal(plain, context, receiver.sealing, self.keys.signer)

    def open(self, envelope: bytes) -> tuple[Context, bytes]:
        """Verify and open an envelope for this party, from a member of the federation under the same plan."""
        claim = sealing.claimed(envelope)
        try:
            sender = self.federation.party(claim.sender)
        except LookupError as error:
            raise EnvelopeError(str(error)) from None
        if claim.plan != self.federation.plan.hash and claim.federation == self.federation.id:
            # The header is under the signature: open it as what it claims to be, and believe the mismatch only then.
            sealing.unseal(envelope, claim, sender.verifier, self.keys.opener)
            raise PlanMismatch(
                f"{claim.sender} works under plan {claim.plan[:16]}, {self.name} under "
                f"{self.federation.plan.hash[:16]}: they must be the same"
            )
        expected = self._context(claim.kind, claim.sender, self.name, claim.round)
        return claim, sealing.unseal(envelope, expected, sender.verifier, self.keys.opener)

    def seal_anonymously(self, kind: str, receiver: PublicKeys, step: int, plain: bytes) -> bytes:
        return sealing.seal_anonymously(plain, self._context(kind, NOBODY, receiver.name, step), receiver.sealing)

    def open_anonymous(self, kind: str, step: int, ciphertext: bytes) -> bytes:
        context = self._context(kind, NOBODY, self.name, step)
        return sealing.unseal_anonymously(ciphertext, context, self.keys.opener)

    def subject_to(self, receiver: PublicKeys) -> str:
        """Where this party's messages for the receiver go."""
        party = receiver.name if receiver.role == "silo" else self.name
        return subjects.subject(self.federation.id, receiver.role, party)

    @property
    def consumer(self) -> subjects.Consumer:
        return subjects.consumer(self.federation.id, self.public)

    def _context(self, kind: str, sender: str, receiver: str, step: int) -> Context:
        return Context(self.federation.id, self.federation.plan.hash, kind, sender, receiver, step)
