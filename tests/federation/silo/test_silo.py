"""A silo in one process: decisions, rewards, ticks, terms."""

import errno
import json

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions, width
from fedbandit.federation.silo.book import entries, spending
from fedbandit.federation.silo.decisions import tickets
from fedbandit.federation.silo.decisions.tickets import UnknownDecision
from fedbandit.federation.silo.serving import RewardConflict, Silo, TermEnded
from fedbandit.federation.silo.ticker import SumsFull
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import ONLY_SUMS
from fedbandit.schedule import adaptive, clock
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])


@pytest.fixture
def plan():
    return small_plan()


@pytest.fixture
def silo(tmp_path, plan):
    with Silo.open(tmp_path / "silo.db", plan) as opened:
        yield opened


def serve(silo, people, reward=0.5):
    """So many people come, each rewarded; returns their decisions."""
    decisions = [silo.decide(ACTIONS, user=f"{silo.store.term(1).decisions}-{n}") for n in range(people)]
    silo.reward_all([(decision.id, reward) for decision in decisions])
    return decisions


# -- decisions -------------------------------------------------------------------------------------------------


def test_it_decides_as_the_library_does(silo, plan):
    model = plan.fit(np.zeros(plan.protocol.width), 0).model
    decision = silo.decide(ACTIONS)
    assert decision.action == linucb.decide(ACTIONS, model)
    assert decision.model == 0


def test_a_model_that_another_thread_fits_meanwhile_is_not_taken_for_this_one(silo, plan, monkeypatch):
    """Messages are checked in one thread while another one reads what other workers have stored."""
    prefix = np.zeros(plan.protocol.width)

    def interrupted(silo, name, value):
        object.__setattr__(silo, name, value)
        if name == "_fitted" and value[1].sync == 0:
            silo.fitted(1, prefix)

    monkeypatch.setattr(Silo, "__setattr__", interrupted)
    assert silo.fitted(0, prefix).sync == 0
    assert silo.fitted(1, prefix).sync == 1


def test_after_a_sync_it_decides_from_the_new_model(silo, plan):
    prefix = np.zeros(width(2))
    prefix[:2] = [-500.0, 900.0]
    prefix[[2, 4]] = 1000.0
    silo.learn(0, Outcome(prefix, np.ones(3, dtype=np.int64)), True)
    decision = silo.decide(ACTIONS)
    assert decision.model == 1
    assert decision.action == linucb.decide(ACTIONS, plan.fit(prefix, plan.times[0]).model) == 1


def test_a_subset_restricts_the_choice_and_ties_go_to_the_lowest(silo):
    everything = silo.decide(ACTIONS).action
    for allowed in ([2], [1, 2], [2, 1, 1]):
        assert silo.decide(ACTIONS, allowed=allowed).action == min(set(allowed) - {everything} or {everything})
    assert silo.decide(np.array([[1.0, 0.0]] * 3), allowed=[2, 1]).action == 1


def test_registered_sets_decide_alike_and_survive(tmp_path, plan):
    with Silo.open(tmp_path / "s.db", plan) as silo:
        silo.register("drugs", ACTIONS)
        assert silo.decide("drugs").action == silo.decide(ACTIONS).action
        assert silo.decide("drugs", allowed=[1]).action == 1
        with pytest.raises(LookupError, match="registered set"):
            silo.decide("others")
        with pytest.raises(ValueError, match="other features"):
            silo.register("drugs", ACTIONS[::-1])
    with Silo.open(tmp_path / "s.db", plan) as silo:
        assert silo.action_sets() == {"drugs": 3}
        assert silo.decide("drugs", allowed=[2]).action == 2


def test_many_decisions_at_once_are_the_same_decisions(silo):
    contexts = np.stack([ACTIONS, ACTIONS[::-1]])
    many = silo.decide_many(contexts, ["a", "b"])
    assert [d.action for d in many] == [silo.decide(one).action for one in contexts]
    with pytest.raises(ValueError, match="users must be as many"):
        silo.decide_many(contexts, ["a"])
    with pytest.raises(ValueError, match="norm at most 1"):
        silo.decide_many(contexts * 2)


@pytest.mark.parametrize("actions, complaint", [
    ([[1.0, 0.0, 0.0]], "shape"), ([], "shape"), ([[float("nan"), 0.0]], "finite"), ([[float("inf"), 0.0]], "finite"),
    ([[2.0, 0.0]], "norm"), ([["x", 0.0]], "numbers"), (np.zeros((100_001, 2)), "100000"), ([[1e9, 0.0]], "norm"),
])  # fmt: skip
def test_bad_actions_are_refused_by_name(silo, actions, complaint):
    with pytest.raises(ValueError, match=f"actions.*{complaint}|actions.*between"):
        silo.decide(actions)


