"""`fedbandit silo serve` with several workers: real processes, one database, one release per tick."""

import asyncio
import signal
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from fedbandit.demo.processes import url
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.store import SiloStore, open_engine
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.schedule import every
from tests.federation.small import small_plan

PLAN = small_plan(silos=1, rounds=120, trust="silo", schedule=every(40))
ACTIONS = [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.torture
def test_two_workers_serve_one_silo(tmp_path, empty_postgres):
    address = f"nats://127.0.0.1:{broker.free_port()}"
    timing = Timing(deadline=30.0, settle=0.2, settle_last=3.0, start=time.time())
    founding.found(tmp_path, "trial", PLAN, address, timing)
    analyzer = Home.create(tmp_path / "analyzer", name="analyzer", role="analyzer")
    silo = Home.create(tmp_path / "silo", name="silo", role="silo", port=broker.free_port(), store=empty_postgres)
    agreement = founding.admit(tmp_path, [analyzer.public, silo.public])
    for home in (analyzer, silo):
        agreement.save(home.path / FEDERATION)
    commands = (["analyzer", "run", str(analyzer.path)], ["silo", "serve", str(silo.path), "--workers", "2"])
    with broker.BrokerProcess(tmp_path / founding.BROKER_CONFIG, tmp_path / "broker.log"):
        asyncio.run(founding.provision(tmp_path))
        processes = [
            subprocess.Popen([sys.executable, "-c", "from fedbandit.cli.main import main; main()", *command])
            for command in commands
        ]
        try:
            versions = asyncio.run(_visits(silo))
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(30) for process in processes]
    assert versions == {3}
    assert codes[0] == 0
    engine = open_engine(empty_postgres)
    releases = SiloStore(engine).releases(1)
    assert [release.state for release in releases] == ["included"] * 3
    assert sum(release.users for release in releases) == 120
    assert len(SiloStore(engine).ledger()) == 3
    engine.close()


async def _visits(silo):
    """120 users, then what model several connections see, as soon as they agree on the last one or after a while."""
    headers = {"Authorization": f"Bearer {silo.token()}"}
    async with httpx.AsyncClient(base_url=url(silo), headers=headers, timeout=20) as http:
        await _up(http)
        for _ in range(3):
            await asyncio.gather(*(_visit(http, number) for number in range(40)))
            await asyncio.sleep(3)
    for _ in range(200):  # the last batch stays open for late rewards, and workers look at the database in turns
        versions = set()
        for _ in range(8):  # a new connection may reach either worker
            async with httpx.AsyncClient(base_url=url(silo), headers=headers) as http:
                versions.add((await http.get("/v1/model")).json()["version"])
        if versions == {len(PLAN.times)}:
            break
        await asyncio.sleep(0.5)
    return versions


async def _up(http):
    for _ in range(600):
        try:
            if (await http.get("/readyz")).json()["connected"]:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError("no worker came up")


async def _visit(http, number):
    decision = (await http.post("/v1/decisions", json={"actions": ACTIONS})).json()
    reward = float(np.sin(number) ** 2)
    answer = await http.post(f"/v1/decisions/{decision['id']}/reward", json={"reward": reward})
    assert answer.status_code == 200, answer.text
