"""Messages that were honest once: of an old sync, an old term, for another party, answers to old questions."""

from __future__ import annotations

from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.heads import Greeting
from tests.torture.attacks.arena import EARLIER_PLAN, SILOS, Arena
from tests.torture.attacks.cases import Table

REPLAYED: Table[Arena] = Table()
attack = REPLAYED.attack


@attack("the broker", "every message of a sync again, five times, after it is over", "nothing changes, all done with")
async def whole_sync(arena: Arena) -> None:
    await arena.sync()
    for message in list(arena.crossed):
        arena.inject(message.receiver, *[message.data] * 5)
    await arena.deliver()
    assert arena.cohorts() == [[1, 1, 1]]
    await arena.finish()


@attack("the broker", "one silo's release twenty times before the others have sent theirs", "it counts once")
async def release_before_closing(arena: Arena) -> None:
    await arena.release("silo-00")
    for receiver in ("mixer", "analyzer"):
        arena.inject(receiver, *[arena.last("silo-00", receiver, "release")] * 20)
    await arena.deliver()
    assert arena.done == 0
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    assert arena.cohorts() == [[1, 1, 1]]
    await arena.finish()


@attack("silo-01", "silo-00's release sent as if it were silo-01's", "it counts as silo-00's, once")
async def release_of_another_silo(arena: Arena) -> None:
    await arena.release("silo-00")
    for receiver in ("mixer", "analyzer"):  # the subject is silo-01's; the envelope says whose it is
        arena.inject(receiver, arena.last("silo-00", receiver, "release"))
    await arena.deliver()
    assert arena.keepers["mixer"].store.senders(0) == {"silo-00"}
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    await arena.finish()


@attack("the broker", "releases and totals of an earlier term of the same parties", "refused as stale")
async def earlier_term(arena: Arena) -> None:
    old = EARLIER_PLAN.hash
    await arena.attack(
        "mixer", *(arena.forge("release", name, "mixer", 0, arena.parcel(7), plan=old) for name in SILOS)
    )
    await arena.attack("analyzer", arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed(), plan=old))
    model = arena.model(0, arena.outcome(3.0)).encode()
    await arena.attack("silo-00", arena.forge("model", "analyzer", "silo-00", 0, model, plan=old))
    await arena.finish()


@attack("the broker", "a greeting of the analyzer under the earlier plan, left in a queue", "no mismatch, nobody stops")
async def earlier_greeting(arena: Arena) -> None:
    left_over = Greeting(FORMAT, FORMAT, answer=b"a question asked").encode()
    for receiver in ("mixer", "silo-00"):
        forged = arena.forge("greeting", "analyzer", receiver, 0, left_over, plan=EARLIER_PLAN.hash)
        await arena.attack(receiver, forged, refused=0)
    await arena.finish()


@attack("the broker", "silo-00's model delivered to silo-01", "refused")
async def model_of_another_silo(arena: Arena) -> None:
    await arena.sync()
    await arena.attack("silo-01", arena.last("analyzer", "silo-00", "model"))
    await arena.finish()


@attack("the broker", "the first model again after the second", "the version stays at the second")
async def old_model(arena: Arena) -> None:
    await arena.sync()
    first = arena.last("analyzer", "silo-00", "model")
    await arena.sync()
    await arena.attack("silo-00", first, refused=0)
    assert arena.agents["silo-00"].silo.version == 2
    await arena.finish()


@attack("the broker", "the total and the cohort of a sync again after the next", "one total each, nothing changes")
async def old_total(arena: Arena) -> None:
    await arena.sync()
    total, holds = arena.last("mixer", "analyzer", "mixed"), arena.last("analyzer", "mixer", "holds")
    await arena.sync()
    await arena.attack("analyzer", total, refused=0)
    await arena.attack("mixer", holds, refused=0)
    await arena.finish()


@attack("the broker", "answers of the last start to a mixer that starts again", "it closes nothing on old answers")
async def answer_to_a_mixer(arena: Arena) -> None:
    answer = arena.last("analyzer", "mixer", "greeting")
    arena.begin("mixer")
    await arena.attack("mixer", answer, refused=0)
    assert not arena.keepers["mixer"].ready
    for name in SILOS:
        await arena.release(name)
    await arena.deliver()
    await arena.pass_time(100.0)
    assert arena.done == 0
    await arena.keepers["mixer"].greet()
    await arena.deliver()
    assert arena.cohorts() == [[1, 1, 1]]
    await arena.finish()


@attack("the broker", "answers of the last start to a silo that starts again", "it draws nothing on old answers")
async def answer_to_a_silo(arena: Arena) -> None:
    answers = [arena.last(sender, "silo-00", "greeting") for sender in ("analyzer", "mixer")]
    arena.begin("silo-00")
    agent = arena.agents["silo-00"]
    arena.lost = lambda message: message.sender == "silo-00"  # its question gets nowhere
    await agent.introduce(arena.link("silo-00"))
    await arena.attack("silo-00", *answers, refused=0)
    await agent.judge()
    arena.visit("silo-00")
    assert arena.tick("silo-00") == []
    arena.lost = lambda message: False
    arena.begin("silo-00")
    await arena.greet()
    assert arena.tick("silo-00") == [0]
    await arena.agents["silo-00"].send(arena.link("silo-00"))
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    await arena.finish()


@attack("the broker", "the answer to silo-00's question delivered to silo-01", "refused")
async def answer_of_another_silo(arena: Arena) -> None:
    await arena.attack("silo-01", arena.last("analyzer", "silo-00", "greeting"))
    await arena.finish()
