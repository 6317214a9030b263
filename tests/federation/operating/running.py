"""A federation of processes that a test stops, freezes and spoils, and looks at as a person on call would."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import httpx

from fedbandit.demo.processes import seconds_to_start
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.schedule import clock
from tests.federation.small import small_plan

SOON = 10.0  # seconds in which a fault must be named
START = 180.0  # seconds in which a party must be up, on a busy machine
LOOK = 0.1  # seconds between looks
DEADLINE, LONGEST = 1.5, 15.0  # seconds, at least and at most: on a busy machine releases take longer
PERIODS = 2.0  # deadlines between two ticks: a sync is over, one way or the other, before the next tick
PROGRAM = [sys.executable, "-c", "from fedbandit.cli.main import main; main()"]
VERBS = {"silo": "serve", "mixer": "run", "analyzer": "run"}


def changed(home, **settings):
    """The party with other settings."""
    file = home.path / "party.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return Home.load(home.path)


def until(holds, seconds=SOON):
    """What comes to hold, as soon as it does. A machine that is busy with other work gets as many looks as a quiet one
    has in that time."""
    end, looks = time.monotonic() + seconds, seconds / LOOK
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if found := holds():
                return found
        looks -= 1
        assert time.monotonic() < end or looks > 0, f"it did not come to hold within {seconds:g} s"
        time.sleep(LOOK)


def get(home, path):
    scheme = "https" if home.settings.tls_certificate else "http"
    shown = {"Authorization": f"Bearer {home.token()}"}
    return httpx.get(f"{scheme}://127.0.0.1:{home.served_on}{path}", headers=shown, timeout=20, verify=False)


def metrics(home):
    """The party's metrics, as Prometheus reads them."""
    lines = get(home, "/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def problems(home):
    """What the party says is wrong, by kind."""
    return get(home, "/readyz").json()["problems"]


def has_problem(home, kind):
    """Whether the party names the problem, in words and as a metric."""
    return kind in problems(home) and metrics(home)[f'fedbandit_problem{{kind="{kind}"}}'] == 1


def doctor(path):
    """What `fedbandit doctor` says: its exit code, and the levels of its findings."""
    done = subprocess.run([*PROGRAM, "doctor", str(path), "--json"], capture_output=True, text=True, timeout=START)
    findings = json.loads(done.stdout)["findings"]
    return done.returncode, {(one["check"], one["level"]): one for one in findings}


def decides(silo):
    shown = {"Authorization": f"Bearer {silo.token()}"}
    body = {"actions": [[1.0, 0.0], [0.0, 1.0]]}
    url = f"http://127.0.0.1:{silo.settings.port}/v1/decisions"
    return httpx.post(url, json=body, headers=shown, timeout=20).status_code == 200


class Running:
    """The processes. Nobody starts one again."""

    def __init__(self, path, silos=("a", "b"), **changes):
        each = seconds_to_start()
        self.deadline = min(LONGEST, max(DEADLINE, each))
        self.soon = SOON * self.deadline / DEADLINE  # the same for faults that only a sync shows
        period = PERIODS * self.deadline
        plan = small_plan(silos=len(silos), rounds=2000, schedule=clock(period), visits="private", **changes)
        self.path, self.plan = path, plan
        lead = 10 + 3 * (len(silos) + 2) * each  # nobody has overdue ticks when everybody is up
        timing = Timing(self.deadline, start=time.time() + lead)
        homes = founding.local(path, plan, list(silos), timing)
        watched = [home if home.settings.role == "silo" else self._watched(home) for home in homes]
        self.homes = {home.settings.name: home for home in watched}
        self.broker = broker.BrokerProcess(path / founding.BROKER_CONFIG, path / "broker.log")
        self.processes = {}

    def start(self, name, *options, program=None, vouched=True):
        """Start a party. A silo that was down for a few of these short periods has more ticks overdue than it draws
        without a word: somebody vouches for the clock."""
        home = self.homes[name]
        role = home.settings.role
        vouching = ["--catch-up"] if vouched and role == "silo" else []
        command = program or [*PROGRAM, role, VERBS[role], str(home.path), *options, *vouching]
        with (self.path / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        return self.processes[name]

    def up(self, name):
        return until(lambda: get(self.homes[name], "/healthz").status_code == 200, START)

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def stop(self, name):
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def __enter__(self):
        import asyncio

        self.broker.start()
        asyncio.run(founding.provision(self.path))
        return self

    def __exit__(self, *error):
        for name in list(self.processes):
            self.stop(name)
        self.broker.stop()

    def everybody(self):
        for name in self.homes:
            self.start(name)
        for name in self.homes:
            self.up(name)
        for home in self.homes.values():
            until(lambda home=home: get(home, "/readyz").status_code == 200, START)
        return self

    @staticmethod
    def _watched(home):
        home.make_token()
        return changed(home, health_port=broker.free_port())
