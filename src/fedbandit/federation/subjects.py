"""Who may say what to whom: subjects of the broker, and what each role may publish and read.

    fb.<federation>.analyzer.<sender>    releases, and what the mixer passes on
    fb.<federation>.mixer.<sender>       releases for the mixer
    fb.<federation>.silo.<receiver>      models

Each of the three is one durable stream with one reader a party. A party can publish under its own name only and can
take messages from its own consumer only; consumers are made by the operator, so no party can point one elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fedbandit.federation.keys import PublicKeys

OPERATOR = "operator"
MIXED_TRUSTS = ("shuffle", "vector-sum", "secure-sum")


class Consumer(NamedTuple):
    """A durable reader of one stream, restricted to one subject."""

    stream: str
    name: str
    subject: str


def has_mixer(trust: str) -> bool:
    """Whether the trust model has a third party S between silos and analyzer."""
    return trust in MIXED_TRUSTS


def release_roles(trust: str) -> tuple[str, ...]:
    """To whom a silo sends, in this order: the analyzer's share goes first, so the mixer never counts a silo in
    whose other half is lost."""
    return {"secure-sum": ("analyzer", "mixer"), "shuffle": ("mixer",), "vector-sum": ("mixer",)}.get(
        trust, ("analyzer",)
    )


def subject(federation: str, role: str, party: str) -> str:
    return f"fb.{federation}.{role}.{party}"


def stream(federation: str, role: str) -> str:
    return f"FB_{federation}_{role}"


def streams(federation: str, trust: str) -> dict[str, str]:
    """Stream to the subjects it keeps."""
    roles = ("analyzer", "silo", "mixer") if has_mixer(trust) else ("analyzer", "silo")
    return {stream(federation, role): subject(federation, role, "*") for role in roles}


def consumer(federation: str, party: PublicKeys) -> Consumer:
    """The one consumer a party reads from."""
    what = party.name if party.role == "silo" else "*"
    return Consumer(stream(federation, party.role), party.name, subject(federation, party.role, what))


def permissions(federation: str, trust: str, party: PublicKeys) -> dict[str, Any]:
    """What the broker lets a party do, and nothing else."""
    said = {
        "silo": [subject(federation, role, party.name) for role in release_roles(trust)],
        "mixer": [subject(federation, "analyzer", party.name)],
        "analyzer": [
            subject(federation, "silo", "*"),
            *([subject(federation, "mixer", party.name)] if has_mixer(trust) else []),
        ],
    }[party.role]
    reads = consumer(federation, party)
    return {
        "publish": {
            "allow": [
                *said,
                f"$JS.API.CONSUMER.MSG.NEXT.{reads.stream}.{reads.name}",
                f"$JS.ACK.{reads.stream}.{reads.name}.>",
            ]
        },
        "subscribe": {"allow": [f"{inbox(party.name)}.>"]},
    }


def operator_permissions(names: Iterable[str]) -> dict[str, Any]:
    """The operator makes and inspects these streams and their consumers; it takes no messages from them."""
    calls = [
        f"$JS.API.{call}"
        for name in names
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


def inbox(name: str) -> str:
    """The prefix under which a party gets its answers; nobody else can listen there."""
    return f"_INBOX_{name}"
