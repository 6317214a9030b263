"""Who may send what to whom: the subjects of the broker, and what each role may publish and read.

    fb.<federation>.analyzer.<sender>    releases, and what the mixer sends
    fb.<federation>.mixer.<sender>       releases for the mixer, and which of them the analyzer holds
    fb.<federation>.silo.<receiver>      models

and greetings on each of them.

Each of the three is one durable stream, and each party has one consumer. A party can publish only under its own name,
and can take messages only from its own consumer. The operator creates the consumers, so no party can redirect one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fedbandit.federation.wire.keys import PublicKeys, Role

__all__ = ["ACK", "OPERATOR", "Consumer", "Subjects", "inbox", "taking"]

OPERATOR = "operator"
ACK = "$JS.ACK"  # the prefix that the server gives to the reply subject of every message of a stream


class Consumer(NamedTuple):
    """A durable reader of one stream, restricted to one subject."""

    stream: str
    name: str
    subject: str


@dataclass(frozen=True)
class Subjects:
    """The subjects of one federation. `receivers` are the roles that silos send to."""

    federation: str
    receivers: tuple[Role, ...]

    @property
    def has_mixer(self) -> bool:
        return "mixer" in self.receivers

    def subject(self, role: Role, party: str) -> str:
        """The subject of messages for a role. `party` is the name of the sender; for role silo, of the receiver."""
        return f"fb.{self.federation}.{role}.{party}"

    def stream(self, role: Role) -> str:
        """The stream that keeps a role's messages."""
        return f"FB_{self.federation}_{role}"

    def streams(self) -> dict[str, str]:
        """The subjects that each stream keeps, by stream."""
        roles: tuple[Role, ...] = ("analyzer", "silo", "mixer") if self.has_mixer else ("analyzer", "silo")
        return {self.stream(role): self.subject(role, "*") for role in roles}

    def consumer(self, party: PublicKeys) -> Consumer:
        """The one consumer that a party reads from."""
        what = party.name if party.role == "silo" else "*"
        return Consumer(self.stream(party.role), party.name, self.subject(party.role, what))

    def services(self, party: PublicKeys) -> list[str]:
        """The subjects that a party calls: to publish, to take its messages, and to acknowledge them."""
        reads = self.consumer(party)
        return [*self.said_by(party), taking(reads), f"{ACK}.{reads.stream}.{reads.name}.>"]

    def permissions(self, party: PublicKeys) -> dict[str, Any]:
        """All that the broker lets a party do."""
        return {
            "publish": {"allow": self.services(party)},
            "subscribe": {"allow": [f"{inbox(party.name)}.>"]},
        }

    def operator_permissions(self) -> dict[str, Any]:
        """All that the broker lets the operator do: create, change and inspect streams and consumers, not read."""
        calls = [
            f"$JS.API.{call}"
            for name in self.streams()
            for call in (
                f"STREAM.CREATE.{name}",
                f"STREAM.UPDATE.{name}",
                f"STREAM.INFO.{name}",
                f"CONSUMER.CREATE.{name}.>",
                f"CONSUMER.DURABLE.CREATE.{name}.>",
                f"CONSUMER.INFO.{name}.>",
            )
        ]
        return {"publish": {"allow": calls}, "subscribe": {"allow": [f"{inbox(OPERATOR)}.>"]}}

    def said_by(self, party: PublicKeys) -> list[str]:
        """The subjects that a party may publish on."""
        if party.role == "silo":
            return [self.subject(role, party.name) for role in self.receivers]
        if party.role == "mixer":
            return [self.subject("analyzer", party.name), self.subject("silo", "*")]
        greeted = [self.subject("mixer", party.name)] if self.has_mixer else []
        return [self.subject("silo", "*"), *greeted]


def inbox(name: str) -> str:
    """The prefix of the subjects on which a party gets answers; nobody else can listen there."""
    return f"_INBOX_{name}"


def taking(consumer: Consumer) -> str:
    """The subject on which the next message of a consumer is requested."""
    return f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream}.{consumer.name}"
