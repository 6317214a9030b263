"""Well sealed and wrong inside: types, widths, cohorts, numbers, greetings that the plan has no place for."""

from __future__ import annotations

import secrets

import numpy as np

from fedbandit._arrays import Numbers
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.heads import NO_QUESTION, Greeting
from fedbandit.federation.wire.parcels import Parcel
from tests.torture.attacks.arena import EARLIER_PLAN, SILOS, Arena
from tests.torture.attacks.cases import Table

MALFORMED: Table[Arena] = Table()
attack = MALFORMED.attack


async def releases(arena: Arena, *plain: bytes) -> None:
    """Releases of silo-00 that nobody takes."""
    for receiver in ("mixer", "analyzer"):
        await arena.attack(receiver, *(arena.forge("release", "silo-00", receiver, 0, one) for one in plain))
    await arena.finish()


async def models(arena: Arena, *plain: bytes) -> None:
    """Models that silo-00 does not take."""
    await arena.attack("silo-00", *(arena.forge("model", "analyzer", "silo-00", 0, one) for one in plain))
    assert arena.agents["silo-00"].silo.version == 0
    await arena.finish()


@attack("silo-00", "sums as floats, signed integers and of no dimension", "refused")
async def wrong_type(arena: Arena) -> None:
    width = arena.plan.protocol.width
    arrays = (np.zeros(width), np.zeros(width, dtype=np.int64), np.zeros((), dtype=np.uint64))
    await releases(arena, *(Parcel((array,)).encode() for array in arrays))


@attack("silo-00", "NaN, infinity and minus zero in the place of words", "refused")
async def not_a_number(arena: Arena) -> None:
    width = arena.plan.protocol.width
    await releases(arena, *(Parcel((np.full(width, value),)).encode() for value in (np.nan, np.inf, -0.0)))


@attack("silo-00", "sums that are too wide, too narrow, empty or a matrix", "refused")
async def wrong_width(arena: Arena) -> None:
    width = arena.plan.protocol.width
    shapes: list[tuple[int, ...]] = [(width + 1,), (width - 1,), (0,), (1, width), (width, 1)]
    await releases(arena, *(Parcel((np.zeros(shape, dtype=np.uint64),)).encode() for shape in shapes))


@attack("silo-00", "two arrays, no array, one array twice over", "refused")
async def wrong_number_of_arrays(arena: Arena) -> None:
    words = np.zeros(arena.plan.protocol.width, dtype=np.uint64)
    await releases(arena, *(Parcel((words,) * count).encode() for count in (0, 2, 3)))


@attack("silo-00", "ciphertexts to be carried where the plan carries none", "refused")
async def unwanted_ciphertext(arena: Arena) -> None:
    await releases(arena, arena.parcel(carried=(b"x",)), arena.parcel(carried=(b"", b"")))


@attack("silo-00", "a parcel cut short at every length, and with bytes after its end", "all refused")
async def cut_short(arena: Arena) -> None:
    plain = arena.parcel(7)
    await releases(arena, *(plain[:size] for size in range(0, len(plain), 7)), plain + b"\0", plain + plain)


OF_ANOTHER_FORM: list[Numbers] = [np.array([7]), np.array([1.0]), np.ones(3, dtype=np.int64), np.ones(1)]
UNKNOWN: list[Numbers] = [np.array(words, dtype=np.uint64) for words in ([15], [2**63], [8], [], [7, 0], [7] * 1000)]


@attack("mixer", "a cohort in signed numbers, in fractions, or with a number for every silo", "refused")
async def counted_twice(arena: Arena) -> None:
    lies = [arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed_with(cohort)) for cohort in OF_ANOTHER_FORM]
    await arena.attack("analyzer", *lies)
    await arena.finish()


@attack("mixer", "a cohort with silos that nobody knows, or of another length", "refused")
async def unknown_silos(arena: Arena) -> None:
    lies = [arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed_with(cohort)) for cohort in UNKNOWN]
    await arena.attack("analyzer", *lies)
    await arena.finish()


