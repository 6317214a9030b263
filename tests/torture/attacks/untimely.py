"""Messages for syncs that are still to come, that are over, or that the plan does not have."""

from __future__ import annotations

from tests.torture.attacks.arena import CLOCK_PLAN, DEADLINE, SILOS, Arena
from tests.torture.attacks.cases import Table

UNTIMELY: Table[Arena] = Table()
attack = UNTIMELY.attack


@attack("silo-00", "the releases of all syncs at once, at the start", "all refused as early", plan=CLOCK_PLAN)
async def all_syncs_at_once(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        releases = [arena.forge("release", "silo-00", receiver, sync, arena.parcel(7)) for sync in range(3)]
        await arena.attack(receiver, *releases)
    await arena.pass_time(DEADLINE * 10)
    assert arena.done == 0
    arena.pass_clock(-DEADLINE * 10)
    await arena.finish()


@attack(
    "silo-00",
    "a silo started with its clock a day ahead",
    "it draws nothing; the others' term goes on",
    plan=CLOCK_PLAN,
)
async def clock_a_day_ahead(arena: Arena) -> None:
    arena.clocks["silo-00"].pass_time(86_400.0)
    arena.clocks["silo-00"].reboot()
    arena.begin("silo-00")
    await arena.greet()
    assert arena.agents["silo-00"].silo.status()["held"] is not None
    await arena.agents["silo-00"].tick()
    assert arena.agents["silo-00"].silo.store.ledger() == []
    for name in SILOS[1:]:
        arena.visit(name)
    arena.pass_clock(3600.0)
    for name in SILOS[1:]:
        arena.tick(name)
        await arena.agents[name].send(arena.link(name))
    await arena.deliver()
    await arena.pass_time(2 * DEADLINE)  # it runs from one pace after the tick
    assert arena.cohorts() == [[0, 1, 1]]


@attack(
    "mixer, analyzer", "a total and a list of what is held long before the tick", "refused as early", plan=CLOCK_PLAN
)
async def early_keepers(arena: Arena) -> None:
    await arena.attack("analyzer", arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed()))
    await arena.attack("mixer", arena.forge("holds", "analyzer", "mixer", 0, arena.holds((1, 1, 0))))
    await arena.finish()


@attack("silo-00", "a release for the last sync during the first", "no deadline starts by it")
async def future_sync(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        await arena.attack(receiver, arena.forge("release", "silo-00", receiver, 2, arena.parcel(7)), refused=0)
    await arena.pass_time(100 * DEADLINE)
    assert arena.done == 0
    await arena.sync()
    await arena.sync()
    assert arena.cohorts() == [[1, 1, 1]] * 2


@attack("silo-00", "releases of syncs that the plan does not have", "refused")
async def no_such_sync(arena: Arena) -> None:
    for receiver in ("mixer", "analyzer"):
        syncs = (3, 4, 1000, 2**31, 2**32 - 1)
        await arena.attack(
            receiver, *(arena.forge("release", "silo-00", receiver, sync, arena.parcel(7)) for sync in syncs)
        )
    await arena.finish()


@attack(
    "analyzer",
    "the model of the last sync first, and one of a sync that does not exist",
    "refused, the version moves on",
)
async def last_model_first(arena: Arena) -> None:
    models = [arena.model(sync, arena.outcome(3.0), bytes(32)).encode() for sync in (1, 2, 3, 2**32 - 2)]
    sealed = [
        arena.forge("model", "analyzer", "silo-00", sync, model)
        for sync, model in zip((1, 2, 3, 2**32 - 2), models, strict=True)
    ]
    await arena.attack("silo-00", *sealed)
    await arena.finish()


@attack(
    "analyzer", "a model that counts a release which this silo has not drawn", "the silo stops drawing and says why"
)
async def model_of_the_undrawn(arena: Arena) -> None:
    model = arena.model(0, arena.outcome(3.0)).encode()
    await arena.attack("silo-00", arena.forge("model", "analyzer", "silo-00", 0, model), refused=0)
    assert "never made" in str(arena.agents["silo-00"].problem)
    arena.agents["silo-00"].silo.decide([[1.0, 0.0]])


@attack("silo-02", "a release after its sync was closed without it", "nothing changes; it is in the next")
async def after_closing(arena: Arena) -> None:
    for name in SILOS[:2]:
        await arena.release(name)
    await arena.deliver()
    await arena.pass_time(DEADLINE + 1)
    assert arena.cohorts() == [[1, 1, 0]]
    await arena.release("silo-02")
    await arena.deliver()
    assert arena.cohorts() == [[1, 1, 0]]
    for name in SILOS:
        await arena.release(name)
    await arena.deliver()
    assert arena.cohorts() == [[1, 1, 0], [1, 1, 1]]
    assert arena.agents["silo-02"].silo.status()["missed"] == [0]


@attack("silo-00, mixer, analyzer", "everything again, and new messages, after the term", "nothing changes")
async def after_the_term(arena: Arena) -> None:
    await arena.finish()
    prefixes = [stored.value for stored in arena.keepers["analyzer"].store.all()]
    for message in list(arena.crossed):
        arena.inject(message.receiver, message.data)
    for receiver in ("mixer", "analyzer"):
        arena.inject(receiver, arena.forge("release", "silo-00", receiver, 2, arena.parcel(7)))
    await arena.deliver()
    await arena.pass_time(100 * DEADLINE)
    assert [stored.value for stored in arena.keepers["analyzer"].store.all()] == prefixes
    arena.check()
