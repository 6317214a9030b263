"""A federation over a bad network: cut in the middle of a message, slow, away for a while, half open.

One party's connection to a real broker goes through a proxy on loopback. Every sync ends with everybody in it, each
release is drawn once and counted once, and the totals are those of what silos drew.
"""

import asyncio

import numpy as np
import pytest

from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.home import FEDERATION
from fedbandit.federation.wire import link, messages
from fedbandit.schedule import every
from tests.federation.harness import federation
from tests.federation.small import small_plan
from tests.torture.attacks.proxy import Proxy

pytestmark = pytest.mark.fire
PLAN = small_plan(rounds=60, schedule=every(1), cohort=2)
DEADLINE = 120.0
CUTS = [1, 60, 200, 900, 1500, 2100, 2700, 3300, 4000, 5000]  # bytes that get through before the connection is cut


def through_a_proxy(path, name, scenario):
    """A federation in which one party reaches the broker through a proxy."""

    async def main():
        async with federation(path, PLAN, DEADLINE, absent=[name]) as running:
            home = running.homes[name]
            agreement = home.agreement()
            async with Proxy(int(agreement.broker.rsplit(":", 1)[1])) as proxy:
                text = (home.path / FEDERATION).read_text()
                (home.path / FEDERATION).write_text(text.replace(agreement.broker, proxy.url))
                await running.start(name)
                await running.sync(0)
                await scenario(running, proxy)
                check(running)
                for one in list(running.running):
                    await running.stop(one)

    asyncio.run(main())


async def play_cuts(running, proxy, cuts):
    """Each connection is cut after so many bytes from the beginning of a sync, in that sync or in one after it."""
    sync = 0
    for number, cut in enumerate(cuts, 1):
        proxy.cut_after = cut
        while proxy.cuts < number:
            sync += 1
            await running.sync(sync)


def check(running):
    """One release per sync, everybody in every sync, and the totals of what was drawn."""
    protocol, state = PLAN.protocol, PLAN.protocol.init_analyzer()
    done = running.running["analyzer"].store.next_sync()
    stores = {name: running.running[name].silo.store for name in running.silos}
    for sync in range(done):
        outcome = running.outcome(sync)
        assert outcome.cohort.all()
        drawn = [messages.decode(store.release(1, sync).drawn) for store in stores.values()]
        sent = tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True))
        state, prefix = protocol.decode(state, protocol.passed_on(sent, ExactNoise()))
        assert np.allclose(outcome.prefix, prefix, rtol=0, atol=1e-9 * max(1.0, np.abs(prefix).max()))
    for store in stores.values():
        assert len(store.ledger()) == len({row.event for row in store.ledger()}) == done
    for name in running.homes:
        assert running.running[name].problem is None
        assert running.running[name].refused.count == 0


@pytest.mark.parametrize("name", ["silo-00", "mixer", "analyzer"])
def test_cut_in_the_middle_of_a_message(tmp_path, name, size):
    cuts = CUTS[:: size(5, 1)]

    async def scenario(running, proxy):
        await play_cuts(running, proxy, cuts)

    through_a_proxy(tmp_path, name, scenario)


@pytest.mark.parametrize("name", ["silo-00", "mixer", "analyzer"])
def test_slow(tmp_path, name):
    async def scenario(running, proxy):
        proxy.rate = 20_000.0
        await running.sync(1)
        await running.sync(2)

    through_a_proxy(tmp_path, name, scenario)


@pytest.mark.parametrize("name", ["silo-00", "mixer", "analyzer"])
def test_away_for_a_while(tmp_path, name):
    """The sync waits for it and ends when it is back; nothing was drawn or made twice meanwhile."""

    async def scenario(running, proxy):
        proxy.refuses = True
        proxy.cut()
        await running.batch(1)
        await asyncio.sleep(2.0)
        assert running.running["analyzer"].store.next_sync() == 1
        proxy.refuses = False
        await running.wait(2)
        await running.sync(2)

    through_a_proxy(tmp_path, name, scenario)


@pytest.mark.parametrize("name", ["silo-00", "analyzer"])
def test_half_open(tmp_path, name, monkeypatch):
    """The connection is dead and nobody says so: signs of life are missed, and a new one is made."""
    monkeypatch.setattr(link, "PING", 0.5)
    monkeypatch.setattr(link, "WAIT", 1.0)

    async def scenario(running, proxy):
        proxy.swallows = True
        await running.batch(1)
        await asyncio.sleep(0.5)
        proxy.swallows = False  # the network is back, the old connection is not
        await running.wait(2)
        await running.sync(2)

    through_a_proxy(tmp_path, name, scenario)


def test_on_and_off_at_random(tmp_path, size):
    """A link that goes away every now and then, at any byte."""
    cuts = np.random.default_rng(7).integers(0, 6000, size(2, 12))

    async def scenario(running, proxy):
        await play_cuts(running, proxy, map(int, cuts))

    through_a_proxy(tmp_path, "mixer", scenario)
