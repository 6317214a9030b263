"""People who come back: visits count at least so many syncs apart, whatever is killed, and by the public model
alone."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.audit.opting_out import served_apart
from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store import SiloStore
from fedbandit.federation.timing import Timing
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])
PERIOD = 60.0
BUDGET = Privacy(1.0, 0.1, participations=3, apart=2)


def plan_of(**changes):
    fields = {"schedule": clock(PERIOD), "rounds": 8, "visits": "private", "privacy": BUDGET, **changes}
    return small_plan(**fields)


def opened(store, now):
    return Silo.open(store, plan_of(), clock=now, timing=Timing(start=1000.0))


def tick(silo, now):
    now.pass_time(PERIOD)
    silo.tick()


def come(silo, user="a"):
    return silo.reward(silo.decide(ACTIONS, user=user).id, 0.5).counted


def test_visits_count_so_many_syncs_apart_and_up_to_the_cap(tmp_path):
    now = HandClock()
    with opened(tmp_path / "s.db", now) as silo:
        counted = []
        for _ in range(7):
            counted.append([come(silo), come(silo)])
            tick(silo, now)
    assert counted == [[sync in (0, 2, 4), False] for sync in range(7)]


def test_a_reward_that_comes_late_counts_by_the_batch_it_comes_in(tmp_path):
    now = HandClock()
    with opened(tmp_path / "s.db", now) as silo:
        early, late = (silo.decide(ACTIONS, user="a") for _ in range(2))
        tick(silo, now)
        assert silo.reward(early.id, 0.5).counted
        tick(silo, now)
        assert not silo.reward(late.id, 0.5).counted
        assert not silo.reward(late.id, 0.5).counted  # for good: it was judged
        tick(silo, now)
        assert come(silo)


def test_whoever_comes_too_soon_is_served_by_the_public_model(tmp_path):
    """Raw data of the batch never decide for somebody who will count again."""
    now = HandClock()
    with opened(tmp_path / "s.db", now) as silo:
        assert silo.plan.serves_uncounted == "public"
        assert silo._apart.way(silo.ids.person("a"), True).local is None
        come(silo)
        assert silo._apart.way(silo.ids.person("a"), True).local is None
    check = served_apart(plan_of())
    assert not check.failed


def test_the_audit_sees_a_silo_that_forgets_the_distance(monkeypatch):
    count = SiloStore.count
    monkeypatch.setattr(SiloStore, "count", lambda self, *given, apart, **more: count(self, *given, **more))
    assert "a batch contains data of those who do not count" in served_apart(plan_of()).failed


def test_places_that_are_counted_do_not_go_with_it():
    with pytest.raises(ArgumentError, match="apart must be 0 in a live federation unless a clock ticks"):
        check_live(small_plan(privacy=Privacy(1.0, 0.1, participations=2, apart=1)))


CHILD = """
import sys
from tests.federation.silo.test_coming_back import ACTIONS, opened
from tests.federation.clocks import HandClock
now = HandClock(float(sys.argv[2]))
silo = opened(sys.argv[1], now)
for number in range(100_000):
    print("told", silo.reward(silo.decide(ACTIONS, user="a").id, 0.5).counted, silo.ticker.open_sync, flush=True)
"""


def test_the_distance_holds_whatever_is_killed(tmp_path):
    """One person comes all the time; the silo is killed in the middle of it, ticks, and is killed again."""
    store, counted = tmp_path / "s.db", []
    for life in range(6):
        wall = 1000.0 + life * PERIOD
        with Silo.open(store, plan_of(), clock=HandClock(wall), timing=Timing(start=1000.0), catch_up=True) as silo:
            silo.tick()
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(store), str(wall)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            _, was_counted, sync = line.split()
            if was_counted == "True":
                counted.append(int(sync))
            if number > 3 + life:
                os.kill(child.pid, signal.SIGKILL)
                break
        child.communicate()
    assert counted == [0, 2, 4]
    with Silo.open(store, plan_of(), clock=HandClock(1000.0 + 6 * PERIOD), timing=Timing(start=1000.0)) as silo:
        users = [silo.store.release(1, sync) for sync in range(5)]
        assert [release.users for release in users if release is not None] == [1, 0, 1, 0, 1]
