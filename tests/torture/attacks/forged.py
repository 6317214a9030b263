"""Messages that are not what they say: unsigned, signed by another, moved to another context, from the wrong role."""

from __future__ import annotations

from fedbandit.federation.wire.envelopes import KINDS, MAGIC, SIGNATURE_BYTES
from fedbandit.federation.wire.keys import NAME_BYTES, PartyKeys
from tests.torture.attacks.arena import EARLIER_PLAN, Arena
from tests.torture.attacks.cases import Table

FORGED: Table[Arena] = Table()
attack = FORGED.attack
HEADER = 4 + 1 + 4 + 32 + 3 * NAME_BYTES
KIND_AT, SYNC_AT, PLAN_AT, NAMES_AT = 4, 5, 9, 41


def altered(envelope: bytes, at: int, new: bytes) -> bytes:
    """The envelope with other bytes at a place."""
    return envelope[:at] + new + envelope[at + len(new) :]


def name_field(name: str) -> bytes:
    return name.encode().ljust(NAME_BYTES, b"\0")


async def ahead_of_the_release(arena: Arena, *forged: bytes, receiver: str = "mixer") -> None:
    """The forgeries come before the honest messages of the sync that they are about."""
    await arena.attack(receiver, *forged)
    await arena.finish()


@attack("anybody at the broker", "a release whose signature is zeros", "refused")
async def unsigned(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    await ahead_of_the_release(arena, altered(sealed, HEADER, bytes(SIGNATURE_BYTES)))


@attack("silo-01", "a release in the name of silo-00, signed by silo-01", "refused")
async def signed_by_another(arena: Arena) -> None:
    keys = arena.homes["silo-01"].keys
    for receiver in ("mixer", "analyzer"):
        forged = arena.forge("release", "silo-00", receiver, 0, arena.parcel(7), signer=keys)
        await arena.attack(receiver, forged)
    await arena.finish()


@attack("anybody", "a release in the name of silo-00, signed by a key that nobody knows", "refused")
async def signed_by_a_stranger(arena: Arena) -> None:
    forged = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7), signer=PartyKeys.generate())
    await ahead_of_the_release(arena, forged)


@attack("anybody", "a release of a party that is not in the federation", "refused")
async def stranger(arena: Arena) -> None:
    forged = arena.forge("release", "silo-99", "mixer", 0, arena.parcel(7), signer=PartyKeys.generate())
    await ahead_of_the_release(arena, forged)


@attack("anybody at the broker", "the number of the sync changed in a signed envelope", "refused")
async def sync_number_changed(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 1, arena.parcel(7))
    await ahead_of_the_release(arena, altered(sealed, SYNC_AT, (0).to_bytes(4, "little")))


@attack("anybody at the broker", "the plan's hash changed in a signed envelope", "refused")
async def plan_changed(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7), plan=EARLIER_PLAN.hash)
    await ahead_of_the_release(arena, altered(sealed, PLAN_AT, bytes.fromhex(arena.plan.hash)))


@attack("silo-00", "a release sealed and signed under another plan", "refused as stale, the process goes on")
async def other_plan(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        forged = arena.forge("release", "silo-00", receiver, 0, arena.parcel(7), plan=EARLIER_PLAN.hash)
        await arena.attack(receiver, forged)
    await arena.finish()


@attack("silo-00", "a release sealed and signed for another federation", "refused")
async def other_federation(arena: Arena) -> None:
    forged = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7), federation="another")
    await ahead_of_the_release(arena, forged)


@attack("silo-01", "silo-00's signed release with silo-01's name as the sender", "refused")
async def sender_changed(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    await ahead_of_the_release(arena, altered(sealed, NAMES_AT + NAME_BYTES, name_field("silo-01")))


@attack("anybody at the broker", "what is for the analyzer, delivered to the mixer", "refused")
async def receiver_swapped(arena: Arena) -> None:
    forged = arena.forge("release", "silo-00", "analyzer", 0, arena.parcel(7))
    await ahead_of_the_release(arena, forged)


@attack("silo-00", "an envelope that names the analyzer, encrypted for the mixer", "refused")
async def receiver_named_wrong(arena: Arena) -> None:
    forged = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7), names="analyzer")
    await ahead_of_the_release(arena, forged)


@attack("anybody at the broker", "the receiver's name changed in a signed envelope", "refused")
async def receiver_changed(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "analyzer", 0, arena.parcel(7))
    await ahead_of_the_release(arena, altered(sealed, NAMES_AT + 2 * NAME_BYTES, name_field("mixer")))


