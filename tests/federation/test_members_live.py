"""A federation that lives on: over the real broker a silo joins, another gets new keys, one is restored from an old
backup, one leaves, operator, mixer and analyzer get new keys, and the term is renewed. Nobody else is restarted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import fedbandit as fb
from fedbandit.cli.main import app
from fedbandit.federation import process
from fedbandit.federation.backup.restoring import bring_forward_now, restore
from fedbandit.federation.backup.saving import save
from fedbandit.federation.membership import Membership
from fedbandit.federation.process import Orders, bind
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import FEDERATION, MEMBERS, Home
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.silo import book
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SyncStore, open_engine
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.parcels import Outcome

PLAN = fb.Plan(4, 12, 2, fb.Privacy(1.0, 1e-3), schedule=fb.every(2), visits="public", cohort=2)
PATIENCE = 60.0
RELOADED, RELOAD = "Reloaded server configuration", 10.0  # what a broker logs then; seconds that it may take
ACTIONS = [[1.0, 0.0], [0.0, 1.0]]


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (words, result.output, result.exception)
    return result.output


def reload(server: broker.BrokerProcess, log: Path) -> None:
    """Make a broker read its configuration again; nobody whose account stays is disconnected. It does so twice: after
    the first time a new account is known, and after the second its imports are there."""
    for _ in range(2):
        before = log.read_text(errors="replace").count(RELOADED)
        os.kill(server.pid, signal.SIGHUP)
        end = time.monotonic() + RELOAD
        while log.read_text(errors="replace").count(RELOADED) == before:
            assert time.monotonic() < end, log.read_text(errors="replace")[-1000:]
            time.sleep(0.02)


class Town:
    """Parties as processes run them, each a task of the test."""

    def __init__(self, path: Path, names: list[str], log: Path) -> None:
        self.path, self.plan, self.log = path, PLAN, log
        homes = founding.local(path, PLAN, names, Timing(5.0, start=time.time()))
        self.names = [home.settings.name for home in homes]
        self.agents: dict[str, Agent] = {}
        self.keepers: dict[str, process._Keeping] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.members: dict[str, Membership] = {}
        self.server: broker.BrokerProcess | None = None
        self.synced = 0  # the next sync

    def start(self, name: str, new_term: bool = False) -> None:
        home = Home.load(self.path / name)
        party, store = home.party(), home.store(self.plan.hash)
        if home.settings.role == "silo":
            sealer = Sealer(party)
            silo = Silo.open(
                store,
                self.plan,
                name=name,
                secret=home.salt,
                timing=party.agreement.timing,
                sealer=sealer,
                since=party.roll.since(name),
                new_term=new_term,
            )
            bind(silo.store.engine, party.roll.charter)
            self.agents[name] = Agent(silo, party, sealer)
            worker: Agent | process._Keeping = self.agents[name]
        else:
            engine = open_engine(store)
            bind(engine, party.roll.charter)
            worker = process._Keeping(party, SyncStore(engine))
            self.keepers[name] = worker
        member = self.members[name] = process._membership(home, party, worker, Orders())
        self.tasks[name] = asyncio.create_task(process._taking_part(home, party, member, worker.adopt))

    async def stop(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
        if name in self.agents:
            self.agents.pop(name).silo.close()
        else:
            self.keepers.pop(name).store.engine.close()

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            for task in self.tasks.values():
                assert not task.done(), task
            assert time.monotonic() < end, (what, {name: agent.problem for name, agent in self.agents.items()})
            await asyncio.sleep(0.05)

    def visits(self, name: str, user: str | None = None) -> list[bool]:
        """The two people of a batch."""
        silo, counted = self.agents[name].silo, []
        for number in range(2):
            decision = silo.decide(ACTIONS, user=f"{user}" if user and not number else None)
            counted.append(silo.reward(decision.id, [0.2, 0.8][decision.action]).counted)
        return counted

    async def sync(self, sync: int, silos: str) -> None:
        """A sync of these silos, after which all of them have the same model."""
        for name in silos:
            self.visits(name)
        await self.until(lambda: all(self.agents[name].silo.version == sync + 1 for name in silos), f"model {sync + 1}")
        assert len({json.dumps(self.agents[name].silo.model()) for name in silos}) == 1
        outcome = Outcome.decode(self.keepers["analyzer"].store.at(sync).value or b"", self.plan)
        seats = self.agents[silos[0]].party.at(sync)
        assert seats.counted(outcome.cohort) == [name for name in seats.silos if name in silos], sync
        self.synced = sync + 1

    async def changed(self, *words: object, broker_first: bool = False) -> None:
        """The operator changes the members, and reloads the broker before anybody has heard of it or after; all members
        have when this returns."""
        await asyncio.to_thread(run, "federation", *words)  # it asks the broker
        for reloads in (broker_first, not broker_first):
            if reloads:
                assert self.server is not None
                await asyncio.to_thread(reload, self.server, self.log)
                await founding.provision(self.path)
            else:
                await self._heard(founding.roll_of(self.path))

    async def _heard(self, roll: Roll) -> None:
        parties = [agent.party for agent in self.agents.values()]
        parties += [keeping.party for keeping in self.keepers.values()]
        known = [party for party in parties if roll.at(self.synced).member(party.name) is not None]
        await self.until(lambda: all(party.roll.number == roll.number for party in known), f"edition {roll.number}")

    def reconnected(self) -> dict[str, int]:
        links = {name: member._link for name, member in self.members.items() if name in self.tasks}
        return {name: link.client.stats["reconnects"] for name, link in links.items() if link is not None}


def test_years_in_a_minute(tmp_path: Path) -> None:
    asyncio.run(_years(tmp_path / "founder", tmp_path))


async def _years(path: Path, elsewhere: Path) -> None:
    town = Town(path, ["a", "b", "c"], elsewhere / "broker.log")  # one of the plan's four seats is free
    with broker.BrokerProcess(path / founding.BROKER_CONFIG, town.log) as town.server:
        await founding.provision(path)
        for name in town.names:
            town.start(name)
        try:
            await _first_term(town, elsewhere)
            await _second_term(town)
        finally:
            for name in list(town.tasks):
                await town.stop(name)


async def _first_term(town: Town, elsewhere: Path) -> None:
    path = town.path
    assert town.visits("b", user="somebody") == [True, True]
    for name in "ac":
        town.visits(name)
    await town.until(lambda: all(town.agents[name].silo.version == 1 for name in "abc"), "model 1")
    old = elsewhere / "c.backup"
    save(path / "c", old)

    # A silo joins, with the current model.
    run("federation", "join", path / "d", "--federation", path / FEDERATION, "--name", "d")
    before = town.members["a"]._link
    await town.changed("admit", path, path / "d" / "d.card.json", "--from-sync", 2)
    run("federation", "accept", path / "d", path / MEMBERS)
    town.start("d")
    await town.until(lambda: town.agents["d"].silo.version == 1, "the newcomer's model")
    assert town.agents["d"].silo.model() == town.agents["a"].silo.model()
    await town.sync(1, "abc")
    await town.until(lambda: town.agents["d"].silo.version == 2, "the newcomer's next model")
    await town.sync(2, "abcd")
    assert town.members["a"]._link is before  # nobody else's connection was cut
    assert set(town.reconnected().values()) == {0}

    # Another's keys are rotated: it goes on by itself, and its people stay who they are.
    run("federation", "new-keys", path / "b")
    await town.changed("rotate", path, path / "b" / "b.card.json", "--from-sync", 3, broker_first=True)
    assert town.agents["b"].party.keys.identity == Home.load(path / "b").later_keys()[0].identity
    assert town.agents["b"].silo.decide(ACTIONS, user="somebody").action in (0, 1)
    refused = town.agents["b"].silo.decide(ACTIONS, user="somebody")
    assert not town.agents["b"].silo.reward(refused.id, 0.5).counted
    await town.sync(3, "abcd")
    assert {name: count for name, count in town.reconnected().items() if name != "b"} == dict.fromkeys(
        ("analyzer", "mixer", "a", "c", "d"), 0
    )

    # One is restored from a backup that is three syncs old.
    await town.stop("c")
    shutil.rmtree(path / "c")
    restore(old, path / "c", passphrase=lambda: b"")
    forwarded = await bring_forward_now(path / "c", patience=PATIENCE)
    assert forwarded.recovery is not None, forwarded.why_not
    assert forwarded.recovery.syncs == (1, 2, 3)
    town.start("c")
    await town.until(lambda: town.agents["c"].problem is None, "the restored silo")
    assert town.agents["c"].party.roll.number == 2
    await town.sync(4, "abcd")

    # One leaves; the operator, the mixer and the analyzer have new keys.
    town.synced = 4  # the one who leaves hears of it, too, before the broker lets it in no more
    await town.changed("dismiss", path, "a", "--from-sync", 5)
    town.synced = 5
    await town.changed("rotate", path, "--operator", "--from-sync", 5)
    for name in ("mixer", "analyzer"):
        run("federation", "new-keys", path / name)
        await town.changed("rotate", path, path / name / f"{name}.card.json", "--from-sync", 5)
    assert "not a member" in (town.agents["a"].problem or "")
    spent = len(town.agents["a"].silo.store.ledger())
    town.visits("a")  # it decides on, and nothing of it counts
    await town.sync(5, "bcd")
    assert len(town.agents["a"].silo.store.ledger()) == spent
    assert town.agents["b"].silo.ended
    for name, released in (("a", 5), ("b", 6), ("c", 6), ("d", 4)):
        store = town.agents[name].silo.store
        book.entries(store.ledger())
        (term,) = book.spending(store.ledger()).terms
        assert (term.released, term.redrawn) == (released, ()), name
        assert term.epsilon <= 1.0 + 1e-9
    run("ledger", path / "b" / "silo.db", "--federation", path / FEDERATION)
    run("ledger", path / "b" / "silo.db", "--federation", path / "b" / FEDERATION)  # it was told over the broker


async def _second_term(town: Town) -> None:
    path = town.path
    models = {name: town.agents[name].silo.public.prefix for name in "bcd"}
    for name in list(town.tasks):
        await town.stop(name)
    (path / "next.json").write_text(json.dumps(PLAN.changed(rounds=10).as_dict()))
    said = await asyncio.to_thread(run, "federation", "renew", path, "--plan", path / "next.json")
    assert "it begins with model 6" in said
    assert "has not answered" not in said
    agreed = Agreement.load(path / FEDERATION)
    assert agreed.silos == ("b", "c", "d")
    town.plan = agreed.plan
    assert town.server is not None
    await asyncio.to_thread(reload, town.server, town.log)
    await founding.provision(path)
    for name in "bcd":
        run("federation", "accept", path / name, path / FEDERATION, "--new-term")
    for name in ("analyzer", "mixer"):
        town.start(name)
    for name in "bcd":
        town.start(name, new_term=True)
        np.testing.assert_array_equal(town.agents[name].silo.public.prefix, models[name])
    await town.sync(0, "bcd")
    for name in "bcd":
        spent = book.spending(town.agents[name].silo.store.ledger())
        assert [term.term for term in spent.terms] == [1, 2]
        assert spent.epsilon > spent.terms[0].epsilon
        assert spent.terms[1].epsilon <= 1.0 + 1e-9
        run("ledger", path / name / "silo.db", "--federation", path / name / FEDERATION)  # by keys of both terms
    run("ledger", path / "b" / "silo.db", "--federation", path / FEDERATION)


async def _two_copies(path: Path, elsewhere: Path) -> None:
    founding.local(path, PLAN, ["a", "b", "c"], Timing(5.0, start=time.time()))
    with broker.BrokerProcess(path / founding.BROKER_CONFIG, elsewhere / "broker.log"):
        await founding.provision(path)
        copy = elsewhere / "copy"
        shutil.copytree(path, copy)

        def dismissed(folder: Path, name: str) -> str:
            result = CliRunner().invoke(app, ["federation", "dismiss", str(folder), name, "--from-sync", "3"])
            return str(result.exception) if result.exit_code else result.output

        assert "has not answered" not in await asyncio.to_thread(dismissed, path, "a")
        await founding.provision(path)  # which leaves the note where it is
        said = await asyncio.to_thread(dismissed, copy, "b")
        assert said.startswith("directory must have edition 1, which was signed from another copy of it; it has 0")
        assert founding.roll_of(copy).number == 0
        shutil.copy(path / MEMBERS, copy / MEMBERS)
        said = await asyncio.to_thread(dismissed, copy, "b")
        assert "must keep at least 2 silos" in said  # it is let through, and the edition is refused as anywhere
    # Without a broker the operator may go on, and is told what nobody could check.
    said = await asyncio.to_thread(run, "federation", "rotate", path, "--operator", "--from-sync", 4)
    assert "has not answered, so it is unknown whether edition 2 was also signed from another copy" in " ".join(
        said.split()
    )


def test_of_two_copies_of_a_founders_directory_one_signs(tmp_path: Path) -> None:
    asyncio.run(_two_copies(tmp_path / "founder", tmp_path))
