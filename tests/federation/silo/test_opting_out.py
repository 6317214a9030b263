"""Whoever opts out or is over the cap: nothing of theirs leaves, and they are served by all that the silo knows."""

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions, unpack
from fedbandit.federation import own_knowledge
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.own_knowledge import LocalModel, OwnKnowledge
from fedbandit.federation.silo import releasing
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED
from fedbandit.federation.store.silo_store import Wire
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.knowledge import OwnData, PublicModel, local_knowledge, nothing_public, public_model
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock, every
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
ALL_SILOS = np.ones(3, dtype=np.int64)


@pytest.fixture
def plan():
    return small_plan()


@pytest.fixture
def silo(tmp_path, plan):
    with Silo.open(tmp_path / "silo.db", plan) as opened:
        yield opened


def visit(silo, reward, *, actions=ACTIONS, **asked):
    """Somebody comes and is rewarded; returns the decision and the answer to the reward."""
    decision = silo.decide(actions, **asked)
    return decision, silo.reward(decision.id, reward)


def own_data(plan, rows, released=0):
    """What a silo knows of these features and rewards."""
    x, y = np.array([row for row, _ in rows]), np.array([reward for _, reward in rows])
    sums = contributions(x, y, plan.bits, plan.centre).sum(axis=0)
    squares = np.asarray(np.sum((y - plan.centre) ** 2))
    return OwnData(sums, squares, np.asarray(len(rows)), released + np.zeros(plan.protocol.width))


# -- nothing leaves --------------------------------------------------------------------------------------------


def test_nothing_of_whoever_opts_out_is_in_a_batch_and_no_place_is_taken(silo):
    for user in ("a", None):
        _, answer = visit(silo, 0.75, user=user, shared=False)
        assert not answer.counted
    assert silo.store.batch(1, 0) == []
    assert silo.store.term(1).seated == 0
    assert silo.tick() == []
    assert (silo.status()["opted_out"], silo.status()["over_cap"]) == (2, 0)


def test_whoever_is_over_the_cap_takes_no_place_either(silo):
    assert visit(silo, 0.5, user="a")[1].counted
    assert not visit(silo, 0.25, user="a")[1].counted
    assert silo.store.term(1).seated == 1
    assert [row.reward for row in silo.store.batch(1, 0)] == [0.5]
    assert (silo.status()["opted_out"], silo.status()["over_cap"]) == (0, 1)


def test_whoever_has_opted_out_stays_out_for_the_term(tmp_path, plan):
    """What they do later may depend on what they were served with, and that on everybody's raw data."""
    with Silo.open(tmp_path / "s.db", plan) as silo:
        before = silo.decide(ACTIONS, user="a")
        silo.decide(ACTIONS, user="a", shared=False)
        assert not silo.reward(before.id, 1.0).counted
        assert not visit(silo, 1.0, user="a")[1].counted
    with Silo.open(tmp_path / "s.db", plan) as silo:
        assert not visit(silo, 1.0, user="a")[1].counted
        assert silo.store.batch(1, 0) == []


def test_what_counted_before_stays_counted(silo):
    assert visit(silo, 1.0, user="a")[1].counted
    silo.decide(ACTIONS, user="a", shared=False)
    assert [row.reward for row in silo.store.batch(1, 0)] == [1.0]


def test_a_reward_that_is_kept_is_recognised_and_another_refused(silo):
    decision, first = visit(silo, 0.5, user="a", shared=False)
    again = silo.reward(decision.id, 0.5)
    assert (again.counted, again.repeated, again.batch) == (False, True, first.batch)
    with pytest.raises(ValueError, match="differs"):
        silo.reward(decision.id, 0.25)
    assert silo.status()["opted_out"] == 1


def test_only_rows_of_a_batch_are_released(plan):
    row: Any = (np.array([1.0, 0.0]).tobytes(), 0.5)
    with pytest.raises(TypeError, match="people who count"):
        releasing.draw(plan, plan.protocol.init(), [row], ExactNoise())


