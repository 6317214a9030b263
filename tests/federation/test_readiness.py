"""What a silo says about itself when the database server stops, and when the broker answers but its streams do not."""

import asyncio
import contextlib
import json
import shutil
import time

import httpx
import pytest

from fedbandit.demo.processes import url
from fedbandit.federation.http import service as calls
from fedbandit.federation.http.service import Service
from fedbandit.federation.setup import founding
from fedbandit.federation.silo.outgoing import UNASKED
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.wire import broker
from tests.federation.conftest import postgres_server
from tests.federation.test_process import ACTIONS, PLAN, decide, founded, served, stop, wait_until


def ready(silo):
    """Status, whether the broker is connected, and the problem."""
    answer = httpx.get(f"{url(silo)}/readyz", timeout=20)
    return answer.status_code, answer.json()["connected"], answer.json()["problem"]


def test_a_database_server_that_stops_is_noticed_and_its_return_too():
    async def scenario(server):
        with Silo.open(server.url, PLAN, secret=b"s" * 32) as silo:
            service = Service(silo)
            assert (await service.readiness()).ready
            server.stop()
            answer = await service.readiness()
            assert not answer.ready
            assert answer.problem
            assert silo.decide(ACTIONS).action in (0, 1)
            server.start()
            end = time.monotonic() + 20
            while not (await service.readiness()).ready:
                assert time.monotonic() < end
                await asyncio.sleep(0.2)
            service.close()

    with postgres_server() as server:
        asyncio.run(scenario(server))


def test_a_store_that_does_not_answer_is_not_ready(tmp_path, monkeypatch):
    """A server that hangs says nothing: neither did /readyz."""
    monkeypatch.setattr(calls, "PATIENCE", 0.2)

    async def scenario():
        with Silo.open(tmp_path / "s.db", PLAN) as silo:
            harden, hangs = silo.store.engine.harden, [True]

            def slow():
                time.sleep(1.0 if hangs else 0.0)
                harden()

            monkeypatch.setattr(silo.store.engine, "harden", slow)
            service = Service(silo)
            answer = await service.readiness()
            assert (answer.ready, answer.problem) == (False, "the store has not answered for 0.2 s")
            hangs.clear()
            await asyncio.sleep(1.0)
            assert (await service.readiness()).ready
            service.close()

    asyncio.run(scenario())


def without_jetstream(settings, path):
    del settings["jetstream"], settings["accounts"]["streams"]["jetstream"]


def without_streams(settings, path):
    shutil.rmtree(path / "jetstream")


@pytest.mark.parametrize("loss", [without_jetstream, without_streams])
def test_a_broker_without_its_streams_is_not_a_working_one(tmp_path, loss):
    """The connection stood, so everything was said to be well. (There is no analyzer here to answer the silo.)"""
    silo, alone = founded(tmp_path), (503, True, UNASKED)
    file = tmp_path / founding.BROKER_CONFIG
    whole = file.read_text()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(broker.BrokerProcess(file, tmp_path / "broker.log"))
        asyncio.run(founding.provision(tmp_path))
        process = served(silo)
        stack.callback(stop, process)
        wait_until(lambda: ready(silo) == alone)
        server.stop()
        settings = json.loads(whole)
        loss(settings, tmp_path)
        file.write_text(json.dumps(settings))
        server.start()
        code, connected, problem = wait_until(
            lambda: found if "JetStream" in ((found := ready(silo))[2] or "") else None
        )
        assert (code, connected) == (503, True)
        assert "the broker answers" in problem
        assert decide(silo).status_code == 200
        server.stop()
        file.write_text(whole)
        server.start()
        asyncio.run(founding.provision(tmp_path))
        wait_until(lambda: ready(silo) == alone)