@attack("analyzer", "a list of what it holds of another form, or with silos that nobody knows", "refused")
async def holds_malformed(arena: Arena) -> None:
    cohorts = [*OF_ANOTHER_FORM, *UNKNOWN]
    lies = [arena.forge("holds", "analyzer", "mixer", 0, arena.holds_with(cohort)) for cohort in cohorts]
    await arena.attack("mixer", *lies)
    await arena.finish()


@attack("mixer", "totals of another type, width or number of rows", "refused")
async def wrong_totals(arena: Arena) -> None:
    width = arena.plan.protocol.width
    totals = [
        (),
        (np.zeros((1, width)),),
        (np.zeros((1, width), dtype=np.int64),),
        (np.zeros((2, width), dtype=np.uint64),),
        (np.zeros((1, width + 1), dtype=np.uint64),),
        (np.zeros(width, dtype=np.uint64),),
        (np.zeros((1, width), dtype=np.uint64),) * 2,
    ]
    lies = [arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed(arrays=arrays)) for arrays in totals]
    carried = arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed(carried=(b"x",) * 3))
    await arena.attack("analyzer", *lies, carried)
    await arena.finish()


@attack("analyzer", "a model of NaN, of infinities, of whole numbers", "refused")
async def model_not_finite(arena: Arena) -> None:
    outcomes = [arena.outcome(value) for value in (np.nan, np.inf, -np.inf)]
    whole = arena.outcome()._replace(prefix=np.zeros(arena.plan.protocol.width, dtype=np.int64))
    await models(arena, *(arena.model(0, outcome).encode() for outcome in (*outcomes, whole)))


@attack(
    "analyzer",
    "a model of the largest floats, of which no parameters can be made",
    "refused, or decides in finite numbers",
)
async def model_too_large(arena: Arena) -> None:
    lie = arena.model(0, arena.outcome(1.7e308)).encode()
    arena.inject("silo-00", arena.forge("model", "analyzer", "silo-00", 0, lie))
    await arena.deliver()
    silo = arena.agents["silo-00"].silo
    assert np.isfinite(silo.model()[1]).all()
    silo.decide([[1.0, 0.0], [0.0, 1.0]])


@attack("analyzer", "a model with the head of another, or that follows a hash of no length", "refused")
async def model_and_head_differ(arena: Arena) -> None:
    model, other = arena.model(0, arena.outcome(1.0)), arena.model(0, arena.outcome(2.0))
    short = arena.model(0, arena.outcome(1.0), previous=b"x")
    late = model._replace(head=arena.parties["analyzer"].signed(2, model.head.hash))
    lies = (model._replace(head=other.head), short, late)
    await models(arena, *(lie.encode() for lie in lies))


@attack("analyzer", "a model with a cohort of another form, or of more silos than there are", "refused")
async def model_cohort(arena: Arena) -> None:
    await models(arena, *(arena.model_with(cohort) for cohort in (*OF_ANOTHER_FORM, *UNKNOWN)))


@attack("analyzer", "models cut short and with bytes after their end", "refused")
async def model_cut_short(arena: Arena) -> None:
    plain = arena.model(0, arena.outcome(1.0)).encode()
    await models(arena, *(plain[:size] for size in range(0, len(plain), 17)), plain + b"\0")


# -- greetings --------------------------------------------------------------------------------------------------------


@attack("silo-00", "greetings cut short, without the mark, of another form", "refused")
async def greeting_malformed(arena: Arena) -> None:
    plain = Greeting(FORMAT, FORMAT, secrets.token_bytes(16)).encode()
    lies = (b"", plain[:-1], plain[4:], b"FBG2" + plain[4:], messages.pack([plain]))
    for receiver in ("mixer", "analyzer"):
        await arena.attack(receiver, *(arena.forge("greeting", "silo-00", receiver, 0, lie) for lie in lies))
    await arena.finish()