@pytest.mark.parametrize("allowed", [[], [3], [-1], [0.5], [True]])
def test_bad_subsets_are_refused(silo, allowed):
    with pytest.raises(ValueError, match="allowed must"):
        silo.decide(ACTIONS, allowed=allowed)


# -- rewards ---------------------------------------------------------------------------------------------------


def test_the_same_reward_again_is_acknowledged_and_another_refused(silo):
    decision = silo.decide(ACTIONS)
    assert silo.reward(decision.id, 0.25) == (True, 0, False)
    assert silo.reward(decision.id, 0.25) == (True, 0, True)
    with pytest.raises(RewardConflict):
        silo.reward(decision.id, 0.5)


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf"), "1", None, True])
def test_rewards_outside_the_unit_interval_are_refused(silo, reward):
    decision = silo.decide(ACTIONS)
    with pytest.raises(ValueError, match="reward must lie in"):
        silo.reward(decision.id, reward)


def test_an_id_of_this_silo_only(silo, tmp_path, plan):
    decision = silo.decide(ACTIONS)
    altered = ("A" if decision.id[20] != "A" else "B").join([decision.id[:20], decision.id[21:]])
    for unknown in ("", "nonsense", "ü", altered, decision.id[:-4], decision.id + "AAAA"):
        with pytest.raises(UnknownDecision):
            silo.reward(unknown, 0.5)
    with Silo.open(tmp_path / "other.db", plan) as other, pytest.raises(UnknownDecision):
        other.reward(decision.id, 0.5)


def test_an_id_tells_nothing(silo):
    secret = np.array([[0.123456789, 0.2]])
    first, second = silo.decide(secret, user="alice").id, silo.decide(secret, user="alice").id
    assert first != second
    import base64

    raw = base64.urlsafe_b64decode(first)
    assert secret.tobytes()[:8] not in raw
    assert b"alice" not in raw


def test_no_nonce_is_used_twice_by_a_silo_that_was_opened_again(tmp_path, plan):
    nonces = []
    for _ in range(2):
        with Silo.open(tmp_path / "silo.db", plan) as silo:
            ids = [silo.decide(ACTIONS).id, *(d.id for d in silo.decide_many(np.stack([ACTIONS] * 5)))]
            nonces += [silo.ids.read(one).nonce for one in ids]
    assert len(set(nonces)) == 12


def test_a_person_counts_once_by_default_and_is_kept_as_a_hash(silo, tmp_path):
    first, second = silo.decide(ACTIONS, user="alice"), silo.decide(ACTIONS, user="alice")
    assert silo.reward(first.id, 1.0).counted
    assert not silo.reward(second.id, 1.0).counted
    assert silo.reward(silo.decide(ACTIONS, user="bob").id, 1.0).counted
    assert len(silo.store.batch(1, 0)) == 2
    silo.store.engine.forget()
    assert b"alice" not in (tmp_path / "silo.db").read_bytes()


def test_a_larger_cap(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan(privacy=Privacy(1.0, 0.1, participations=2))) as silo:
        counted = [silo.reward(silo.decide(ACTIONS, user="alice").id, 1.0).counted for _ in range(3)]
    assert counted == [True, True, False]


# -- ticks and releases ----------------------------------------------------------------------------------------


def test_a_tick_comes_after_so_many_decisions_whatever_their_rewards(silo):
    for _ in range(4):
        silo.decide(ACTIONS)
    assert silo.tick() == []
    silo.decide(ACTIONS)
    assert silo.ticker.due()
    assert silo.tick() == [0]
    assert silo.store.releases(1)[0].users == 0


def test_the_release_is_the_encoded_batch_plus_noise(silo, plan):
    decisions = serve(silo, 5)
    assert silo.tick() == [0]
    x = ACTIONS[[decision.action for decision in decisions]]
    batch = contributions(x, np.full(5, 0.5), plan.bits).sum(axis=0)
    state = messages.decode_stream(silo.store.encoder(1))
    assert state.done == 1
    assert (state.memory[0] == batch).all()
    mask, rest = messages.decode(silo.store.releases(1)[0].drawn)
    _, encoded = plan.encoder.step(plan.encoder.init((5,)), batch)
    noise = (mask + rest).view(np.int64) - encoded
    limits = 7 * plan.protocol.drawn_scales
    assert (np.abs(noise) < limits).all()
    assert noise.all()


