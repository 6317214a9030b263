"""How long a release takes to draw, and that nobody sees it by when the release leaves.

    python -m pytest tests/federation/silo/test_release_time.py -m torture -n 0 -s

prints the table of docs/reliability.md.
"""

import time

import numpy as np
import pytest

from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import COUNTED_PACE, LONGEST_PACE, SHORTEST_PACE, Timing, pace
from fedbandit.schedule import clock
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

SIZES = (0, 1_000, 50_000, 200_000)
DIM, RUNS = 10, 3
DAILY = small_plan(dim=DIM, schedule=clock(86_400), rounds=40, visits="private")


def drawing_takes(path, people):
    """Seconds from the tick until the release is on disk, in the median."""
    hands, times = HandClock(), []
    contexts = np.zeros((1000, 2, DIM))
    contexts[:, 0, 0] = contexts[:, 1, 1] = 1.0
    with Silo.open(path, DAILY, clock=hands, timing=Timing(start=hands.wall)) as silo:
        for sync in range(RUNS):
            for _ in range(people // 1000):
                silo.reward_all([(decision.id, 0.5) for decision in silo.decide_many(contexts)])
            silo.ticker.prepare()
            hands.pass_time(86_400)
            began = time.perf_counter()
            assert silo.ticker.release() == [sync]
            times.append(time.perf_counter() - began)
            hands.pass_time(times[-1])
            assert silo.ticker.wait_to_send(sync) == pytest.approx(LONGEST_PACE - sum(times) % LONGEST_PACE)
            silo.ticker.tidy()
    return float(np.median(times))


@pytest.mark.torture
def test_the_largest_batch_is_drawn_within_one_pace(tmp_path):
    took = {people: drawing_takes(tmp_path / f"{people}.db", people) for people in SIZES}
    for people, seconds in took.items():
        print(f"{people:>8,} people: drawn after {1000 * seconds:7.1f} ms, leaves after {LONGEST_PACE:g} s")
    assert max(took.values()) < LONGEST_PACE


def test_the_pace_is_public_and_leaves_room_where_ticks_are_far_apart():
    assert pace(DAILY, Timing()) == LONGEST_PACE
    assert pace(DAILY.changed(schedule=clock(300)), Timing()) == 3.0
    assert pace(DAILY.changed(schedule=clock(1)), Timing()) == SHORTEST_PACE
    assert pace(DAILY, Timing(deadline=8.0)) == 2.0
    assert pace(small_plan(), Timing()) == COUNTED_PACE
