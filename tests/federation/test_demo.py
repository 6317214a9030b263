"""The whole demo: real processes, HTTP, kill -9."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from small import small_plan

from fedbandit.federation.demo import draw_users, play_live, replay, replay_alone
from fedbandit.schedule import every, growing

PLAN = small_plan(rounds=40, dim=3, schedule=growing(1.5))
USERS = draw_users(3, 40, 3, 5, seed=1)


def test_users_are_the_papers_instance():
    means = USERS.means()
    assert means.min() >= 0
    assert means.max() <= 1
    assert np.allclose(np.linalg.norm(USERS.contexts, axis=-1), 1)
    best = means.argmax(axis=-1)
    assert USERS.regret(best)[-1] == pytest.approx(0)
    assert set(np.unique(USERS.rewards(best))) <= {0.0, 1.0}


def test_replays_learn_and_repeat():
    users = draw_users(2, 400, 3, 8, seed=2)
    free = small_plan(silos=2, rounds=400, dim=3, trust="none", privacy=None, schedule=every(10))
    together = users.regret(replay(users, free, 0))
    alone = users.regret(replay_alone(users, free.changed(silos=1), 0))
    chance = users.regret(np.zeros((2, 400), dtype=np.int64))
    assert together[-1] < alone[-1] < chance[-1]
    private = small_plan(silos=2, rounds=400, dim=3)
    assert (replay(users, private, 3) == replay(users, private, 3)).all()
    with pytest.raises(ValueError, match="one silo"):
        replay_alone(users, free, 0)


def killer(names, delay):
    """Kill these parties with kill -9, one after the other, while the users come."""

    def start(processes):
        def kill():
            for name in names:
                time.sleep(delay)
                os.kill(processes.pid(name), signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()

    return start


def check(live, restarts):
    assert live.check.passed, live.check
    assert live.check.acknowledged == live.check.counted == 120
    assert live.check.difference == 0.0
    assert live.restarts == restarts
    assert [status["model"] for status in live.statuses] == [len(PLAN.times)] * 3
    assert all(status["epsilon_spent"] == pytest.approx(1.0) for status in live.statuses)


def test_kill_minus_nine_of_a_silo_the_mixer_and_the_broker_changes_no_count(tmp_path):
    started = []
    victims = ["silo-001", "mixer", "broker"]

    def start(processes):
        started.append(processes)
        killer(victims, 1.0)(processes)

    live = play_live(tmp_path / "f", PLAN, USERS, lambda done: None, start)
    check(live, restarts=3)
    for name in ("broker", "analyzer", "mixer", "silo-001", "silo-002", "silo-003"):
        with pytest.raises(ProcessLookupError):  # everything that was started is gone
            os.kill(started[0].pid(name), 0)


@pytest.mark.torture
@pytest.mark.parametrize("victim", ["silo-001", "silo-003", "mixer", "analyzer", "broker"])
@pytest.mark.parametrize("delay", [0.05, 0.2, 0.5, 0.9, 1.4, 2.0, 3.1])
def test_kill_minus_nine_at_any_moment(tmp_path, victim, delay):
    live = play_live(tmp_path / "f", PLAN, USERS, lambda done: None, killer([victim], delay))
    check(live, restarts=1)
