"""Several workers of one silo on one PostgreSQL database."""

import threading

import numpy as np
import pytest

from fedbandit.federation.silo.serving import Silo
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0]])
SECRET = b"s" * 32
PLAN = small_plan(rounds=400, schedule=every(100), privacy=Privacy(1.0, 0.1, participations=3))


@pytest.fixture
def workers(empty_postgres):
    opened = [Silo.open(empty_postgres, PLAN, secret=SECRET) for _ in range(3)]
    yield opened
    for silo in opened:
        silo.close()


def test_a_secret_must_be_shared(empty_postgres):
    with pytest.raises(ValueError, match="secret must be given"):
        Silo.open(empty_postgres, PLAN)


def test_any_worker_takes_the_reward_of_anothers_decision(workers):
    first, second, third = workers
    decision = first.decide(ACTIONS)
    assert second.reward(decision.id, 0.5).counted
    assert third.reward(decision.id, 0.5).repeated
    assert [silo.term.number for silo in workers] == [1, 1, 1]


def test_together_they_count_every_decision_reward_and_person_once(workers):
    def work(silo, name):
        for number in range(30):
            decision = silo.decide(ACTIONS, user=f"person {number}")  # the same people at all workers
            other = silo.decide(ACTIONS, user=f"{name} {number}")
            silo.reward_all([(decision.id, 0.5), (other.id, 1.0)])

    threads = [threading.Thread(target=work, args=(silo, n)) for n, silo in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for silo in workers:
        silo.flush()
    term = workers[0].store.term(1)
    assert term.decisions == 180
    assert len(workers[0].store.batch(1, 0)) == 180  # three visits of 30 people are within the cap, 90 of others
    decision = workers[0].decide(ACTIONS, user="person 7")
    assert not workers[1].reward(decision.id, 0.5).counted


def test_one_worker_ticks_for_all(workers):
    leader, *others = workers
    assert leader.store.engine.lead()
    for silo in workers:
        decisions = [silo.decide(ACTIONS) for _ in range(40)]
        silo.reward_all([(decision.id, 0.5) for decision in decisions])
    assert leader.tick() == [0]
    assert leader.store.releases(1)[0].users == 120
    assert others[0].reward(others[1].decide(ACTIONS).id, 0.5).batch == 1
    assert others[0].tick() == []


def test_two_workers_that_both_believe_to_lead_draw_one_release(workers):
    for _ in range(100):
        workers[0].decide(ACTIONS)
    workers[0].flush()
    found = []

    threads = [threading.Thread(target=lambda silo=silo: found.append(silo.tick())) for silo in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[], [], [0]]
    assert len(workers[0].store.ledger()) == 1
    assert len(workers[0].store.releases(1)) == 1


def test_a_model_reaches_all_workers(workers):
    from fedbandit.bandit.statistics import width
    from fedbandit.federation.wire.parcels import Outcome

    leader, *others = workers
    leader.learn(0, Outcome(np.zeros(width(2)), np.ones(3, dtype=np.int64)), True)
    for silo in others:
        assert silo.version == 0
        silo.refresh()
        assert silo.version == 1