def test_an_empty_batch_is_released_like_any_other(silo):
    for _ in range(5):
        silo.decide(ACTIONS)
    serve(silo, 5)
    assert silo.tick() == [0, 1]
    first, second = silo.store.releases(1)
    assert len(first.drawn) == len(second.drawn)
    assert len(silo.store.ledger()) == 2


def test_a_crash_between_tick_and_draw_is_made_up_for(tmp_path, plan):
    with Silo.open(tmp_path / "s.db", plan) as silo:
        serve(silo, 5)
        silo.flush()
        silo.store.tick(1, 0, 0, lambda seated: 1, at=100.0, clock=("a clock", b""))
        assert silo.store.in_state(1, ReleaseState.CLOSED) == [0]
    with Silo.open(tmp_path / "s.db", plan) as silo:
        assert silo.ticker.due()
        assert silo.tick() == [0]
        assert silo.tick() == []
        assert silo.store.releases(1)[0].users == 5


def test_decisions_are_not_lost_when_the_process_is_killed(tmp_path, plan):
    """Nothing is flushed: a new process reads the count from the mapped file."""
    silo = Silo.open(tmp_path / "s.db", plan)
    for _ in range(5):
        silo.decide(ACTIONS)
    silo.store.engine.close()
    with Silo.open(tmp_path / "s.db", plan) as again:
        assert again.status()["decisions"] == 5
        assert again.tick() == [0]


def test_a_ledger_that_was_changed_is_not_added_to(tmp_path, plan):
    """The store was opened, and the next release was written behind the altered entry."""
    with Silo.open(tmp_path / "s.db", plan) as silo:
        serve(silo, 5)
        silo.tick()
        with silo.store.engine.transaction() as sql:
            sql.all("UPDATE ledger SET previous = hash")
    with pytest.raises(ValueError, match="holds a ledger that cannot be believed"):
        Silo.open(tmp_path / "s.db", plan)


@pytest.mark.parametrize("gone", ["number > 0", "number >= 0"])
def test_a_ledger_that_lost_its_end_is_not_added_to(tmp_path, plan, gone):
    """What it still held was said to be all that was spent, and the next release was entered in place of the lost."""
    with Silo.open(tmp_path / "s.db", plan) as silo:
        for _ in range(2):
            serve(silo, 5)
            silo.tick()
        with silo.store.engine.transaction() as sql:
            sql.all(f"DELETE FROM ledger WHERE {gone}")
        with pytest.raises(ValueError, match="the entry of sync 1 of term 1 is missing"):
            silo.status()
    with pytest.raises(ValueError, match="cannot be believed"):
        Silo.open(tmp_path / "s.db", plan)


def test_raw_rows_are_gone_after_the_release(silo):
    serve(silo, 5)
    silo.tick()
    assert silo.store.batch(1, 0) == []


def test_the_ledger_is_one_chain_and_spends_what_was_planned(silo, plan):
    for _ in range(4):
        serve(silo, 5)
        silo.tick()
    assert len(entries(silo.store.ledger())) == 4
    spent = spending(silo.store.ledger())
    assert spent.epsilon == pytest.approx(plan.privacy.epsilon, rel=1e-6)
    assert not spent.terms[0].overspent


def test_at_the_end_of_the_term_releases_stop_and_serving_goes_on(silo):
    late = silo.decide(ACTIONS)
    for _ in range(4):
        serve(silo, 5)
        silo.tick()
    assert silo.ended
    assert silo.decide(ACTIONS).action in range(3)
    with pytest.raises(TermEnded):
        silo.reward(late.id, 0.5)
    serve_again = [silo.decide(ACTIONS) for _ in range(10)]
    assert silo.tick() == []
    assert len(serve_again) == 10
    assert len(silo.store.ledger()) == 4


def test_settling_keeps_a_due_batch_open_for_a_fixed_time(tmp_path, plan):
    clock = HandClock()
    with Silo.open(tmp_path / "s.db", plan, timing=Timing(settle=2.0), clock=clock) as silo:
        decisions = [silo.decide(ACTIONS) for _ in range(5)]
        assert silo.tick() == []
        assert silo.reward(decisions[0].id, 0.5).batch == 0
        clock.pass_time(1.9)
        assert silo.tick() == []
        clock.pass_time(0.2)
        assert silo.tick() == [0]


