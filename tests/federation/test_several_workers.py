"""Several workers that serve one silo: how they begin, and that they give one answer about how the silo is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation import workers
from fedbandit.federation.process import REFUSED, Orders, holding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import UNASKED, Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.terms import open_term
from fedbandit.federation.store import SiloStore, open_engine
from tests.federation.conftest import postgres_server
from tests.federation.test_process import PLAN, founded


class Worker:
    """What a worker has of the silo: a connection of its own to the database, and an agent."""

    def __init__(self, home: Home, stack: ExitStack) -> None:
        party = home.party()
        self.sealer = Sealer(party)
        store = home.store(PLAN.hash)
        silo = Silo.open(store, PLAN, name="silo", secret=home.salt, sealer=self.sealer)
        self.agent = Agent(stack.enter_context(silo), party, self.sealer)

    async def looks(self) -> None:
        """What the worker does every second, until it has looked once."""
        ticking = asyncio.create_task(self.agent._ticks())
        await asyncio.sleep(0.5)
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


@pytest.fixture
def pair(tmp_path: Path, empty_postgres: str) -> Iterator[tuple[Worker, Worker]]:
    home: Home = founded(tmp_path, empty_postgres)
    with ExitStack() as stack:
        yield Worker(home, stack), Worker(home, stack)


def test_all_workers_give_the_answer_of_the_one_that_leads(pair: tuple[Worker, Worker]) -> None:
    """Only the worker that leads asks the other parties. Those beside it said for ever that they had not answered, so
    most calls of /readyz were answered with 503, and an alarm was raised for a silo that was well."""
    leader, other = pair

    async def turns() -> None:
        await leader.looks()
        await other.looks()
        assert leader.agent.troubles == other.agent.troubles == {"others": UNASKED}
        leader.sealer.clear()
        await leader.looks()
        await other.looks()
        assert leader.agent.troubles == other.agent.troubles == {}
        leader.sealer.hold("the mixer does not read messages of format 3", "format")
        await leader.looks()
        await other.looks()
        assert other.agent.troubles == {"format": "the mixer does not read messages of format 3"}
        assert leader.agent.silo.status()["problem"] == "the mixer does not read messages of format 3"

    asyncio.run(turns())


def test_a_worker_that_does_not_lead_says_what_it_found_out_itself(pair: tuple[Worker, Worker]) -> None:
    leader, other = pair

    async def turns() -> None:
        leader.sealer.clear()
        await leader.looks()
        await other.looks()
        other.agent._sealer.halt("the analyzer has sent two models of sync 0")
        assert other.agent.troubles == {"behind": "the analyzer has sent two models of sync 0"}

    asyncio.run(turns())


def test_the_worker_that_leads_draws_nothing_more_once_another_has_halted(pair: tuple[Worker, Worker]) -> None:
    """It was not told, and drew on, although this silo knew that the analyzer had told two stories."""
    leader, other = pair

    async def turns() -> None:
        leader.sealer.clear()
        await leader.looks()
        await other.looks()
        other.agent._sealer.halt("the analyzer has sent two models of sync 0")
        await other.looks()
        assert leader.sealer.held is None
        await leader.looks()
        assert leader.sealer.held == "the analyzer has sent two models of sync 0"
        assert leader.agent.silo.status()["problem"] == "the analyzer has sent two models of sync 0"

    asyncio.run(turns())


def test_every_worker_is_well_again_once_the_database_is_back(tmp_path: Path) -> None:
    """Workers that did not lead said until they ended that the store did not work."""
    with postgres_server() as server, ExitStack() as stack:
        home: Home = founded(tmp_path, server.url)
        pair = Worker(home, stack), Worker(home, stack)

        async def turns() -> None:
            for worker in pair:
                await worker.looks()
            server.stop()
            for worker in pair:
                await worker.looks()
                assert "store" in worker.agent.troubles
            server.start()
            end = time.monotonic() + 30
            while any("store" in worker.agent.troubles for worker in pair):
                assert time.monotonic() < end, [worker.agent.troubles for worker in pair]
                for worker in pair:
                    await worker.looks()

        asyncio.run(turns())


def test_a_term_that_another_worker_has_just_begun_is_not_refused(
    empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four workers that began on an empty database ended with "was the plan of an earlier term"."""
    stores = [SiloStore(open_engine(empty_postgres)) for _ in range(2)]
    faster, slower = stores
    looked = slower.terms

    def late() -> list[object]:
        found = looked()
        open_term(faster, PLAN, 0.0, new_term=False)
        return list(found)

    monkeypatch.setattr(slower, "terms", late)
    try:
        assert open_term(slower, PLAN, 0.0, new_term=False).number == 1
    finally:
        for store in stores:
            store.engine.close()


@pytest.mark.parametrize("damage", ["no database", "another plan"])
def test_what_keeps_a_silo_from_starting_is_said_once_before_there_are_workers(
    tmp_path: Path, empty_postgres: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker ended with a traceback and was replaced after a second, for ever."""
    import psycopg

    url = empty_postgres if damage == "another plan" else "postgresql://127.0.0.1:1/nothing"
    home: Home = founded(tmp_path, url)
    if damage == "another plan":
        Silo.open(url, PLAN.changed(rounds=PLAN.rounds + 1), name="silo", secret=home.salt).close()
    monkeypatch.setattr(workers, "_Crew", None)  # it is not reached
    with pytest.raises((ArgumentError, psycopg.OperationalError), match=r"under which this store began|connect"):
        workers.serve(home.path, 2)


def test_a_worker_that_cannot_take_the_place_of_another_says_why_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []
    home: Home = founded(tmp_path, "postgresql://127.0.0.1:1/nothing")
    monkeypatch.setattr(workers, "leave", left.append)
    monkeypatch.setattr(workers, "_follow", lambda: None)
    with holding(home) as port, caplog.at_level(logging.ERROR, "fedbandit.federation.workers"):
        workers._worker(home.path, Orders(), port, [], 0)
    assert left == [workers.FAILED]
    assert left != [REFUSED]
    assert [record.exc_info for record in caplog.records] == [None]
    assert "OperationalError" in caplog.text
