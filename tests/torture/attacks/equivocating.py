"""Two stories: different models, totals, releases or heads of one place, told to different parties or one by one."""

from __future__ import annotations

import numpy as np

from tests.torture.attacks.arena import DEADLINE, SILOS, Arena, Crossed
from tests.torture.attacks.cases import Table

EQUIVOCATING: Table[Arena] = Table()
attack = EQUIVOCATING.attack


async def nothing_more(arena: Arena, closed: int) -> None:
    """The federation stands where it is: nothing is drawn or closed until somebody has looked into it."""
    for name in SILOS:
        arena.visit(name)
        arena.tick(name)
        if arena.agents[name].problem is None:
            await arena.agents[name].send(arena.link(name))
    await arena.deliver()
    await arena.pass_time(100 * DEADLINE)
    assert arena.done == closed


@attack("analyzer", "one model to silo-00, another to the others", "the mixer notices with the next releases and stops")
async def different_models(arena: Arena) -> None:
    lie = arena.forge("model", "analyzer", "silo-00", 0, arena.model(0, arena.outcome(3.0)).encode())

    def to_silo_00(message: Crossed) -> bool:
        return (message.sender, message.receiver) == ("analyzer", "silo-00")

    arena.lost = to_silo_00
    await arena.sync()
    await arena.attack("silo-00", lie, refused=0)
    await nothing_more(arena, closed=1)
    problem = arena.keepers["mixer"].problem
    assert problem is not None
    assert "analyzer has told different parties different things" in problem
    assert arena.keepers["mixer"].store.problem() == problem


@attack(
    "analyzer", "a second model of one sync to one silo", "refused; the silo keeps the first and draws nothing more"
)
async def second_model(arena: Arena) -> None:
    await arena.sync()
    before = arena.agents["silo-00"].silo.model()
    lie = arena.forge("model", "analyzer", "silo-00", 0, arena.model(0, arena.outcome(3.0)).encode())
    await arena.attack("silo-00", lie)
    agent = arena.agents["silo-00"]
    assert "two models of sync 0" in str(agent.problem)
    assert agent.silo.model() == before
    arena.visit("silo-00")
    assert arena.tick("silo-00") == []
    agent.silo.decide([[1.0, 0.0]])  # decisions go on
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    await arena.pass_time(DEADLINE + 1)
    assert arena.cohorts() == [[1, 1, 1], [0, 1, 1]]


@attack("analyzer", "a model that does not follow the last one", "refused; the silo draws nothing more")
async def other_chain(arena: Arena) -> None:
    await arena.sync()
    lie = arena.model(1, arena.outcome(3.0), previous=bytes(range(32)))
    await arena.attack("silo-00", arena.forge("model", "analyzer", "silo-00", 1, lie.encode()))
    assert "two stories" in str(arena.agents["silo-00"].problem)
    assert arena.agents["silo-00"].silo.version == 1


@attack("mixer", "two totals of one sync, one after the other", "the first counts; the analyzer notices and stops")
async def second_total(arena: Arena) -> None:
    await arena.sync()
    head = arena.parties["mixer"].signed(1, bytes(range(32)))
    lie = arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed((1, 1, 0), totals=head))
    await arena.attack("analyzer", lie, refused=0)
    assert "mixer has told" in str(arena.keepers["analyzer"].problem)
    assert arena.cohorts() == [[1, 1, 1]]
    await nothing_more(arena, closed=1)


@attack("mixer", "a second total of a sync after the next one", "the first counts; the analyzer notices and stops")
async def second_total_later(arena: Arena) -> None:
    await arena.sync()
    await arena.sync()
    head = arena.parties["mixer"].signed(1, bytes(range(32)))
    lie = arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed((1, 1, 0), totals=head))
    await arena.attack("analyzer", lie, refused=0)
    assert "mixer has told" in str(arena.keepers["analyzer"].problem)
    assert arena.cohorts() == [[1, 1, 1]] * 2