def test_the_last_batch_can_stay_open_longer(tmp_path, plan):
    clock = HandClock()
    with Silo.open(tmp_path / "s.db", plan, timing=Timing(settle=1.0, settle_last=60.0), clock=clock) as silo:
        decisions = [silo.decide(ACTIONS) for _ in range(20)]
        assert silo.tick() == []
        clock.pass_time(2.0)
        assert silo.tick() == [0, 1, 2]
        assert silo.reward(decisions[-1].id, 0.5).batch == 3
        clock.pass_time(57.0)
        assert silo.tick() == []
        clock.pass_time(2.0)
        assert silo.tick() == [3]
        assert silo.ended


# -- plans and terms -------------------------------------------------------------------------------------------


def test_another_plan_is_refused_in_a_term(tmp_path, plan):
    with Silo.open(tmp_path / "s.db", plan) as silo:
        serve(silo, 5)
        assert silo.tick() == [0]
    for new_term, complaint in ((False, "plan must hash to"), (True, "must wait until")):
        with pytest.raises(ValueError, match=complaint):
            Silo.open(tmp_path / "s.db", small_plan(rounds=25), new_term=new_term)


def test_two_terms_on_one_ledger(tmp_path, plan):
    with Silo.open(tmp_path / "s.db", plan) as silo:
        old = silo.decide(ACTIONS, user="alice")
        for _ in range(4):
            serve(silo, 5)
            silo.tick()
    second = small_plan(rounds=10)
    with Silo.open(tmp_path / "s.db", second, new_term=True) as silo:
        assert silo.term.number == 2
        with pytest.raises(UnknownDecision):
            silo.reward(old.id, 0.5)
        for _ in range(10):
            silo.reward(silo.decide(ACTIONS).id, 0.5)
        assert silo.tick() == [0, 1]
        spent = spending(silo.store.ledger())
        assert [term.term for term in spent.terms] == [1, 2]
        assert spent.epsilon > plan.privacy.epsilon
        assert silo.status()["epsilon_spent"] == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="earlier term"):
        Silo.open(tmp_path / "s.db", plan, new_term=True)


def test_a_user_s_key_is_a_text(silo):
    with pytest.raises(ArgumentError, match=r"^user must be a text"):
        silo.decide(ACTIONS, user=5)
    with pytest.raises(ArgumentError, match=r"^user must be a text"):
        silo.decide_many([ACTIONS], users=[b"alice"])
    assert silo.status()["decisions"] == 0


def test_people_that_64_bits_do_not_hold_are_not_released_and_not_lost(tmp_path):
    """Sums wrapped around: of 700 rewards of 1 at 54 bits, about -316 was released."""
    with pytest.raises(ArgumentError, match=r"^bits must be at most 32 here, got 54: the sums of 1,000,000,000"):
        Plan(1, 4, 2, Privacy(1.0, 1e-5), "silo", "batches", clock(20.0), bits=54)
    plan, hand = Plan(2, 4, 2, Privacy(1.0, 1e-5), "silo", "batches", clock(20.0)), HandClock()
    room = plan.capacity // 2 - 3
    with Silo.open(tmp_path / "s.db", plan, clock=hand) as silo:
        for sync, people in enumerate((3, 3, 1)):
            serve(silo, people, 1.0)
            hand.pass_time(21.0)
            if sync < 2:
                assert silo.tick() == [sync]
        with silo.store.engine.transaction() as sql:  # as if so many had come before
            sql.all("UPDATE releases SET users = ? WHERE sync = 0", (room,))
    with Silo.open(tmp_path / "s.db", plan, clock=hand) as silo:
        with pytest.raises(SumsFull, match=f"would hold {room + 4:,} people, .* hold {room + 3:,} per silo"):
            silo.tick()
        assert silo.store.in_state(1, ReleaseState.CLOSED) == [2]
        assert len(silo.store.batch(1, 2)) == 1
        assert silo.decide(ACTIONS).model == 0  # it goes on to serve
        with silo.store.engine.transaction() as sql:
            sql.all("UPDATE releases SET users = ? WHERE sync = 0", (room - 1,))
        assert silo.tick() == [2]


@pytest.mark.parametrize("place", ["folder", "no/such/folder/s.db", "locked/s.db", "text.db", ":memory:"])
def test_a_place_where_no_store_can_be_is_named(tmp_path, place, plan):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.db").write_text("this is no database, and it is long enough to be looked at as one " * 20)
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "s.db.lock").mkdir()  # a file that nobody can open for writing
    with pytest.raises(ArgumentError, match=r"^store") as error:
        Silo.open(tmp_path / place, plan)
    assert str(tmp_path / place) in str(error.value)
    assert not (tmp_path / "folder.lock").exists()


