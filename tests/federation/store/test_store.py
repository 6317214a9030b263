"""One contract, two databases."""

import sqlite3

import pytest

from fedbandit.federation.states import DecisionState, IllegalEvent, ReleaseState, SyncEvent, SyncState
from fedbandit.federation.store import Reward, SiloStore, SyncStore, open_engine, read_engine
from fedbandit.federation.store.database import remember
from fedbandit.federation.store.rewards import UNLIMITED
from fedbandit.federation.store.silo_store import LedgerRow, Wire
from fedbandit.federation.wire.heads import Head

HEAD = Head(1, bytes(32), bytes(64))
CAPACITIES = [UNLIMITED] * 4


@pytest.fixture
def silo(engine):
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    return store


@pytest.fixture
def syncs(engine):
    return SyncStore(engine)


def reward(number, value=0.5, person=None):
    return Reward(bytes([number] * 12), person, b"x" * 16, value, bytes([number, int(value * 100)]))


def count(store, *rewards, decisions=0, cap=1, capacities=CAPACITIES):
    return store.count(1, rewards, decisions, cap=cap, capacities=capacities)


def close_next(store):
    """The next batch is due whatever the number of decisions."""
    sync = store.term(1).open_sync
    return store.tick(1, 0, 0, lambda decisions: sync + 1)


def entry(number):
    return LedgerRow(number, f"hash {number}", f"hash {number - 1}", "{}", "signature")


# -- rewards ---------------------------------------------------------------------------------------------------


def test_a_reward_is_in_one_batch_once(silo):
    first = count(silo, reward(1), reward(2, 1.0))
    assert [(v.state, v.sync, v.repeated, v.conflict) for v in first] == [(DecisionState.COUNTED, 0, False, False)] * 2
    again = count(silo, reward(1), reward(2, 0.0))
    assert [(v.repeated, v.conflict) for v in again] == [(True, False), (False, True)]
    assert sorted(silo.batch(1, 0)) == [(b"x" * 16, 0.5), (b"x" * 16, 1.0)]


def test_repeats_within_one_transaction_count_once(silo):
    verdicts = count(silo, reward(1), reward(1), reward(1, 0.7))
    assert [(v.repeated, v.conflict) for v in verdicts] == [(False, False), (True, False), (False, True)]
    assert len(silo.batch(1, 0)) == 1


def test_a_person_counts_as_often_as_the_cap_says(silo):
    person = b"p" * 16
    verdicts = count(silo, *(reward(n, person=person) for n in range(3)), cap=2)
    assert [v.state for v in verdicts] == [DecisionState.COUNTED, DecisionState.COUNTED, DecisionState.LEFT_OUT]
    (later,) = count(silo, reward(9, person=person), cap=2)
    assert later.state is DecisionState.LEFT_OUT
    (again,) = count(silo, reward(9, person=person), cap=2)
    assert again.repeated
    assert len(silo.batch(1, 0)) == 2


def test_a_batch_with_a_capacity_takes_no_more(silo):
    verdicts = count(silo, *(reward(n) for n in range(3)), capacities=[2, 2])
    assert [v.state for v in verdicts].count(DecisionState.LEFT_OUT) == 1
    (late,) = count(silo, reward(7), capacities=[2, 2])
    assert late.state is DecisionState.LEFT_OUT


def test_a_late_reward_counts_in_the_batch_in_which_it_arrives(silo):
    count(silo, reward(1))
    assert close_next(silo) == 1
    (late,) = count(silo, reward(2))
    assert late.sync == 1
    assert len(silo.batch(1, 0)) == len(silo.batch(1, 1)) == 1


def test_after_the_last_batch_nothing_counts_but_repeats_are_acknowledged(silo):
    count(silo, reward(1), capacities=[UNLIMITED])
    close_next(silo)
    (late,) = count(silo, reward(2), capacities=[UNLIMITED])
    (again,) = count(silo, reward(1), capacities=[UNLIMITED])
    assert late.state is DecisionState.EXPIRED
    assert again.repeated


def test_decisions_are_counted_with_the_rewards(silo):
    count(silo, reward(1), decisions=3)
    silo.count(1, [], 2, 2, cap=1, capacities=CAPACITIES)
    assert (silo.term(1).decisions, silo.term(1).unkeyed) == (5, 2)