@attack("anybody at the broker", "a greeting turned into a release by its kind", "refused")
async def kind_changed(arena: Arena) -> None:
    sealed = arena.forge("greeting", "silo-00", "mixer", 0, arena.parcel(7))
    await ahead_of_the_release(arena, altered(sealed, KIND_AT, bytes([KINDS.index("release")])))


@attack("anybody at the broker", "the ciphertext of one envelope under the signature of another", "refused")
async def ciphertext_swapped(arena: Arena) -> None:
    one, other = (arena.forge("release", "silo-00", "mixer", 0, arena.parcel(value)) for value in (1, 2))
    await ahead_of_the_release(arena, altered(one, HEADER + SIGNATURE_BYTES, other[HEADER + SIGNATURE_BYTES :]))


@attack("anybody at the broker", "one bit of a release flipped, in every byte of header and signature", "all refused")
async def flipped_bits(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    flipped = [altered(sealed, at, bytes([sealed[at] ^ 1])) for at in range(HEADER + SIGNATURE_BYTES)]
    await ahead_of_the_release(arena, *flipped)


@attack("anybody", "envelopes of earlier and later formats", "refused")
async def other_formats(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    forged = [altered(sealed, 0, b"FBE" + str(number).encode()) for number in (0, 1, 2, 9)]
    assert all(data[:4] != MAGIC for data in forged)
    await ahead_of_the_release(arena, *forged)


@attack("silo-00", "a sender's name that is '*', empty, or holds bytes after its end", "refused")
async def nameless_sender(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    fields = (b"*", b"", b"silo-00\0x", b"\xff" * NAME_BYTES, b"\0silo-00")
    await ahead_of_the_release(
        arena, *(altered(sealed, NAMES_AT + NAME_BYTES, field.ljust(NAME_BYTES, b"\0")) for field in fields)
    )


@attack("silo-00", "a total, in its own name, sent to the analyzer", "refused: only the mixer makes totals")
async def total_of_a_silo(arena: Arena) -> None:
    await ahead_of_the_release(
        arena, arena.forge("mixed", "silo-00", "analyzer", 0, arena.mixed()), receiver="analyzer"
    )


@attack("silo-00", "what the analyzer holds, in its own name, sent to the mixer", "refused")
async def holds_of_a_silo(arena: Arena) -> None:
    await ahead_of_the_release(arena, arena.forge("holds", "silo-00", "mixer", 0, arena.holds((1, 0, 0))))


@attack("mixer, silo-01", "a model in their own names", "refused: models are the analyzer's")
async def model_of_another(arena: Arena) -> None:
    model = arena.model(0, arena.outcome(3.0)).encode()
    forged = [arena.forge("model", name, "silo-00", 0, model) for name in ("mixer", "silo-01")]
    await ahead_of_the_release(arena, *forged, receiver="silo-00")


@attack("analyzer", "a release and a model sent to the mixer", "refused: it has none to send there")
async def release_of_the_analyzer(arena: Arena) -> None:
    model = arena.model(0, arena.outcome(3.0)).encode()
    forged = [
        arena.forge("release", "analyzer", "mixer", 0, arena.parcel(7)),
        arena.forge("model", "analyzer", "mixer", 0, model),
    ]
    await ahead_of_the_release(arena, *forged)


@attack("whoever has the analyzer's envelopes", "a model whose head the mixer has signed", "refused")
async def head_signed_by_another(arena: Arena) -> None:
    model = arena.model(0, arena.outcome(3.0))
    forged = model._replace(head=arena.parties["mixer"].signed(1, model.head.hash))
    await ahead_of_the_release(
        arena, arena.forge("model", "analyzer", "silo-00", 0, forged.encode()), receiver="silo-00"
    )


@attack("silo-00", "a release with a ledger's head that silo-01 has signed", "refused")
async def ledger_of_another(arena: Arena) -> None:
    head = arena.parties["silo-01"].signed(1, bytes(range(32)))
    for receiver in ("mixer", "analyzer"):
        await arena.attack(receiver, arena.forge("release", "silo-00", receiver, 0, arena.parcel(7, ledger=head)))
    await arena.finish()


@attack("silo-00", "an accusation: a head of the analyzer that the analyzer has not signed", "refused, nobody stops")
async def accusation(arena: Arena) -> None:
    await arena.sync()
    head = arena.keepers["analyzer"].own()._replace(hash=bytes(range(32)))
    forged = [
        arena.forge("release", "silo-00", "mixer", 1, arena.parcel(7, models=lie))
        for lie in (head, arena.parties["silo-00"].signed(1, bytes(32)))
    ]
    await ahead_of_the_release(arena, *forged)
