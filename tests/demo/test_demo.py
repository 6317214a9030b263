"""The whole demo: real processes, HTTP, kill -9."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fedbandit.bandit.policies import UCB
from fedbandit.bandit.statistics import contributions
from fedbandit.demo import live
from fedbandit.demo.live import play_live
from fedbandit.demo.visitors import Visitors, simulated_regret
from fedbandit.federation.setup import founding
from fedbandit.schedule import clock
from fedbandit.simulator.kernels import Beliefs, Tally, policy_row
from fedbandit.simulator.population import Population
from tests.federation.small import small_plan

PLAN = small_plan(rounds=40, dim=3, schedule=clock(0.4, ratio=1.5), visits="private")
USERS = Visitors(3, 40, 3, 5, seed=1)


def test_users_are_the_papers_instance():
    assert USERS.means.min() >= 0
    assert USERS.means.max() <= 1
    assert np.allclose(np.linalg.norm(USERS.contexts, axis=-1), 1)
    best = USERS.means.argmax(axis=-1)
    assert USERS.regret(best)[-1] == pytest.approx(0)
    assert {USERS.reward(0, round_, 0) for round_ in range(40)} == {0.0, 1.0}


def test_the_simulator_plays_the_same_users():
    """Everybody follows one fixed model: regret and sums are those of the visitors, taken one by one."""
    users, bits, theta = Visitors(2, 30, 3, 8, seed=2), 20, np.array([0.9, -0.3, 0.1])
    beliefs = Beliefs(theta[None, None], np.eye(3)[None, None], np.zeros((1, 1)), np.array([policy_row(UCB)]))
    sums, regret, points = np.zeros((1, 1, 2, 9), dtype=np.int64), np.zeros((1, 1, 2)), np.zeros((0, 1, 2, 30, 4))
    tally = Tally(sums, regret, np.zeros(1), bits, np.array([-1]), points.astype(np.float32))
    Population(users.task, 2, (0,), 2).play(1, 30, beliefs, tally)
    actions = np.argmax(users.contexts @ theta, axis=-1)
    assert regret.sum() == pytest.approx(users.regret(actions)[-1], abs=1e-9)
    for silo in range(2):
        chosen = np.take_along_axis(users.contexts[silo], actions[silo][:, None, None], axis=1)[:, 0]
        rewards = [users.reward(silo, round_, int(action)) for round_, action in enumerate(actions[silo])]
        assert (sums[0, 0, silo] == contributions(chosen, rewards, bits).sum(axis=0)).all()


def test_draws_differ_in_noise_alone():
    users, private = Visitors(2, 400, 3, 8, seed=2), small_plan(silos=2, rounds=400, dim=3)
    free = private.changed(trust="none", privacy=None)
    one, many = (simulated_regret(users, {"private": private, "free": free}, draws) for draws in (1, 3))
    assert (one["free"].mean == many["free"].mean).all()
    assert (one["private"].mean != many["private"].mean).any()
    assert many["free"].least == many["free"].final == many["free"].most < many["private"].final
    assert one["private"].least == one["private"].most == one["private"].final
    assert many["private"].least < many["private"].final < many["private"].most


def killer(names, delay):
    """Kill these parties with kill -9, one after the other, while the users come."""

    def start(processes):
        def kill():
            for name in names:
                time.sleep(delay)
                os.kill(processes.pid(name), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()

    return start


def check(played, restarts):
    assert played.check.passed, played.check
    assert played.check.acknowledged == played.check.counted == 120
    assert played.check.difference == 0.0
    assert played.restarts == restarts
    assert [status["model"] for status in played.statuses] == [len(PLAN.times)] * 3
    assert all(status["epsilon_spent"] == pytest.approx(1.0) for status in played.statuses)


def test_kill_minus_nine_of_a_silo_the_mixer_and_the_broker_changes_no_count(tmp_path):
    started = []
    victims = ["silo-001", "mixer", "broker"]

    def start(processes):
        started.append(processes)
        killer(victims, 1.0)(processes)

    played = play_live(tmp_path / "f", PLAN, USERS, lambda done: None, start)
    check(played, restarts=3)
    for name in ("broker", "analyzer", "mixer", "silo-001", "silo-002", "silo-003"):
        with pytest.raises(ProcessLookupError):  # everything that was started is gone
            os.kill(started[0].pid(name), 0)


def test_a_machine_that_is_slower_than_it_was_gets_more_time(tmp_path, monkeypatch):
    """Silos that came up after several ticks drew nothing, and the demo gave up after two minutes."""
    founded, found = [], founding.local

    def noted(*args):
        founded.append(args)
        return found(*args)

    monkeypatch.setattr(founding, "local", noted)
    monkeypatch.setattr(live, "PATIENCE", (0.01, 6.0))
    check(play_live(tmp_path / "f", PLAN, USERS, lambda done: None), restarts=0)
    assert len(founded) == 2


@pytest.mark.torture
@pytest.mark.parametrize("victim", ["silo-001", "silo-003", "mixer", "analyzer", "broker"])
@pytest.mark.parametrize("delay", [0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 3.1])
def test_kill_minus_nine_at_any_moment(tmp_path, victim, delay):
    played = play_live(tmp_path / "f", PLAN, USERS, lambda done: None, killer([victim], delay))
    check(played, restarts=1)


def running_under(path):
    """Processes whose command line names this path."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace") if process.name.isdigit() else ""
        except OSError:  # it has ended meanwhile
            continue
        if str(path) in command:
            found.append(int(process.name))
    return found


# A destructor in which a signal arrives: what a handler raises there is lost, and the demo played on. Imports run such
# code too, and the first request to a silo imported a lot, at the moment when everything had just been started.
LOST = """
import os, signal
from http.client import HTTPConnection

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGHUP)

def request(*args, real=HTTPConnection.request, **options):
    Last()
    return real(*args, **options)

HTTPConnection.request = request
"""


@pytest.fixture
def demo(tmp_path):
    """Starts `fedbandit demo` after a few lines of code; returns the process, and the folder of its federation."""
    started = []

    def start(before=""):
        out = tmp_path / "demo"
        program = [sys.executable, "-c", f"{before}\nfrom fedbandit.cli.main import main; main()"]
        with (tmp_path / "errors.log").open("wb") as errors:
            started.append(subprocess.Popen([*program, "demo", "--silos", "2", "--out", str(out)], stderr=errors))
        return started[0], out / "federation"

    yield start
    started[0].kill()
    started[0].wait()


def until(demo, reached):
    end = time.monotonic() + 600  # starting takes minutes on a machine that does other work
    while not reached():
        assert demo.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "count"), [(signal.SIGTERM, 1), (signal.SIGHUP, 3), (signal.SIGTERM, 5), (signal.SIGHUP, 5)]
)
def test_told_to_end_the_demo_ends_what_it_has_started(demo, number, count):
    """Broker and parties went on, without anybody to stop them."""
    process, federation = demo()
    until(process, lambda: len(running_under(federation)) >= count)  # broker, analyzer, mixer, two silos
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert running_under(federation) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_while_users_come_and_again_while_it_stops(demo, tmp_path, number):
    process, federation = demo()
    until(process, lambda: "look at silo-001" in (tmp_path / "errors.log").read_text())
    while process.poll() is None and running_under(federation):
        process.send_signal(number)
        time.sleep(0.05)
    assert process.wait(60) == 128 + number
    assert running_under(federation) == []


def test_a_signal_in_a_destructor_ends_the_demo_too(demo):
    process, federation = demo(LOST)
    assert process.wait(600) == 128 + signal.SIGHUP  # 0 if it plays to its end
    assert running_under(federation) == []