@attack("silo-00", "an answer, under another plan, to a question that it was never asked", "nobody stops")
async def wrong_plan_of_a_silo(arena: Arena) -> None:
    greeting = Greeting(FORMAT, FORMAT, secrets.token_bytes(16), secrets.token_bytes(16)).encode()
    for receiver in ("mixer", "analyzer"):
        forged = arena.forge("greeting", "silo-00", receiver, 0, greeting, plan=EARLIER_PLAN.hash)
        await arena.attack(receiver, forged, refused=0)
    await arena.finish()


@attack("mixer", "it reads other formats only", "silos draw nothing that it cannot read, until it does again")
async def wrong_format(arena: Arena) -> None:
    lie = Greeting(FORMAT + 1, FORMAT + 5).encode()
    await arena.attack("silo-00", arena.forge("greeting", "mixer", "silo-00", 0, lie), refused=0)
    arena.visit("silo-00")
    assert arena.tick("silo-00") == []
    await arena.greet()  # the real mixer answers
    assert arena.tick("silo-00") == [0]
    await arena.agents["silo-00"].send(arena.link("silo-00"))
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    await arena.finish()


@attack(
    "mixer", "it says that it has seen four billion releases of a silo", "not believed without the silo's signature"
)
async def seen_too_much(arena: Arena) -> None:
    agent, mixer = arena.agents["silo-00"], arena.parties["mixer"].public
    arena.begin("silo-00")
    agent = arena.agents["silo-00"]
    arena.lost = lambda message: message.sender == "mixer"
    await agent.introduce(arena.link("silo-00"))
    asked = Greeting.decode(arena.parties["mixer"].open(arena.last("silo-00", "mixer", "greeting"))[1])
    assert asked.question != NO_QUESTION
    lie = Greeting(FORMAT, FORMAT, answer=asked.question, syncs=2**32 - 1).encode()
    await arena.deliver()
    await arena.attack("silo-00", arena.forge("greeting", mixer.name, "silo-00", 0, lie), refused=0)
    await agent.judge()
    assert agent.problem is None
    arena.lost = lambda message: False
    await arena.finish()


@attack("silo-00", "it says that it has seen a mixer further than it is, unsigned", "not believed")
async def keeper_seen_too_far(arena: Arena) -> None:
    head = arena.parties["silo-00"].signed(3, bytes(range(32)))
    greeting = Greeting(FORMAT, FORMAT, secrets.token_bytes(16), syncs=3, seen=head).encode()
    for receiver in ("mixer", "analyzer"):
        await arena.attack(receiver, arena.forge("greeting", "silo-00", receiver, 0, greeting), refused=0)
        assert arena.keepers[receiver].problem is None
    await arena.finish()


@attack("whoever restores a mixer", "an empty store in the place of the mixer's", "it closes nothing and says why")
async def restored_mixer(arena: Arena) -> None:
    await arena.sync()
    arena.end("mixer")
    for left in arena.homes["mixer"].path.glob("mixer-*.db*"):
        left.unlink()
    arena.begin("mixer")
    await arena.keepers["mixer"].greet()
    await arena.deliver()
    assert "behind" in str(arena.keepers["mixer"].problem)
    for name in SILOS:
        await arena.release(name)
    await arena.deliver()
    await arena.pass_time(1000.0)
    assert arena.done == 1


@attack("whoever restores a silo", "an empty store in the place of a silo's", "it draws nothing and says why")
async def restored_silo(arena: Arena) -> None:
    await arena.sync()
    arena.end("silo-00")
    for left in arena.homes["silo-00"].path.glob("silo.db*"):
        left.unlink()
    arena.begin("silo-00")
    await arena.greet()
    assert "old copy" in str(arena.agents["silo-00"].problem)
    arena.visit("silo-00")
    assert arena.tick("silo-00") == []
    assert arena.agents["silo-00"].silo.store.ledger() == []
