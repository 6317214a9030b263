"""A silo of a running federation is saved, killed, wiped and restored: real processes, a real broker."""

import json
import shutil
import subprocess
import sys
import threading
import time

import httpx
import pytest

from fedbandit._words import spans
from fedbandit.demo.processes import url
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo import book
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.status import status
from fedbandit.federation.store import SiloStore, SyncStore, read_engine
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.privacy.ledger import verify
from fedbandit.schedule import clock
from tests.federation.small import small_plan

PERIOD = 3.0
PLAN = small_plan(silos=2, rounds=400, trust="silo", cohort=1, schedule=clock(PERIOD), visits="private")
LONG = 150.0
AT_HOME = (ReleaseState.CLOSED, ReleaseState.DRAWN, ReleaseState.SEALED)  # nobody has seen such a release


def command(*arguments):
    return [sys.executable, "-c", "from fedbandit.cli.main import main; main()", *map(str, arguments)]


class Live:
    """Parties as processes."""

    def __init__(self, path):
        self.path, self.processes = path, {}
        homes = founding.local(path, PLAN, ["hospital-a", "hospital-b"], Timing(PERIOD, start=time.time()))
        self.homes = {home.settings.name: home for home in homes}

    def start(self, name, *options):
        home = self.homes[name]
        words = ("silo", "serve") if home.settings.role == "silo" else (home.settings.role, "run")
        with (self.path / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command(*words, home.path, *options), stdout=log, stderr=log)

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)


class Visitors:
    """People who come to a silo, one after the other; what was acknowledged is kept, with the time of the answer."""

    def __init__(self, home):
        self.acknowledged, self._home, self._stop = [], home, threading.Event()
        self._thread = threading.Thread(target=self._come, daemon=True)
        self._thread.start()

    def _come(self):
        headers = {"Authorization": f"Bearer {self._home.token()}"}
        with httpx.Client(base_url=url(self._home), headers=headers, timeout=30) as client:
            while not self._stop.is_set():
                try:
                    decision = client.post("/v1/decisions", json={"actions": [[1.0, 0.0], [0.0, 1.0]]}).json()["id"]
                    answer = client.post(f"/v1/decisions/{decision}/reward", json={"reward": 0.5})
                    if answer.status_code == 200:
                        self.acknowledged.append((decision, answer.json()["batch"]))
                except httpx.HTTPError:
                    pass
                time.sleep(0.02)

    def stop(self):
        self._stop.set()
        self._thread.join()


def wait(reached, what, seconds=LONG):
    end = time.monotonic() + seconds
    while not (found := reached()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


def healthy(home):
    try:
        return httpx.get(f"{url(home)}/healthz", timeout=20).status_code == 200
    except httpx.HTTPError:
        return False


def stored(home):
    engine = read_engine(home.store(PLAN.hash))
    try:
        store = SiloStore(engine)
        return store.releases(1), store.ledger()
    finally:
        engine.close()


def released(home):
    return sum(release.state is not ReleaseState.CLOSED for release in stored(home)[0])


@pytest.fixture
def live(tmp_path):
    running = Live(tmp_path / "federation")
    with broker.BrokerProcess(running.path / founding.BROKER_CONFIG, running.path / "broker.log"):
        import asyncio

        asyncio.run(founding.provision(running.path))
        for name in running.homes:
            running.start(name, *(["--catch-up"] if running.homes[name].settings.role == "silo" else []))
        try:
            yield running
        finally:
            running.stop()


def test_backup_wipe_restore(live, tmp_path):
    """Nothing is drawn twice, nothing acknowledged is lost but what came after the backup, and that is said."""
    home, file = live.homes["hospital-a"], tmp_path / "hospital-a.backup"
    wait(lambda: healthy(home) and status(home.path)["model"] >= 2, "no model")
    visitors = Visitors(home)
    wait(lambda: len(visitors.acknowledged) > 5, "nobody comes")
    first = released(home)
    wait(lambda: released(home) > first, "no release")
    before = list(visitors.acknowledged)
    done = subprocess.run(command("backup", home.path, file, "--json"), capture_output=True, text=True, check=True)
    saved = json.loads(done.stdout)
    after_backup = len(visitors.acknowledged)
    assert saved["store"]["ledger"] >= first + 1
    wait(lambda: released(home) >= saved["store"]["ledger"] + 2, "no more releases")
    wait(lambda: len(visitors.acknowledged) > after_backup + 5, "nobody comes any more")
    visitors.stop()
    live.processes["hospital-a"].kill()  # -9
    live.processes["hospital-a"].wait()
    releases, ledger = stored(home)
    shutil.rmtree(home.path)

    done = subprocess.run(command("restore", file, home.path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Given up: syncs" in done.stdout
    assert "are spent: epsilon" in done.stdout
    assert "Lost: rewards acknowledged after" in done.stdout
    home = live.homes["hospital-a"] = Home.load(home.path)
    given_up = [one.sync for one in stored(home)[0] if one.state is ReleaseState.GIVEN_UP]
    assert given_up
    assert given_up[0] == saved["store"]["syncs"]
    assert f"syncs {spans(given_up)}." in done.stdout
    # Whatever is in the backup is whole: each reward that was acknowledged before it is in a release or waits for it.
    counted = sum(one.users for one in releases if one.sync < saved["store"]["syncs"])
    assert len(before) <= counted + saved["store"]["waiting"] <= after_backup + 1

    live.start("hospital-a", "--catch-up")
    wait(lambda: healthy(home), "it does not serve")
    wait(lambda: released(home) > max(given_up) + 2, "it does not draw")
    headers = {"Authorization": f"Bearer {home.token()}"}
    with httpx.Client(base_url=url(home), headers=headers, timeout=30) as client:
        for number, (decision, _) in enumerate(visitors.acknowledged):
            answer = client.post(f"/v1/decisions/{decision}/reward", json={"reward": 0.5}).json()
            if number < len(before):
                assert answer["repeated"]  # acknowledged before the backup: known, and counts where it did
            else:
                assert answer["repeated"] or not answer["counted"]  # it may be in a release that others have
    again, chain = stored(home)
    left = {one.sync: one.drawn for one in releases if one.state not in AT_HOME}
    assert max(left) >= saved["store"]["syncs"]
    for one in again:  # what has left the lost store is not drawn again
        assert one.sync not in left or one.state is ReleaseState.GIVEN_UP or one.drawn == left[one.sync], left.keys()
    seen = saved["store"]["syncs"] + len(given_up)
    verify(book.entries(chain), witnessed=[(seen, ledger[seen - 1].hash)])
    assert book.spending(chain).terms[0].redrawn == ()
    assert {one.sync for one in again if one.state is ReleaseState.GIVEN_UP} == set(given_up)
    wait(lambda: included(live, home, max(given_up)), "no model with it")
    assert live.processes["analyzer"].poll() is None
    assert "has drawn a release twice" not in (live.path / "analyzer.log").read_text()
    assert status(live.homes["analyzer"].path)["problem"] is None


def included(live, home, after):
    """Whether the analyzer has counted the silo in, in a sync after this one."""
    engine = read_engine(live.homes["analyzer"].store(PLAN.hash))
    try:
        return any(home.settings.name in one.cohort for one in SyncStore(engine).all() if one.sync > after)
    finally:
        engine.close()
