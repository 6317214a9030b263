"""Three nodes of a broker, as `federation init` configures them: one is killed, then a majority, then they are back."""

import asyncio
import json
import socket
import time

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.home import FEDERATION, Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from tests.federation.harness import Harness
from tests.federation.small import small_plan


def free_pair():
    """A port whose neighbour for the other nodes is free too."""
    for _ in range(100):
        port = broker.free_port()
        if port + broker.ROUTES < 65_536:
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port + broker.ROUTES))
                except OSError:
                    continue
            return port
    raise AssertionError("no ports")


def nodes():
    return ",".join(f"nats://127.0.0.1:{free_pair()}" for _ in range(3))


def test_every_node_has_a_configuration_of_its_own_with_absolute_paths(tmp_path):
    urls = "tls://n1.example.org:4222,tls://n2.example.org:4222,tls://n3.example.org:4222"
    agreement = founding.found(tmp_path, "trial", small_plan(), urls, Timing(start=time.time()), tmp_path / "srv")
    files = founding.configurations(tmp_path, agreement)
    settings = [json.loads(file.read_text()) for file in files]
    assert [one["server_name"] for one in settings] == ["trial-1", "trial-2", "trial-3"]
    assert {one["cluster"]["authorization"]["password"] for one in settings} == {
        settings[0]["cluster"]["authorization"]["password"]
    }
    for number, one in enumerate(settings):
        routes = one["cluster"]["routes"]
        assert len(routes) == 2
        assert not any(f"n{number + 1}.example.org" in route for route in routes)
        assert all(route.endswith(".example.org:6222") for route in routes)
        assert one["jetstream"]["store_dir"] == str(tmp_path / "srv" / "jetstream")
        assert one["cluster"]["tls"]["verify"]
        assert files[number].stat().st_mode & 0o077 == 0  # it has the nodes' secret
    changed = {**settings[1], "max_payload": 5}
    files[1].write_text(json.dumps(changed))
    analyzer = Home.create(tmp_path / "analyzer", name="analyzer", role="analyzer")
    founding.admit(tmp_path, [analyzer.public])
    again = [json.loads(file.read_text()) for file in files]
    assert again[1]["max_payload"] == 5
    assert all("party-analyzer" in one["accounts"] for one in again)
    assert [one["cluster"] for one in again] == [one["cluster"] for one in settings]


class Cluster(Harness):
    """The harness over three nodes."""

    def __init__(self, path, plan, deadline):
        super().__init__(path, plan, deadline)
        for file in founding.configurations(path, Agreement.load(path / FEDERATION)):
            file.unlink()
        urls = nodes()
        agreement = Agreement.load(path / FEDERATION)
        data = {**agreement.as_dict(), "broker": urls}
        agreement = Agreement.from_dict(data)
        founding.save(path, agreement)
        for home in self.homes.values():
            agreement.save(home.path / FEDERATION)
        files = founding.configurations(path, agreement)
        self.nodes = [broker.BrokerProcess(file, path / f"{file.parent.name}.log") for file in files]


def test_a_node_is_killed_in_the_middle_of_a_sync_then_a_majority_and_they_come_back(tmp_path):
    """secure-sum over three silos: a sync goes on without one node; without two it waits, and says so; then it goes on.
    No sync is skipped, none is done twice."""

    async def main():
        running = Cluster(tmp_path, small_plan(), 120.0)
        for node in running.nodes:
            node.start()
        try:
            await founding.provision(tmp_path)
            for name in running.homes:
                await running.start(name)
            await running.sync(0)
            await running.batch(1, absent=("silo-00",))  # one silo is at work, the other two have sent
            running.nodes[0].kill()
            await running.wait(2)
            assert running.outcome(1).cohort.sum() == 3
            running.nodes[1].kill()
            await running.batch(2)
            await running.until(lambda: any(link.trouble for link in running.links.values()))
            trouble = next(link.trouble for link in running.links.values() if link.trouble)
            assert "quorum" in trouble
            assert {running.running[name].silo.version for name in running.silos} == {2}
            running.nodes[1].start()
            await running.wait(3, limit=120)
            running.nodes[0].start()
            await running.sync(3)
            closed = running.running["analyzer"].store.all()
            assert [(one.sync, len(one.cohort)) for one in closed] == [(0, 3), (1, 3), (2, 3), (3, 3)]
            assert running.outcome(3).prefix[-1] != 0
        finally:
            for name in list(running.running):
                await running.stop(name)
            for node in running.nodes:
                node.stop()

    asyncio.run(main())
