"""Parties as processes: half-open connections, a broker that is away, a database that goes, workers that die."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import httpx
import psycopg
import pytest
import uvicorn

from fedbandit._validate import ArgumentError
from fedbandit.demo.processes import url
from fedbandit.federation.http import app, patience
from fedbandit.federation.http.service import Service
from fedbandit.federation.membership import Membership
from fedbandit.federation.process import REFUSED, SERVER, bind, run, settle
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import open_engine
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.schedule import clock
from tests.federation.http.client import TOKEN
from tests.federation.small import small_plan

PLAN = small_plan(silos=1, rounds=1000, trust="silo", schedule=clock(3600.0), visits="private")
ACTIONS = [[1.0, 0.0], [0.0, 1.0]]


def founded(path, store=""):
    """A federation of one silo whose broker does not run."""
    timing = Timing(start=time.time())
    founding.found(path, "trial", PLAN, f"nats://127.0.0.1:{broker.free_port()}", timing)
    analyzer = Home.create(path / "analyzer", name="analyzer", role="analyzer")
    silo = Home.create(path / "silo", name="silo", role="silo", port=broker.free_port(), store=store)
    agreement = founding.admit(path, [analyzer.public, silo.public])
    for home in (analyzer, silo):
        agreement.save(home.path / FEDERATION)
    return silo


def served(silo, *options):
    command = [sys.executable, "-c", "from fedbandit.cli.main import main; main()", "silo", "serve", str(silo.path)]
    return subprocess.Popen([*command, *options])


def wait_until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = condition()
        except httpx.HTTPError:
            found = None
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


def decide(silo):
    headers = {"Authorization": f"Bearer {silo.token()}"}
    return httpx.post(f"{url(silo)}/v1/decisions", json={"actions": ACTIONS}, headers=headers, timeout=20)


def stop(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


def test_a_silo_without_a_broker_decides_and_says_that_it_does_not_tick(tmp_path):
    """It said that it was ready, and never ticked."""
    silo = founded(tmp_path)
    process = served(silo)
    try:
        ready = wait_until(lambda: httpx.get(f"{url(silo)}/readyz", timeout=5))
        assert ready.status_code == 503
        assert "broker" in ready.json()["problem"]
        assert decide(silo).status_code == 200
    finally:
        stop(process)


def test_a_killed_worker_is_replaced(tmp_path, empty_postgres):
    """kill -9 of one worker stopped all of them, with exit code 0."""
    silo = founded(tmp_path, empty_postgres)
    process = served(silo, "--workers", "2")
    try:
        wait_until(lambda: decide(silo).status_code == 200)
        workers = _spawned(process.pid)
        os.kill(workers[0], signal.SIGKILL)
        time.sleep(0.5)
        wait_until(lambda: len([pid for pid in _spawned(process.pid) if pid not in workers]) == 1)
        assert process.poll() is None
        assert decide(silo).status_code == 200
    finally:
        stop(process)


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _spawned(parent):
    children = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in children.stdout.split() if b"spawn_main" in cmdline(int(pid))]


def test_decisions_go_on_without_the_database_and_rewards_come_back_with_it(empty_postgres):
    """An outage of two seconds ended the silo. Here the server ends every connection."""
    with Silo.open(empty_postgres, PLAN, secret=b"s" * 32) as silo:
        decision = silo.decide(ACTIONS)
        with psycopg.connect(empty_postgres, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(psycopg.OperationalError):
            silo.reward(decision.id, 0.5)
        assert silo.decide(ACTIONS).action in (0, 1)
        assert silo.store.engine.lead()
        assert silo.reward(decision.id, 0.5).counted


def test_no_collection_looks_at_what_was_loaded_once_the_silo_served(tmp_path, monkeypatch):
    """One that looked at all of the compiler held up every request for 50 ms: one in a hundred met it."""
    loaded: list[list[int]] = []
    with Silo.open(tmp_path / "silo.db", PLAN) as silo:
        monkeypatch.setattr(silo, "quicken", lambda: loaded.extend([one] for one in range(100)))
        try:
            settle(silo)
            looked_at = {id(one) for one in gc.get_objects()}
            assert len(loaded) == 100
            assert not any(id(one) in looked_at for one in loaded)
        finally:
            gc.unfreeze()


def test_a_changed_federation_file_is_noticed(tmp_path):
    """Other keys of the mixer were accepted by a party that had begun."""
    silo = founded(tmp_path)
    agreement = silo.agreement()
    engine = open_engine(tmp_path / "s.db")
    bind(engine, agreement)
    bind(engine, replace(agreement, broker="nats://127.0.0.1:4444"))
    data = json.loads((silo.path / FEDERATION).read_text())
    data["parties"][0]["identity"] = data["parties"][1]["identity"]
    with pytest.raises(ValueError, match="have changed since"):
        bind(engine, type(agreement).from_dict(data))
    with pytest.raises(ValueError, match="have changed since"):
        bind(engine, replace(agreement, timing=replace(agreement.timing, deadline=1.0)))
    engine.close()


async def _answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\n\r\nGET / HT"])
def test_a_connection_that_says_nothing_more_is_closed(monkeypatch, said):
    """Three hundred half-open connections were kept for ever."""
    monkeypatch.setattr(patience, "HEADER_TIMEOUT", 0.3)
    port = broker.free_port()

    async def scenario():
        server = uvicorn.Server(uvicorn.Config(_answer, port=port, lifespan="off", log_level="error", **SERVER))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.02)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        await asyncio.wait_for(reader.read(), 5)  # until the server closes
        writer.close()
        server.should_exit = True
        await serving

    asyncio.run(scenario())


@pytest.mark.parametrize("said", [b"", b'{"actions": '])
def test_a_body_that_does_not_arrive_is_given_up(tmp_path, monkeypatch, said):
    """A caller that announced a body and sent none of it kept its connection for ever."""
    monkeypatch.setattr(app, "BODY_TIMEOUT", 0.3)
    port = broker.free_port()
    head = f"POST /v1/decisions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"

    async def scenario():
        with Silo.open(tmp_path / "s.db", PLAN) as silo:
            service = Service(silo)
            config = uvicorn.Config(
                app.create_app(service, TOKEN), port=port, lifespan="off", log_level="error", **SERVER
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.02)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode() + said)
            answer = await asyncio.wait_for(reader.read(), 5)  # until the server closes
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"must arrive within" in answer
            writer.close()
            server.should_exit = True
            await serving
            service.close()

    asyncio.run(scenario())


def test_a_caller_that_takes_no_answer_is_cut_off(monkeypatch):
    """A thousand requests in one go, and nothing read of the answers: the connection was kept for ever."""
    monkeypatch.setattr(patience, "ANSWER_TIMEOUT", 0.3)
    port = broker.free_port()

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 * 2**20)})

    async def scenario():
        server = uvicorn.Server(uvicorn.Config(answer, port=port, lifespan="off", log_level="error", **SERVER))
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.02)
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(10):
                while not server.server_state.connections:
                    await asyncio.sleep(0.01)
                while server.server_state.connections:
                    await asyncio.sleep(0.05)
        server.should_exit = True
        await serving

    asyncio.run(scenario())


@pytest.mark.parametrize("name, field", [("silo", "port"), ("analyzer", "health_port")])
def test_a_port_that_cannot_be_had_is_not_taken_for_another_plan(name, field, tmp_path):
    """The server ended the silo with exit code 3, after which nobody starts it again."""
    home = Home.load(founded(tmp_path).path.parent / name)
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = replace(home.settings, **{field: other.getsockname()[1]})
        settings.save(home.path / "party.json")
        with pytest.raises(ArgumentError, match=f"^{field} must be free: .*in use"):
            run(home.path)
    replace(settings, host="nowhere.invalid").save(home.path / "party.json")
    with pytest.raises(ArgumentError, match=r"nowhere\.invalid cannot be opened"):
        run(home.path)


@pytest.mark.parametrize("name", ["silo", "analyzer"])
def test_a_party_whose_plan_differs_ends_with_the_code_that_keeps_it_from_being_started_again(
    name, tmp_path, monkeypatch
):
    """It ended with code 1 and a traceback: what it had found out came wrapped in a group of exceptions."""

    async def mismatched(self):
        raise PlanMismatch("analyzer", "a" * 64, "b" * 64)

    monkeypatch.setattr(Membership, "run", mismatched)
    assert run(founded(tmp_path).path.parent / name) == REFUSED
