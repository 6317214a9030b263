"""Too much, too long, too deep: none of it ends a party, keeps it busy, or stays in its queue."""

from __future__ import annotations

import secrets
import struct

from fedbandit.federation.wire import messages
from fedbandit.federation.wire.envelopes import FORMAT, KINDS, OVERHEAD, Kind
from fedbandit.federation.wire.heads import Greeting
from tests.memory import at_most
from tests.torture.attacks.arena import Arena
from tests.torture.attacks.cases import Table

HUGE: Table[Arena] = Table()
attack = HUGE.attack
KIND_OF: dict[str, Kind] = {"silo-00": "release", "mixer": "mixed", "analyzer": "model"}
EVERYBODY = ("mixer", "analyzer", "silo-00")
COPIES, SPARE = 3, 2**20  # bytes that may be made of a message: as it came, opened, in parts; no value per array in it
EMPTY_ARRAYS = b"FBM1" + struct.pack("<I", 2_000_000) + b"\x00\x01\x00\x00\x00\x00" * 2_000_000
EMPTY_PARTS = b"FBM1" + struct.pack("<I", 2_000_000) + bytes(8 * 2_000_000)


async def to_everybody(arena: Arena, *data: bytes) -> None:
    for name in EVERYBODY:
        with at_most(COPIES * sum(map(len, data)) + SPARE):
            await arena.attack(name, *data)
    await arena.finish()


@attack("anybody", "60,000 '[', bare and behind the marks of envelopes", "refused")
async def brackets(arena: Arena) -> None:
    brackets = b"[" * 60_000
    await to_everybody(arena, brackets, b"FBE1" + brackets, b"FBE3" + brackets, b"FBM1" + brackets, b"FBG1" + brackets)


@attack("anybody", "nothing, one byte, the mark alone, a header alone, one byte too few", "refused")
async def too_short(arena: Arena) -> None:
    sealed = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7))
    short = (b"", b"\0", sealed[:4], sealed[:161], sealed[:225], sealed[: OVERHEAD - 1], sealed[:-1])
    await to_everybody(arena, *short)


@attack("anybody", "megabytes of zeros, of ones, of noise", "refused")
async def megabytes(arena: Arena) -> None:
    noise = secrets.token_bytes(2**20)
    await to_everybody(arena, bytes(8 * 2**20), b"FBE3" + b"\xff" * 2**20, noise, b"FBE3" + noise)


@attack("silo-00", "an envelope, signed, with 60,000 '[' inside, of every kind", "refused")
async def signed_brackets(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        sealed = [arena.forge(kind, "silo-00", receiver, 0, b"[" * 60_000) for kind in KINDS]
        await arena.attack(receiver, *sealed)
    await arena.finish()


@attack(
    "silo-00, mixer, analyzer",
    "two million empty arrays, signed, in what each of them sends",
    "refused before they are made",
)
async def empty_arrays(arena: Arena) -> None:
    for sender, receiver in (("silo-00", "mixer"), ("mixer", "analyzer"), ("analyzer", "silo-00")):
        kind = KIND_OF[sender]
        bombs = [EMPTY_ARRAYS, EMPTY_PARTS, messages.pack([bytes(208), EMPTY_ARRAYS])]
        sealed = [arena.forge(kind, sender, receiver, 0, bomb) for bomb in bombs]
        with at_most(COPIES * sum(map(len, sealed)) + SPARE):
            await arena.attack(receiver, *sealed)
    await arena.finish()


@attack("silo-00", "a message that says it holds an array of 2^256 numbers", "refused")
async def absurd_shapes(arena: Arena) -> None:
    shapes = [(2**32 - 1,) * 8, (0,) + (2**32 - 1,) * 7, (0,) + (2**20,) * 7, (2**32 - 1,)]
    for receiver in ("mixer", "analyzer"):
        plain = [b"FBM1" + struct.pack(f"<IBB{len(shape)}I", 1, 1, len(shape), *shape) + bytes(64) for shape in shapes]
        sealed = [arena.forge("release", "silo-00", receiver, 0, messages.pack([bytes(208), one])) for one in plain]
        await arena.attack(receiver, *sealed)
    cohort = messages.encode([_ones(arena)])
    mixed = [messages.pack([bytes(104), cohort, one]) for one in plain]
    await arena.attack("analyzer", *(arena.forge("mixed", "mixer", "analyzer", 0, one) for one in mixed))
    await arena.finish()


@attack("silo-00", "a greeting of a megabyte", "it is read to where greetings end, and answered")
async def long_greeting(arena: Arena) -> None:
    greeting = Greeting(FORMAT, FORMAT, secrets.token_bytes(16)).encode() + bytes(2**20)
    await arena.attack("mixer", arena.forge("greeting", "silo-00", "mixer", 0, greeting), refused=0)
    await arena.finish()


@attack("silo-00", "100 greetings at once", "each answered once, the next sync is whole")
async def many_greetings(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        greetings = [Greeting(FORMAT, FORMAT, secrets.token_bytes(16)).encode() for _ in range(100)]
        before = len(arena.crossed)
        await arena.attack(
            receiver, *(arena.forge("greeting", "silo-00", receiver, 0, one) for one in greetings), refused=0
        )
        assert len(arena.crossed) - before == 100
    await arena.finish()


@attack(
    "analyzer", "a signed head of 2^64 - 1 models", "refused: the plan has no such sync; nothing is retried for ever"
)
async def endless_chain_of_models(arena: Arena) -> None:
    head = arena.parties["analyzer"].signed(2**64 - 1, bytes(range(32)))
    await arena.attack("mixer", arena.forge("holds", "analyzer", "mixer", 0, arena.holds(models=head)))
    release = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7, models=head))
    await arena.attack("mixer", release)
    await arena.finish()


@attack("mixer", "a signed head of 2^40 totals", "refused: the plan has no such sync; nothing is retried for ever")
async def endless_chain_of_totals(arena: Arena) -> None:
    head = arena.parties["mixer"].signed(2**40, bytes(range(32)))
    await arena.attack("analyzer", arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed(totals=head)))
    await arena.finish()


@attack("silo-00", "a ledger of 2^64 - 1 entries, signed", "taken for what it is: the silo's own word")
async def endless_ledger(arena: Arena) -> None:
    head = arena.parties["silo-00"].signed(2**64 - 1, bytes(range(32)))
    for receiver in ("mixer", "analyzer"):
        release = arena.forge("release", "silo-00", receiver, 2, arena.parcel(7, ledger=head))
        await arena.attack(receiver, release, refused=0)
    await arena.sync()
    await arena.sync()
    assert arena.cohorts() == [[1, 1, 1]] * 2


def _ones(arena: Arena):
    return arena.outcome().cohort