VISITS = st.lists(
    st.tuples(
        st.integers(0, 3),  # who
        st.booleans(),  # shares
        st.floats(0, 1),  # reward, in both worlds if it counts
        st.floats(0, 1),  # reward of the second world if it does not
        st.integers(0, 359),  # the direction of an action of the second world if it does not
        st.booleans(),  # a new model comes after it
    ),
    max_size=25,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(visits=VISITS)
def test_those_who_count_never_notice_the_data_of_the_others(tmp_path_factory, visits):
    """Two worlds that differ in what comes of those who do not count: batches, places, models and every decision for
    those who count are the same, and so is everything that is sent but for its noise."""
    seen = [_world(tmp_path_factory.mktemp("world"), visits, other) for other in (False, True)]
    assert seen[0] == seen[1]


def _world(folder, visits, other):
    plan = small_plan(schedule=clock(60.0), visits="private", rounds=40)
    now = HandClock()
    with Silo.open(folder / "silo.db", plan, clock=now) as silo:
        tick = 0
        seen: list[Any] = []
        away: set[int] = set()
        for who, shared, reward, changed, angle, learns in visits:
            counts = shared and who not in away
            turned = np.array([[np.cos(np.radians(angle)), np.sin(np.radians(angle))], [0.6, -0.8]])
            apart = not counts and other
            actions = np.concatenate([ACTIONS[:2], turned]) if apart else ACTIONS
            decision = silo.decide(actions, user=str(who), shared=shared)
            answer = silo.reward(decision.id, changed if apart else reward)
            assert answer.counted == counts
            away.add(who)  # the cap is one visit
            if counts:
                seen.append((decision.action, decision.model, answer))
            if learns and tick < len(plan.times):
                now.pass_time(60.0)
                batch = sorted(silo.store.batch(1, tick))
                seen.append((tick, batch, silo.tick(), silo.store.term(1).seated))
                release = silo.store.release(1, tick)
                assert release is not None
                seen.append((release.users, len(release.drawn or b"")))
                silo.learn(tick, Outcome(_prefix(plan, tick), ALL_SILOS), False)
                tick += 1
        return seen


def _prefix(plan, tick):
    """Some public sums."""
    rng = np.random.default_rng(tick)
    x = rng.normal(size=(50 * (tick + 1), 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return contributions(x, (x @ [0.3, 0.6] + 1) / 2, plan.bits).sum(axis=0) * 2.0**-plan.bits


def test_whoever_was_served_by_raw_data_counts_in_no_later_term_either(tmp_path):
    """One person of the first term, who is long gone, decides what everybody who opted out is recommended; what these
    people are like in the next term shows it. Were they counted then, one person would move as many rows."""
    seen = [_two_terms(tmp_path / f"{reward}.db", reward) for reward in (0.0, 1.0)]
    assert seen[0][0] != seen[1][0], "raw data must have decided, or this shows nothing"
    assert seen[0][1] == seen[1][1] == 1


def _two_terms(store, reward):
    """What is recommended to those who opt out or are over the cap after one person's reward; and how many rows of
    people who took that to heart are in the first batch of the next term, the one of somebody new included."""
    plan, now = small_plan(schedule=clock(60.0), visits="private", rounds=2), HandClock()
    others = [f"out {number}" for number in range(5)]
    with Silo.open(store, plan, clock=now) as silo:
        visit(silo, 0.5, user="again")
        visit(silo, reward, actions=ACTIONS[:1], user="gone")
        told = [visit(silo, 0.5, actions=ACTIONS[:2], user=user, shared=False)[0].action for user in others]
        told.append(visit(silo, 0.5, actions=ACTIONS[:2], user="again")[0].action)
        for _ in range(2):
            now.pass_time(60.0)
            silo.tick()
    later = plan.changed(alpha=0.02, uncounted="public")  # whatever serves people now
    with Silo.open(store, later, clock=now, new_term=True) as silo:
        for user, action in zip([*others, "again"], told, strict=True):
            assert not visit(silo, 1.0, actions=ACTIONS[action][None], user=user)[1].counted
        assert visit(silo, 1.0, user="new")[1].counted
        return told, len(silo.store.batch(2, 0))


def test_whoever_is_over_the_cap_is_written_down_before_raw_data_decide(silo, monkeypatch, plan):
    """Once: after that nothing is written, and no decision has to wait for the disk."""
    visit(silo, 0.5, user="a")
    monkeypatch.setattr(silo._seats, "counted", False)
    monkeypatch.setattr(silo._apart, "_counted", False)
    assert silo.deciding_writes("a")
    assert not silo.deciding_writes("b")
    assert not silo.deciding_writes(None)
    person = silo.ids.person("a")
    with monkeypatch.context() as broken:
        broken.setattr(silo.store, "opt_out", lambda *asked, **options: (_ for _ in ()).throw(OSError("no disk")))
        assert silo._apart.way(person, True) == (NOWHERE, None)  # by the public model
    assert silo._apart.way(person, True).local is not None
    assert silo.store.apart(1, cap=1) == ({person}, {person})
    assert not silo.deciding_writes("a")
    monkeypatch.setattr(silo.store, "opt_out", lambda *asked, **options: pytest.fail("written again"))
    silo.decide(ACTIONS, user="a")


def test_many_are_written_down_at_once(silo, monkeypatch):
    for user in "abc":
        visit(silo, 0.5, user=user)
    written, opt_out = list[int](), silo.store.opt_out

    def counting(term, people, **options):
        written.append(len(people))
        opt_out(term, people, **options)

    monkeypatch.setattr(silo.store, "opt_out", counting)
    silo.decide_many(np.stack([ACTIONS] * 5), ["a", "b", "c", "d", "e"], shared=[True, True, True, True, False])
    assert written == [4]


def test_whoever_was_never_served_by_raw_data_counts_in_the_next_term(tmp_path):
    plan, now = small_plan(schedule=clock(60.0), visits="private", rounds=1), HandClock()
    with Silo.open(tmp_path / "s.db", plan, clock=now) as silo:
        assert visit(silo, 0.5, user="once")[1].counted
        now.pass_time(60.0)
        silo.tick()
    public = plan.changed(uncounted="public")
    with Silo.open(tmp_path / "s.db", public, clock=now, new_term=True) as silo:
        assert visit(silo, 0.5, user="once")[1].counted
        assert not visit(silo, 0.5, user="once")[1].counted
        assert not visit(silo, 0.5, user="out", shared=False)[1].counted
        now.pass_time(60.0)
        silo.tick()
    with Silo.open(tmp_path / "s.db", public.changed(alpha=0.02), clock=now, new_term=True) as silo:
        assert visit(silo, 0.5, user="once")[1].counted
        assert visit(silo, 0.5, user="out")[1].counted


SEATED = [
    ("comes back before the reward", [("a", True, False), ("a", True, False)]),
    ("comes back after the reward", [("a", True, True), ("a", True, False)]),
    ("is never rewarded", [("a", True, False)]),
]


@pytest.mark.parametrize("first", [every(1), clock(60.0)], ids=str)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_calendar_that_counts_does_not_show_who_was_set_apart_in_an_earlier_term(tmp_path, first, together):
    """Whether somebody was, depends on when their reward came. So it must not decide when others' batches end."""
    ticks, counted = [], []
    for number, (_, visits) in enumerate(SEATED):
        now, store = HandClock(), tmp_path / f"{number}.db"
        plan = small_plan(schedule=first, rounds=1)
        with Silo.open(store, plan, clock=now) as silo:
            for user, shared, rewarded in visits:
                decision = silo.decide(ACTIONS, user=user, shared=shared)
                if rewarded:
                    silo.reward(decision.id, 1.0)
            silo.reward_many([])
            now.pass_time(60.0)
            assert silo.tick() == [0]
        with Silo.open(store, small_plan(schedule=every(2), rounds=4), clock=now, new_term=True) as silo:
            seen = []
            for user in "abcaad":
                decided = silo.decide_many(ACTIONS[None], [user]) if together else [silo.decide(ACTIONS, user=user)]
                if user == "a":
                    counted.append(silo.reward(decided[0].id, 1.0).counted)
                seen.append(silo.tick())
        ticks.append(seen)
    assert ticks == [[[], [0], [], [], [], [1]]] * 3
    assert counted == [True, False, False, False, False, False, True, False, False]


def test_whoever_was_set_apart_and_opts_out_takes_no_more_places(tmp_path):
    """Also after a restart: the flag is public under a calendar that counts, and said in this term."""
    first, second = small_plan(schedule=every(1), rounds=1), small_plan(schedule=every(1), rounds=4)
    with Silo.open(tmp_path / "s.db", first) as silo:
        silo.decide(ACTIONS, user="a", shared=False)
        silo.decide(ACTIONS, user="b")
        silo.tick()
    with Silo.open(tmp_path / "s.db", second, new_term=True) as silo:
        silo.decide(ACTIONS, user="a", shared=False)
        silo.decide(ACTIONS, user="a")
        assert silo.store.term(2).seated == 0
    with Silo.open(tmp_path / "s.db", second) as silo:
        assert silo.store.opted_out(2) == {silo.ids.person("a")}
        silo.decide(ACTIONS, user="a")
        silo.decide_many(np.stack([ACTIONS] * 2), ["a", "c"])
        assert silo.store.term(2).seated == 1


def test_on_a_clock_there_are_no_places_and_none_are_written_down(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan(schedule=clock(60.0), visits="private"), clock=HandClock()) as silo:
        visit(silo, 0.5, user="a")
        silo.reward_many([])
        silo.decide(ACTIONS, user="b", shared=False)
        a, b = (silo.ids.person(user) for user in "ab")
        assert [silo._apart.way(person, True).place for person in (a, b)] == [NOWHERE, NOWHERE]
        assert silo._apart.way(b, False).place == UNSHARED
        assert silo.store.opted_out(1) == set()


# -- everything the silo knows -------------------------------------------------------------------------------------


def expected(plan, rows, public, released=0):
    return linucb.decide(ACTIONS, local_knowledge(plan, own_data(plan, rows, released), public).model(plan))


def test_the_others_are_served_by_raw_data_and_the_public_model(tmp_path):
    """Decision by decision, as the library says, before and after a sync, and by whoever opens the silo next."""
    plan = small_plan(privacy=Privacy(20.0, 0.1))
    public, rng = nothing_public(plan), np.random.default_rng(3)
    rows: list[tuple[np.ndarray, float]] = []
    differs = 0
    with Silo.open(tmp_path / "s.db", plan) as silo:
        for number in range(60):
            shared = number % 2 == 0 and number < 10
            decision = silo.decide(ACTIONS, user=str(number), shared=shared)
            by_public = linucb.decide(ACTIONS, public.model)
            by_local = expected(plan, rows, public) if rows else by_public
            assert decision.action == (by_public if shared or not rows else by_local)
            differs += by_public != by_local
            reward = float(rng.random() < (0.9, 0.3, 0.5)[decision.action])
            assert silo.reward(decision.id, reward).counted == shared
            rows.append((ACTIONS[decision.action], reward))
        assert differs > 5
        (sync,) = silo.tick()
        released = sum(contributions(*rows[n], plan.bits) for n in range(0, 10, 2))
        public = public_model(plan, sync, _prefix(plan, 0) + released * 2.0**-plan.bits, plan.times[sync])
        silo.learn(sync, Outcome(public.prefix, ALL_SILOS), False)
    with Silo.open(tmp_path / "s.db", plan) as silo:
        weights = plan.protocol.kept_weights([0], 0)  # it missed the sync: its release is not in the sums
        known = expected(plan, rows, public, weights[0] * released)
        assert silo.decide(ACTIONS, shared=False).action == known


def test_own_part_of_the_public_sums_is_what_was_released(tmp_path):
    plan = small_plan(privacy=Privacy(20.0, 0.1))
    with Silo.open(tmp_path / "s.db", plan, keep_raw=True) as silo:
        decisions = silo.decide_many(np.stack([ACTIONS] * 5), [f"more {n}" for n in range(5)])
        silo.reward_all([(decision.id, n / 10) for n, decision in enumerate(decisions)])
        rows = [(ACTIONS[decision.action], n / 10) for n, decision in enumerate(decisions)]
        silo.tick()
        silo.store.seal(1, 0, Wire(b"sent", b"sealed"))
        silo.store.acknowledged(1, 0)
        prefix = _prefix(plan, 0) + own_data(plan, rows).sums * 2.0**-plan.bits
        silo.learn(0, Outcome(prefix, ALL_SILOS), True)
        model = silo._apart._own.model().model
        public = public_model(plan, 0, prefix, plan.times[0])
        known = local_knowledge(plan, own_data(plan, rows, own_data(plan, rows).sums), public).model(plan)
        for left, right in zip(model, known, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9)


@pytest.mark.parametrize("together", [1, 2, 5])
def test_rows_wait_until_enough_have_come_and_all_of_them_are_known(tmp_path, plan, monkeypatch, together):
    monkeypatch.setattr(own_knowledge, "NUMBERS", 3 * plan.protocol.width)
    rows: list[tuple[np.ndarray, float]] = []
    with Silo.open(tmp_path / "s.db", plan) as silo:
        for _ in range(10 // together):
            decisions = silo.decide_many(np.stack([ACTIONS] * together))
            rewards = [(len(rows) + n) / 10 for n in range(together)]
            silo.reward_all([(decision.id, reward) for decision, reward in zip(decisions, rewards, strict=True)])
            rows += [(ACTIONS[decision.action], reward) for decision, reward in zip(decisions, rewards, strict=True)]
            assert len(silo._apart._own._more[0]) < 3
        model = silo._apart._own.model().model
    known = local_knowledge(plan, own_data(plan, rows), nothing_public(plan)).model(plan)
    for left, right in zip(model, known, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9)


def test_a_plan_may_serve_everybody_by_the_public_model(tmp_path):
    plan = small_plan(uncounted="public")
    with Silo.open(tmp_path / "s.db", plan) as silo:
        first = silo.decide(ACTIONS).action
        for number in range(20):
            decision, answer = visit(silo, float(number % 2), user="a", shared=False)
            assert decision.action == first
            assert not answer.counted
        assert silo.status()["opted_out"] == 20
        assert all(part.value == b"" for part in silo.store.own(1)[0].values())


def test_many_at_once_are_served_like_one_by_one(silo):
    visit(silo, 0.5, user="a")
    for number in range(8):
        visit(silo, float(number % 2), user=f"out {number}", shared=False)
    contexts = np.stack([ACTIONS] * 3)
    for shared in (True, False):
        many = silo.decide_many(contexts, ["a", "b", "c"], shared=shared)
        places = [silo.ids.read(decision.id).place for decision in many]
        assert places[0] == (NOWHERE if shared else UNSHARED)
        assert (places[1] == UNSHARED) == (not shared)
        one = [silo.decide(ACTIONS, user=user, shared=shared).action for user in ("a", "b", "c")]
        assert [decision.action for decision in many] == one


@pytest.mark.parametrize("shared", ["false", "no", 1, 0, None, [], [False], np.array([True, False])])
def test_only_true_or_false_says_whether_somebody_shares(silo, shared):
    """What is merely taken for true would count somebody who opted out."""
    with pytest.raises(ArgumentError, match="shared must be true or false"):
        silo.decide(ACTIONS, user="p", shared=shared)
    with pytest.raises(ArgumentError, match="shared must be true or false"):
        silo.decide_many(np.stack([ACTIONS] * 3), ["a", "b", "c"], shared=shared)
    with pytest.raises(ArgumentError, match="shared must be true or false"):
        silo.decide_many(np.stack([ACTIONS] * 2), ["a", "b"], shared=[True, "false"])


@pytest.mark.parametrize("flags", [[True, False, True], np.array([True, False, True])])
def test_each_of_many_says_whether_they_share(silo, flags):
    made = silo.decide_many(np.stack([ACTIONS] * 3), ["a", "b", "c"], shared=flags)
    counted = [one.counted for one in silo.reward_all([(one.id, 1.0) for one in made])]
    assert counted == [True, False, True]
    assert len(silo.store.batch(1, 0)) == 2


def test_without_a_store_whoever_opts_out_is_served_by_the_public_model(silo, monkeypatch, plan):
    """Nobody could tell later that they were not."""
    monkeypatch.setattr(silo.store, "opt_out", lambda *asked, **options: (_ for _ in ()).throw(OSError("no disk")))
    monkeypatch.setattr(silo._apart._own, "model", lambda: pytest.fail("served by raw data"))
    decision = silo.decide(ACTIONS, user="new", shared=False)
    assert decision.action == linucb.decide(ACTIONS, nothing_public(plan).model)
    assert silo.ids.read(decision.id).place == UNSHARED


@pytest.mark.parametrize("uncounted", ["local", "public"])
@pytest.mark.parametrize("schedule", [every(5), clock(60.0)], ids=["counted", "clock"])
def test_whoever_opts_out_while_the_store_does_not_work_is_out_once_it_does(tmp_path, monkeypatch, schedule, uncounted):
    """They were told so. Nothing was written, and their next visit counted, as did a reward on its way."""
    budget = Privacy(1.0, 0.1, participations=3)
    plan = small_plan(schedule=schedule, privacy=budget, visits="public", uncounted=uncounted)
    with Silo.open(tmp_path / "s.db", plan, clock=HandClock()) as silo:
        before, person = silo.decide(ACTIONS, user="out"), silo.ids.person("out")
        with monkeypatch.context() as broken:
            broken.setattr(silo.store, "opt_out", lambda *asked, **options: (_ for _ in ()).throw(OSError("no disk")))
            silo.decide(ACTIONS, user="out", shared=False)
            assert silo.deciding_writes("out")
            again = silo.decide(ACTIONS, user="out")  # "whatever later requests say"
            made = silo.decide_many(np.stack([ACTIONS] * 2), ["out", "in"])
            with pytest.raises(OSError, match="no disk"):
                silo.reward(before.id, 0.5)
            assert silo.unwritten
        told = silo.reward_all([(one.id, 0.5) for one in (before, again, *made)])
        assert [one.counted for one in told] == [False, False, False, True]
        assert silo.store.apart(1, cap=3)[0] == {person}
        assert not silo.unwritten
        assert silo.store.term(1).seated == (0 if silo.plan.schedule == clock(60.0) else 2)  # `before` and "in"
    with Silo.open(tmp_path / "s.db", plan, clock=HandClock()) as silo:
        assert not visit(silo, 0.5, user="out")[1].counted


def test_who_has_opted_out_is_written_though_nobody_is_rewarded(silo, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(silo.store, "opt_out", lambda *asked, **options: (_ for _ in ()).throw(OSError("no disk")))
        silo.decide(ACTIONS, user="out", shared=False)
        with pytest.raises(OSError, match="no disk"):
            silo.flush()
    silo.flush()
    assert silo.store.apart(1, cap=1)[0] == {silo.ids.person("out")}


def test_the_two_models_are_no_types_of_each_other():
    assert not issubclass(LocalModel, PublicModel)
    assert not issubclass(PublicModel, LocalModel)


# -- killed --------------------------------------------------------------------------------------------------------

CHILD = """
import sys
import numpy as np
from fedbandit.federation.silo.serving import Silo
from tests.federation.small import small_plan
with Silo.open(sys.argv[1], small_plan()) as silo:
    number = int(sys.argv[2])
    while True:
        number += 1
        decision = silo.decide(np.array([[0.6, 0.8]]), user=str(number), shared=False)
        print("asks", decision.id, (number % 64) / 64, flush=True)
        silo.reward(decision.id, (number % 64) / 64)
        print("told", decision.id, flush=True)
"""


def test_what_stays_is_summed_exactly_once_whatever_is_killed(tmp_path, plan):
    """kill -9 at any moment: what was acknowledged is in the sums once, and what is said again is not added again."""
    store = tmp_path / "s.db"
    asked: dict[str, float] = {}
    told: set[str] = set()
    for life in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(store), str(1000 * life)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for count, line in enumerate(child.stdout):
            word, decision, *reward = line.split()
            if word == "asks":
                asked[decision] = float(reward[0])
            else:
                told.add(decision)
            if count > 20 + life:
                os.kill(child.pid, signal.SIGKILL)
                break
        rest = child.stdout.read().split("\n")
        for line in rest:
            if line.startswith("asks") and len(line.split()) == 3:
                asked[line.split()[1]] = float(line.split()[2])
        child.wait()
        with Silo.open(store, plan) as silo:
            known = silo.store.own(1)[0][UNSHARED]
            assert len(told) <= known.visits <= len(asked)
            answers = [silo.reward(decision, reward) for decision, reward in asked.items()]
            assert all(answer.repeated for answer, decision in zip(answers, asked, strict=True) if decision in told)
            told |= set(asked)
            rows = [(np.array([0.6, 0.8]), reward) for reward in asked.values()]
            known = silo.store.own(1)[0][UNSHARED]
            assert known.visits == len(asked)
            np.testing.assert_array_equal(known.sums, own_data(plan, rows).sums)
            assert silo.store.batch(1, 0) == []


def test_what_a_silo_knows_for_them_is_forgotten_as_the_public_sums_are(tmp_path):
    """Features have norm 1, so the trace of what is known is the weight of the visits behind it."""
    forget, now = 0.5, HandClock()
    plan = small_plan(schedule=clock(60.0), visits="private", rounds=6, forget=forget)
    nothing = np.zeros(plan.protocol.width)
    with Silo.open(tmp_path / "s.db", plan, clock=now) as silo:
        for sync in range(4):
            for number in range(2):
                visit(silo, 0.5, user=f"out {sync} {number}", shared=False)
            for number in range(3):
                visit(silo, 0.5, user=f"in {sync} {number}")
            visit(silo, 0.5, user=f"in {sync} 0")  # over the cap
            now.pass_time(60.0)
            silo.tick()
            silo.store.seal(1, sync, Wire(b"sent", b"sealed"))
            silo.store.acknowledged(1, sync)
            silo.learn(sync, Outcome(nothing, ALL_SILOS), included=True)
        parts = silo.store.own(1)[0]
        assert sorted(parts) == [-9, -8, -7, -6, -5, -4, -3, -2, 0, 1, 2, 3]
        assert silo.store.kept(1) == {NOWHERE: 4, UNSHARED: 8}
        own = silo._apart._own
        weights = forget ** np.arange(3.0, -1.0, -1.0)
        assert own._seen.visits == pytest.approx(6 * weights.sum())
        for sums, visits in ((own._seen.sums, 6), (own._released, 3)):
            covariance = unpack(sums * 2.0**-plan.bits, plan.dim)[1]
            assert np.trace(covariance) == pytest.approx(visits * weights.sum(), rel=1e-4)
        at_once = OwnKnowledge(silo.store, plan, 1, silo.public)  # has not taken in one batch after the other
        at_once.refresh(silo.public)
        assert at_once._seen == own._seen
        np.testing.assert_array_equal(at_once._released, own._released)
        visit(silo, 0.5, user="new", shared=False)
        own.model()
        assert own._seen.visits == pytest.approx(6 * weights.sum() + 1)