@pytest.mark.parametrize(
    ("trust", "against"),
    [
        ("silo", "everybody outside the silo"),
        ("secure-sum", ONLY_SUMS),
        ("central", "everybody but the analyzer, which is trusted with the sums and adds the noise"),
    ],
)
def test_status_says_what_was_spent_and_against_whom(tmp_path, trust, against):
    """Where a trusted server adds the noise, no number was given beside a sound guarantee."""
    plan = small_plan(trust=trust)
    with Silo.open(tmp_path / "s.db", plan) as silo:
        assert (silo.status()["epsilon_spent"], silo.status()["spent_against"]) == (0.0, None)
        serve(silo, 5)
        silo.tick()
        begun = silo.status()
        assert 0 < begun["epsilon_spent"] < plan.privacy.epsilon
        for _ in range(3):
            serve(silo, 5)
            silo.tick()
        known = silo.status()
    assert known["epsilon_spent"] == pytest.approx(plan.privacy.epsilon, rel=1e-6)
    assert (known["epsilon_left"], known["spent_against"], known["adjacency"]) == (0.0, against, "replace-one")
    assert known["epsilon_all_terms"] == known["epsilon_spent"]
    assert (known["delta_all_terms"], known["adjacency_all_terms"]) == (plan.privacy.delta, "replace-one")


@pytest.mark.parametrize("plan, complaint", [
    ({"acting": "eager", "trust": "silo"}, "acting must be 'lazy'"),
    ({"trust": "local", "mechanism": "batches"}, "trust must be one that runs live"),
    ({"trust": "silo", "schedule": adaptive(10.0)}, "guarantee|public"),
    ({"trust": "shuffle", "mechanism": "tree", "calibration": "published"}, "must have a guarantee"),
])  # fmt: skip
def test_plans_that_cannot_be_run_live_are_refused(tmp_path, plan, complaint):
    with pytest.raises(ValueError, match=complaint):
        Silo.open(tmp_path / "s.db", small_plan(**plan))


def test_a_store_is_opened_with_its_own_secret(tmp_path, plan):
    with Silo.open(tmp_path / "s.db", plan) as silo:
        decision = silo.decide(ACTIONS)
    assert (tmp_path / "s.db.key").stat().st_mode & 0o777 == 0o600
    with Silo.open(tmp_path / "s.db", plan) as silo:
        assert silo.reward(decision.id, 0.5).counted
    with pytest.raises(ValueError, match="secret must be the one"):
        Silo.open(tmp_path / "s.db", plan, secret=b"x" * 32)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_secret_that_is_not_whole_is_refused(tmp_path, plan, length):
    """An empty one was taken, and everybody knows that."""
    key = tmp_path / "s.db.key"
    key.write_bytes(bytes(length))
    key.chmod(0o600)
    with pytest.raises(ValueError, match=f"secret must be 32 bytes, and .* has {length}: it is damaged"):
        Silo.open(tmp_path / "s.db", plan)


def test_a_full_disk_leaves_no_part_of_a_secret(tmp_path, plan, monkeypatch):
    """What was left of it was taken for the whole once there was room again."""
    with monkeypatch.context() as full:
        full.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            Silo.open(tmp_path / "s.db", plan)
    assert not (tmp_path / "s.db.key").exists()
    with Silo.open(tmp_path / "s.db", plan) as silo:
        silo.decide(ACTIONS)


def test_without_privacy_there_is_no_ledger(tmp_path):
    with Silo.open(tmp_path / "s.db", small_plan(trust="none", privacy=None)) as silo:
        serve(silo, 5)
        assert silo.tick() == [0]
        assert silo.store.ledger() == []
        assert silo.status()["epsilon"] is None


def test_status_is_plain_data(silo):
    serve(silo, 3)
    assert json.loads(json.dumps(silo.status()))["decisions"] == 3


def test_ids_are_known_whether_they_were_issued_a_moment_ago_or_not(tmp_path, monkeypatch):
    """Those of a moment ago are not opened again; what they say must be the same."""
    monkeypatch.setattr(tickets, "RECENT", 4)
    with Silo.open(tmp_path / "silo.db", small_plan()) as silo:
        ids = [silo.decide(np.eye(2), user=f"person {number}").id for number in range(10)]
        remembered = [silo.ids.read(one) for one in ids]
        monkeypatch.setattr(silo.ids, "_recent", {})
        monkeypatch.setattr(silo.ids, "_less_recent", {})
        assert [silo.ids.read(one) for one in ids] == remembered
        assert len({ticket.nonce for ticket in remembered}) == 10