def test_a_failed_transaction_leaves_no_trace(silo):
    def failing():
        with silo.engine.transaction() as sql:
            sql.all("UPDATE terms SET decisions = 99 WHERE term = 1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert silo.term(1).decisions == 0


# -- releases --------------------------------------------------------------------------------------------------


def test_release_ledger_and_encoder_are_one_transaction(silo):
    count(silo, reward(1))
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder 1", entry(0))
    close_next(silo)
    with pytest.raises(Exception):  # noqa: B017 (each database has its own): the ledger refuses the number
        silo.draw(1, 1, b"drawn 2", b"encoder 2", entry(0))
    assert silo.encoder(1) == b"encoder 1"
    assert silo.in_state(1, ReleaseState.CLOSED) == [1]
    assert silo.release(1, 1).drawn is None
    assert len(silo.ledger()) == 1


def test_a_release_is_never_redrawn_nor_resealed(silo):
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder", entry(0))
    with pytest.raises(IllegalEvent):
        silo.draw(1, 0, b"other", b"encoder", entry(1))
    silo.seal(1, 0, Wire(b"sent", b"sealed"))
    with pytest.raises(IllegalEvent):
        silo.seal(1, 0, Wire(b"sent", b"sealed otherwise"))
    assert silo.release(1, 0)[3:] == (b"drawn", b"sent", b"sealed")
    assert len(silo.ledger()) == 1


def test_raw_rows_are_deleted_with_the_release_and_repeats_are_still_known(silo):
    count(silo, reward(1))
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder", entry(0), wire=Wire(b"sent", b"sealed"))
    silo.engine.forget()
    assert silo.batch(1, 0) == []
    same, other = count(silo, reward(1), reward(1, 0.9))
    assert same.repeated
    assert same.state is DecisionState.RELEASED
    assert other.conflict


def test_raw_rows_are_kept_on_demand(silo):
    count(silo, reward(1))
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder", None, keep_raw=True)
    assert len(silo.batch(1, 0)) == 1


def test_outcomes_move_releases_on_and_there_is_one_a_sync(silo):
    for sync in range(3):
        close_next(silo)
        silo.draw(1, sync, b"d", b"e", None, wire=(b"s", b"w"))
    silo.acknowledged(1, 0)
    assert silo.outcome(1, 0, True, b"model 0")
    assert silo.outcome(1, 0, True, b"model 0")
    assert not silo.outcome(1, 0, True, b"another model 0")
    assert silo.outcome(1, 1, False, b"model 1")
    states = [r.state for r in silo.releases(1)]
    assert states == [ReleaseState.INCLUDED, ReleaseState.MISSED, ReleaseState.SEALED]
    assert silo.models(1) == [(0, b"model 0"), (1, b"model 1")]
    assert silo.models(1, after=0) == [(1, b"model 1")]


def test_a_sync_that_went_by_before_the_tick_is_missed(silo):
    assert silo.outcome(1, 0, False, b"model 0")
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder", None, wire=Wire(b"sent", b"sealed"))
    assert silo.release(1, 0).state is ReleaseState.MISSED


def test_several_ticks_can_be_due_at_once(silo):
    count(silo, reward(1))
    assert silo.tick(1, 7, 0, lambda decisions: 3 if decisions == 7 else 0) == 3
    assert [r.users for r in silo.releases(1)] == [1, 0, 0]


# -- terms, sets, values ---------------------------------------------------------------------------------------


def test_a_new_term_begins_empty_and_keeps_the_ledger(silo):
    count(silo, reward(1))
    close_next(silo)
    silo.draw(1, 0, b"d", b"e", entry(0))
    count(silo, reward(2))
    term = silo.begin_term("plan-2", "{}", 200.0)
    assert (term.number, term.open_sync, term.decisions) == (2, 0, 0)
    assert silo.batch(1, 1) == []
    assert len(silo.ledger()) == 1
    assert silo.encoder(2) is None
    assert silo.begin_term("plan-2", "{}", 300.0).number == 2  # a second worker finds it begun


def test_a_name_means_one_action_set(silo):
    silo.register("drugs", b"features")
    silo.register("drugs", b"features")
    with pytest.raises(ValueError, match="an action set with other features"):
        silo.register("drugs", b"others")
    assert silo.action_sets() == {"drugs": b"features"}


def test_values_are_kept_for_good(silo):
    assert silo.recall("a") is None
    assert silo.remember("a", b"1") == b"1"
    assert silo.remember("a", b"2") == b"1"
    assert silo.recall("a") == b"1"


# -- syncs ----------------------------------------------------------------------------------------------------


def test_a_sender_is_counted_once_a_sync(syncs):
    syncs.receive([(0, "a", b"first"), (0, "a", b"second"), (0, "b", b"b")])
    assert syncs.inbox(0) == {"a": b"first", "b": b"b"}
    assert syncs.senders(0) == {"a", "b"}
    assert syncs.at(0).state is SyncState.COLLECTING
    assert (syncs.next_sync(), syncs.senders_after(0)) == (0, set())
    syncs.receive([(3, "a", b"ahead")])
    assert (syncs.next_sync(), syncs.senders_after(0)) == (0, {"a"})


def test_a_sync_is_closed_once_with_its_state(syncs):
    syncs.receive([(0, "a", b"x"), (1, "a", b"y")])
    syncs.close(0, SyncEvent.COMPLETE, ["a"], b"result", HEAD, b"decoder")
    assert syncs.inbox(0) == {}
    assert syncs.inbox(1) == {"a": b"y"}
    syncs.receive([(0, "b", b"too late")])
    assert syncs.inbox(0) == {}
    with pytest.raises(IllegalEvent):
        syncs.close(0, SyncEvent.COMPLETE, ["a", "b"], b"another result", HEAD, b"other")
    assert (syncs.at(0).value, syncs.at(0).cohort, syncs.decoder()) == (b"result", ("a",), b"decoder")
    assert [r.sync for r in syncs.unpublished()] == [0]
    syncs.published(0)
    assert syncs.unpublished() == []
    assert syncs.at(0).value == b"result"
    assert syncs.next_sync() == 1


def test_a_sync_nobody_came_to_is_skipped(syncs):
    syncs.receive([(1, "a", b"y")])
    syncs.close(0, SyncEvent.DEADLINE_SHORT, [], b"nothing", HEAD)
    assert syncs.at(0).state is SyncState.SKIPPED
    assert syncs.next_sync() == 1


def test_a_store_is_bound_to_its_plan(syncs):
    syncs.bind("plan-1")
    syncs.bind("plan-1")
    with pytest.raises(ValueError, match="plan must hash to plan-1"):
        syncs.bind("plan-2")


# -- opening ---------------------------------------------------------------------------------------------------


def test_everything_is_there_after_reopening(store_url):
    engine = open_engine(store_url)
    SiloStore(engine).begin_term("plan-1", "{}", 1.0)
    count(SiloStore(engine), reward(1))
    engine.close()
    engine = open_engine(store_url)
    assert len(SiloStore(engine).batch(1, 0)) == 1
    engine.close()


def test_another_format_is_refused(store_url):
    engine = open_engine(store_url)
    with engine.transaction() as sql:
        sql.all("UPDATE meta SET value = ? WHERE key = 'format'", (b"99",))
    engine.close()
    with pytest.raises(ValueError, match="of format 99"):
        open_engine(store_url)


def test_one_worker_leads(empty_postgres):
    first, second = open_engine(empty_postgres), open_engine(empty_postgres)
    assert first.lead()
    assert not second.lead()
    assert first.lead()
    first.close()
    assert second.lead()
    second.close()


def test_two_processes_cannot_share_a_file(tmp_path):
    engine = open_engine(tmp_path / "a.db")
    with pytest.raises(ValueError, match="in use by another process"):
        open_engine(tmp_path / "a.db")
    reader = read_engine(tmp_path / "a.db")
    remember(engine, "key", b"value")
    with reader.read() as sql:
        assert sql.all("SELECT value FROM meta WHERE key = 'key'") == [(b"value",)]
    with pytest.raises(ValueError, match="reading only"):
        reader.transaction()
    reader.close()
    engine.close()
    assert (tmp_path / "a.db").stat().st_mode & 0o077 == 0


def test_an_unknown_url_is_refused():
    with pytest.raises(ValueError, match="postgresql://"):
        open_engine("mysql://somewhere")


def test_sqlite_is_set_to_lose_nothing(tmp_path):
    engine = open_engine(tmp_path / "a.db")
    with engine.transaction() as sql:
        assert sql.all("PRAGMA synchronous") == [(2,)]
        assert sql.all("PRAGMA secure_delete") == [(1,)]
    engine.close()
    assert sqlite3.connect(tmp_path / "a.db").execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_deleted_rows_leave_the_files(tmp_path):
    engine = open_engine(tmp_path / "a.db")
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 1.0)
    secret = b"a very recognisable feature vector"
    store.count(1, [Reward(b"n" * 12, None, secret, 0.5, b"d")], cap=1, capacities=CAPACITIES)
    files = [tmp_path / "a.db", tmp_path / "a.db-wal"]
    assert any(secret in file.read_bytes() for file in files)
    close_next(store)
    store.draw(1, 0, b"drawn", b"encoder", None)
    engine.forget()
    assert not any(secret in file.read_bytes() for file in files if file.exists())
    engine.close()