@attack("silo-00", "two releases of one sync", "the first counts")
async def second_release(arena: Arena) -> None:
    await arena.release("silo-00")
    await arena.deliver()
    for receiver in ("mixer", "analyzer"):
        lie = arena.forge("release", "silo-00", receiver, 0, arena.parcel(12345))
        await arena.attack(receiver, lie, refused=0)
    for name in SILOS[1:]:
        await arena.release(name)
    await arena.deliver()
    await arena.finish()


@attack("silo-00", "two ledgers of one length", "it is said in the log; the federation goes on")
async def second_ledger(arena: Arena) -> None:
    await arena.sync()
    head = arena.parties["silo-00"].signed(1, bytes(range(32)))
    lie = arena.forge("release", "silo-00", "mixer", 0, arena.parcel(7, ledger=head))
    await arena.attack("mixer", lie, refused=0)
    await arena.finish()


@attack("analyzer", "two lists of what it holds", "the first counts: one total")
async def second_holds(arena: Arena) -> None:
    for name in SILOS:
        await arena.release(name)
    arena.queues["mixer"], kept = [], arena.queues["mixer"]
    arena.lost = lambda message: message.sender == "analyzer"
    await arena.deliver()
    arena.lost = lambda message: False
    lies = [arena.forge("holds", "analyzer", "mixer", 0, arena.holds(cohort)) for cohort in ((1, 1, 1), (1, 1, 0))]
    await arena.attack("mixer", *kept, *lies, refused=0)
    assert arena.keepers["mixer"].store.at(0).cohort == SILOS
    await arena.finish()


@attack(
    "mixer", "a total over a silo whose other half the analyzer does not hold", "no model of it; the next sync is whole"
)
async def counts_in_the_absent(arena: Arena) -> None:
    arena.lost = lambda message: "mixer" in (message.sender, message.receiver)
    for name in SILOS[:2]:
        await arena.release(name)
    await arena.deliver()
    lie = arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed((1, 1, 1)))
    await arena.attack("analyzer", lie, refused=0)
    assert arena.cohorts() == [[0, 0, 0]]
    assert arena.keepers["analyzer"].problem is None


@attack("mixer", "a total of one silo alone, fewer than make a cohort", "no model of it")
async def cohort_of_one(arena: Arena) -> None:
    arena.lost = lambda message: message.sender == "mixer"
    for name in SILOS:
        await arena.release(name)
    await arena.deliver()
    lie = arena.forge("mixed", "mixer", "analyzer", 0, arena.mixed((1, 0, 0)))
    await arena.attack("analyzer", lie, refused=0)
    assert arena.cohorts() == [[0, 0, 0]]
    stored = arena.keepers["analyzer"].store.at(0)
    assert stored.cohort == ()


@attack("analyzer", "a list of what it holds with one silo only", "the mixer makes no total of it")
async def holds_one(arena: Arena) -> None:
    for name in SILOS:
        await arena.release(name)
    arena.queues["analyzer"] = []
    lie = arena.forge("holds", "analyzer", "mixer", 0, arena.holds((1, 0, 0)))
    await arena.attack("mixer", lie, refused=0)
    assert arena.keepers["mixer"].store.at(0).cohort == ()
    assert np.array(arena.keepers["mixer"].store.next_sync()) == 1


@attack("silo-02", "its share to one of mixer and analyzer only", "it is left out, the others are counted")
async def one_sided(arena: Arena) -> None:
    for number, only in enumerate(("mixer", "analyzer")):
        for name in SILOS[:2]:
            await arena.release(name)

        def not_to(message: Crossed, only: str = only) -> bool:
            return message.sender == "silo-02" and message.receiver != only

        arena.lost = not_to
        await arena.release("silo-02")
        arena.lost = lambda message: False
        await arena.deliver()
        assert arena.done == number
        await arena.pass_time(DEADLINE + 1)
        assert arena.cohorts() == [[1, 1, 0]] * (number + 1)
    for name in SILOS:
        await arena.release(name)
    await arena.deliver()
    assert arena.cohorts()[2] == [1, 1, 1]
