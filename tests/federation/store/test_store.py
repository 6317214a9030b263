"""One contract, two databases."""

import os
import shutil
import sqlite3
from contextlib import contextmanager
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.federation.states import DecisionState, IllegalEvent, ReleaseState, SyncEvent, SyncState
from fedbandit.federation.store import Reward, SiloStore, SyncStore, open_engine, read_engine
from fedbandit.federation.store.database import SqliteEngine, remember
from fedbandit.federation.store.rewards import (
    NOWHERE,
    OPEN_BATCH,
    STRETCH,
    UNSHARED,
    Judge,
    RewardColumns,
    Verdict,
    runs,
)
from fedbandit.federation.store.silo_store import LedgerRow, Wire
from fedbandit.federation.wire.heads import Head

SYNCS = 4
HEAD = Head(1, bytes(32), bytes(64))


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


def count(store, *rewards, decisions=0, cap=1, syncs=SYNCS, apart=0):
    return store.count(1, rewards, decisions, cap=cap, syncs=syncs, apart=apart)


def close_next(store):
    """The next batch is due whatever the number of places taken."""
    sync = store.term(1).open_sync
    return store.tick(1, 0, 0, lambda seated: sync + 1, at=100.0, clock=("a clock", b""))


def test_any_number_of_rewards_fits_into_one_transaction(silo):
    """A query takes so many values: with more people, or with decisions far apart, none was ever stored."""
    many = 70_000
    some = [
        Reward(b"%012d" % number, b"%016d" % number, bytes(16), 0.5, b"%016d" % number)
        for number in Random(1).sample(range(10**9), many)
    ]
    first, again = (count(silo, *some) for _ in range(2))
    assert {(one.state, one.repeated) for one in first} == {(DecisionState.COUNTED, False)}
    assert {(one.state, one.repeated) for one in again} == {(DecisionState.COUNTED, True)}
    fresh = [one._replace(nonce=b"%012d" % -number) for number, one in enumerate(some, 1)]
    assert {one.state for one in count(silo, *fresh)} == {
        DecisionState.LEFT_OUT
    }  # they have counted as often as allowed


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


@pytest.mark.parametrize("again", [[1, 20], [20, 21], [3], [5, 6, 7], [0, 10, 30]])
def test_what_has_come_is_recognised_whatever_lies_between(silo, again):
    count(silo, *[reward(number) for number in range(1, 21)])
    verdicts = count(silo, *[reward(number) for number in again])
    assert [v.repeated for v in verdicts] == [1 <= number <= 20 for number in again]
    assert len(silo.batch(1, 0)) == 20 + sum(not 1 <= number <= 20 for number in again)


def issued(process, number, value=0.5):
    """The reward of a decision that a process has issued as its so-and-so-manieth."""
    nonce = bytes([process] * 6) + number.to_bytes(6, "big")
    return Reward(nonce, None, b"x" * 16, value, bytes([process, number % 251, int(value * 100)]))


def test_rewards_of_decisions_that_were_issued_one_after_the_other_are_one_row(silo):
    together = [issued(7, number) for number in range(STRETCH + 10)]
    count(silo, *together)
    with silo.engine.read() as sql:
        assert sql.all("SELECT count(*) FROM rewarded") == [(2,)]  # a row has an end, however many come together
    for some in (together, together[::-1], together[5:9], [*together[:1], issued(9, 0)], [together[-1]]):
        repeated = [v.repeated for v in count(silo, *some)]
        assert repeated == [one in together for one in some]
    assert [v.conflict for v in count(silo, issued(7, 3, 0.4), issued(7, STRETCH + 9, 0.4))] == [True, True]
    assert not any(v.repeated or v.conflict for v in count(silo, issued(7, STRETCH + 10), issued(6, 0)))


def test_rewards_that_come_out_of_order_are_kept_with_their_own_decisions(silo):
    group = [issued(7, number, number / 10) for number in (0, 2, 1, 3)]
    count(silo, *group)
    assert [(v.repeated, v.conflict) for v in count(silo, *group)] == [(True, False)] * 4


def test_whatever_comes_together_every_decision_is_recognised(silo):
    """Rewards come in any order and company: each is repeated exactly if it came before."""
    chance, came = Random(5), set()
    for _ in range(60):
        first, process = chance.randrange(90), chance.choice([3, 4])
        group = [(process, number) for number in range(first, first + chance.randrange(1, 9))]
        group += [(chance.choice([3, 4]), chance.randrange(99)) for _ in range(chance.randrange(5))]
        chance.shuffle(group)
        for one, verdict in zip(group, count(silo, *[issued(*one) for one in group]), strict=True):
            assert (verdict.repeated, verdict.conflict) == (one in came, False)
            came.add(one)


def test_more_come_together_than_one_query_can_ask_for(silo, monkeypatch):
    """A database refuses a query with very many values, and nobody was rewarded."""
    sizes, everything = [], silo.engine.transaction
    monkeypatch.setattr("fedbandit.federation.store.rewards.VALUES", 3)

    @contextmanager
    def watched(*how, **and_how):
        with everything(*how, **and_how) as sql:
            monkeypatch.setattr(sql, "all", watching(sql.all), raising=False)
            yield sql

    def watching(ask):
        def all_of(query, values=()):
            sizes.extend([len(values)] if "IN (" in query else [])
            return ask(query, values)

        return all_of

    people = [bytes([number]) * 16 for number in range(20)]
    group = [issued(number % 2, number)._replace(person=person) for number, person in enumerate(people)]
    monkeypatch.setattr(silo.engine, "transaction", watched)
    silo.opt_out(1, people[::5])
    for again in (False, True):
        verdicts = count(silo, *group)
        assert [v.state is DecisionState.LEFT_OUT for v in verdicts] == [number % 5 == 0 for number in range(20)]
        assert [v.repeated for v in verdicts] == [again] * 20
        count(silo, *[issued(0, number) for number in range(40, 80, 2)])  # more rows than are asked about next
    assert max(sizes) <= 3 + 2
    assert [v.repeated for v in count(silo, issued(0, 0), issued(0, 40), issued(0, 78), issued(0, 79))] == [
        True, True, True, False
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.5, 1.0]), st.sampled_from([None, b"p", b"q"]),
                          st.sampled_from([OPEN_BATCH, NOWHERE, UNSHARED, 0, 2])), max_size=8),
       st.booleans(), st.integers(0, 2))  # fmt: skip
def test_all_at_once_they_are_judged_as_one_by_one(drawn, plain, open_sync):
    rewards = [reward(n, value, None if plain else person)._replace(place=OPEN_BATCH if plain else place)
               for n, value, person, place in drawn]  # fmt: skip
    together, alone = (Judge(open_sync, 2, 1, {}, {}) for _ in range(2))
    assert together.judge_all(RewardColumns.of(rewards)) == [alone.judge(one) for one in rewards]
    assert together.judged() == alone.judged()


@given(st.lists(st.integers(0, 3)))
def test_rewards_by_their_columns_are_the_same_rewards(numbers):
    rewards = [reward(number)._replace(place=place) for place, number in enumerate(numbers)]
    columns = RewardColumns.of(rewards)
    assert list(columns) == rewards
    assert [columns[at] for at in range(len(columns))] == rewards
    assert list(columns[1:3]) == rewards[1:3]
    assert RewardColumns.of(columns) is columns


@given(st.lists(st.sampled_from([Verdict(DecisionState.COUNTED, sync, repeated=False, conflict=False)
                                 for sync in range(2)])))  # fmt: skip
def test_runs_are_all_verdicts_in_their_order(verdicts):
    found = list(runs(verdicts))
    assert [at for _, part in found for at in range(part.start, part.stop)] == list(range(len(verdicts)))
    assert all(verdicts[part] == [verdict] * (part.stop - part.start) for verdict, part in found)
    assert all(one != other for (one, _), (other, _) in pairwise(found))


def test_a_person_counts_again_after_so_many_syncs_and_no_sooner(silo):
    person, other, number = b"p" * 16, b"q" * 16, 0
    came = []
    for sync in range(SYNCS):
        rewards = [reward(number + n, person=person) for n in range(2)]
        number += 2
        verdicts = count(silo, *rewards, cap=9, apart=2)
        came.append([v.state is DecisionState.COUNTED for v in verdicts])
        assert all(v.sync == sync for v in verdicts if v.state is DecisionState.COUNTED)
        close_next(silo)
    assert came == [[True, False], [False, False], [True, False], [False, False]]
    assert silo.kept(1) == {NOWHERE: 6}
    again = SiloStore(silo.engine).count(1, [reward(20, person=other)], cap=9, syncs=9, apart=2)
    assert [v.state for v in again] == [DecisionState.COUNTED]


def test_a_visit_that_was_too_soon_does_not_push_the_next_one_away(silo):
    person = b"p" * 16
    counted = []
    for sync in range(SYNCS):
        (verdict,) = count(silo, reward(sync, person=person), cap=9, apart=2)
        counted.append(verdict.state is DecisionState.COUNTED)
        close_next(silo)
    assert counted == [True, False, True, False]


def test_the_cap_holds_beside_the_distance(silo):
    person = b"p" * 16
    verdicts = []
    for sync in range(SYNCS):
        verdicts += count(silo, reward(sync, person=person), cap=2, apart=1)
        close_next(silo)
    assert [v.state is DecisionState.COUNTED for v in verdicts] == [True, True, False, False]
    assert [v.last for v in verdicts] == [False, True, False, False]


def test_a_new_term_forgets_when_people_counted(silo):
    count(silo, reward(1, person=b"p" * 16), cap=9, apart=3)
    silo.begin_term("plan-2", "{}", 200.0)
    (verdict,) = silo.count(2, [reward(2, person=b"p" * 16)], cap=9, syncs=SYNCS, apart=3)
    assert verdict.state is DecisionState.COUNTED


def test_a_person_counts_as_often_as_the_cap_says(silo):
    person = b"p" * 16
    verdicts = count(silo, *(reward(n, person=person) for n in range(3)), cap=2)
    assert [v.state for v in verdicts] == [DecisionState.COUNTED, DecisionState.COUNTED, DecisionState.LEFT_OUT]
    (later,) = count(silo, reward(9, person=person), cap=2)
    assert later.state is DecisionState.LEFT_OUT
    (again,) = count(silo, reward(9, person=person), cap=2)
    assert again.repeated
    assert len(silo.batch(1, 0)) == 2


def test_a_decision_with_a_place_counts_in_its_own_batch_or_nowhere(silo):
    first, second, nowhere = count(
        silo, reward(1)._replace(place=0), reward(2)._replace(place=1), reward(3)._replace(place=NOWHERE)
    )
    assert (first.state, first.sync) == (DecisionState.COUNTED, 0)
    assert (second.state, second.sync) == (DecisionState.COUNTED, 1)  # its batch is not open yet, its place is taken
    assert nowhere.state is DecisionState.LEFT_OUT
    close_next(silo)
    late, ahead = count(silo, reward(4)._replace(place=0), reward(5)._replace(place=SYNCS))
    assert late.state is ahead.state is DecisionState.LEFT_OUT
    assert [len(silo.batch(1, sync)) for sync in range(3)] == [1, 1, 0]


def test_a_person_takes_as_many_places_as_the_cap_says(silo):
    person, other = b"p" * 16, b"q" * 16
    assert silo.seat(1, [person, None, person, other], 1, durable=True) == [1, 2, None, 3]
    assert silo.seat(1, [person, other, None], 2, durable=False) == [4, 5, 6]
    assert silo.term(1).seated == 6


def test_decisions_of_batches_that_were_closed_long_ago_are_forgotten(silo):
    count(silo, reward(1))
    silo.tick(1, 0, 0, lambda seated: 1, at=100.0, clock=("a clock", b""))
    count(silo, reward(2))
    silo.tick(1, 0, 0, lambda seated: 2, at=200.0, clock=("a clock", b""))
    silo.expire(1, 150.0)
    first, second = count(silo, reward(1), reward(2))
    assert not first.repeated  # its id is refused before it comes here
    assert second.repeated


def test_a_table_that_is_gone_is_not_made_again(store_url):
    """A store that had lost its ledger was begun anew, as if nothing had been spent."""
    opened = open_engine(store_url)
    with opened.transaction() as sql:
        sql.all("DROP TABLE ledger")
    opened.close()
    with pytest.raises(ValueError, match="has lost ledger"):
        open_engine(store_url)


@pytest.mark.parametrize("table", ["ledger", "releases", "states"])
def test_a_damaged_store_is_refused_when_it_is_opened(tmp_path, table):
    """It was opened as if it were whole, and failed at the first look into the table."""
    opened = open_engine(tmp_path / "store.db")
    with opened.read() as sql:
        ((page,),) = sql.all("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
    opened.close()
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 8)
    with pytest.raises(ValueError, match=r"is damaged .* put the newest whole copy in its place"):
        open_engine(tmp_path / "store.db")


def test_a_file_that_is_no_store_is_refused_in_words(tmp_path):
    (tmp_path / "store.db").write_text("this is no store\n" * 100)
    with pytest.raises(ValueError, match="is damaged"):
        open_engine(tmp_path / "store.db")


def test_what_is_looked_for_at_every_message_is_found_from_the_end(tmp_path):
    """Every message cost a look at all syncs of the term, every tick one at all of its releases."""
    opened = SqliteEngine(tmp_path / "store.db")
    queries: list[str] = []
    opened._connection.set_trace_callback(queries.append)
    SyncStore(opened).next_sync()
    SyncStore(opened).unpublished()
    SiloStore(opened).in_state(1, ReleaseState.SEALED)
    SiloStore(opened).expire(1, 0.0)
    opened._connection.set_trace_callback(None)
    looks = [query for query in queries if query.startswith("SELECT")]
    assert len(looks) == 5
    for query in looks:
        plan = " ".join(row[3] for row in opened._connection.execute(f"EXPLAIN QUERY PLAN {query}"))
        assert "SEARCH" in plan or "LIMIT 1" in query, (query, plan)
        assert "TEMP B-TREE" not in plan, (query, plan)
    opened.close()


def test_a_late_reward_counts_in_the_batch_in_which_it_arrives(silo):
    count(silo, reward(1))
    assert close_next(silo) == 1
    (late,) = count(silo, reward(2))
    assert late.sync == 1
    assert len(silo.batch(1, 0)) == len(silo.batch(1, 1)) == 1


def test_after_the_last_batch_nothing_counts_but_repeats_are_acknowledged(silo):
    count(silo, reward(1), syncs=1)
    close_next(silo)
    (late,) = count(silo, reward(2), syncs=1)
    (again,) = count(silo, reward(1), syncs=1)
    assert late.state is DecisionState.EXPIRED
    assert again.repeated


def test_decisions_are_counted_with_the_rewards(silo):
    count(silo, reward(1), decisions=3)
    silo.count(1, [], 2, 2, cap=1, syncs=SYNCS)
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


def test_a_release_whose_sync_is_over_before_it_is_sealed_stays_missed(silo):
    """Its message is made in one thread while the model comes in another; sealing it ended the silo."""
    close_next(silo)
    silo.draw(1, 0, b"drawn", b"encoder", entry(0))
    silo.outcome(1, 0, included=False, model=b"model")
    silo.seal(1, 0, Wire(b"sent", b"sealed"))
    assert silo.in_state(1, ReleaseState.MISSED) == [0]
    assert silo.release(1, 0)[3:] == (b"drawn", None, None)


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
    silo.seat(1, [None] * 7, 1, durable=True)
    assert silo.tick(1, 0, 0, lambda seated: 3 if seated == 7 else 0, at=100.0, clock=("a clock", b"")) == 3
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
    with pytest.raises(ValueError, match=r"later version .*\(format 99\).* Install the version that wrote it"):
        open_engine(store_url)


def test_a_store_of_an_earlier_format_says_which_version_wrote_it_and_what_to_do(store_url):
    """It had fewer tables, which counted as lost: "bring the store back"."""
    engine = open_engine(store_url)
    with engine.transaction() as sql:
        sql.all("UPDATE meta SET value = ? WHERE key = 'format'", (b"2",))
        sql.all("DROP TABLE opted_out")
    engine.close()
    with pytest.raises(ValueError, match=r"by fedbandit 0\.2\.0 \(format 2\).*new store"):
        open_engine(store_url)


def test_a_store_of_format_4_gets_the_table_that_came_since_and_loses_nothing(store_url):
    engine = open_engine(store_url)
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    count(store, reward(1, person=b"p" * 16))
    _as_format_4(engine, "last_counted")
    engine.close()
    for _ in range(2):
        engine = open_engine(store_url)
        store = SiloStore(engine)
        (verdict,) = count(store, reward(2, person=b"p" * 16))
        assert verdict.state is DecisionState.LEFT_OUT
        assert len(store.batch(1, 0)) == 1
        engine.close()


def test_a_store_of_format_4_that_has_lost_a_table_is_refused(store_url):
    engine = open_engine(store_url)
    _as_format_4(engine, "last_counted", "participants")
    engine.close()
    with pytest.raises(ValueError, match="has lost participants"):
        open_engine(store_url)


def _as_format_4(engine, *missing):
    with engine.transaction() as sql:
        sql.all("UPDATE meta SET value = ? WHERE key = 'format'", (b"4",))
        for table in ("contents", *missing):
            sql.all(f"DROP TABLE {table}")
        blob = "BYTEA" if engine.shared else "BLOB"
        for column in ("drawn", "sent", "sealed"):
            sql.all(f"ALTER TABLE releases ADD COLUMN {column} {blob}")


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


def test_each_sqlite_transaction_waits_for_the_disk_or_not_as_it_was_asked(tmp_path):
    engine = open_engine(tmp_path / "a.db")
    for durable in (True, False, False, True, True, False, True):
        with engine.transaction(durable) as sql:
            assert sql.all("PRAGMA synchronous") == [(2 if durable else 1,)]
    with pytest.raises(KeyError), engine.transaction(durable=False):
        raise KeyError
    with engine.transaction() as sql:
        assert sql.all("PRAGMA synchronous") == [(2,)]
    engine.close()


def test_deleted_rows_leave_the_files(tmp_path):
    engine = open_engine(tmp_path / "a.db")
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 1.0)
    secret = b"a very recognisable feature vector"
    store.count(1, [Reward(b"n" * 12, None, secret, 0.5, b"d")], cap=1, syncs=SYNCS)
    files = [tmp_path / "a.db", tmp_path / "a.db-wal"]
    assert any(secret in file.read_bytes() for file in files)
    close_next(store)
    store.draw(1, 0, b"drawn", b"encoder", None)
    engine.forget()
    assert not any(secret in file.read_bytes() for file in files if file.exists())
    engine.close()


# -- disks that fail -------------------------------------------------------------------------------------------


class FailingDisk:
    """Fails once, as a kernel reports a lost write once and calls the next sync a success."""

    def __init__(self):
        self.failures = 1

    def __call__(self, file):
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        os.fdatasync(file)


def test_after_a_failed_sync_nothing_is_durable_until_it_was_written_anew(tmp_path):
    """A retry used to be acknowledged as repeated after a sync that the kernel called a success, unwritten."""
    engine = SqliteEngine(tmp_path / "s.db", sync=FailingDisk())
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    engine.forget()
    store.count(1, [reward(1)], cap=1, syncs=SYNCS, durable=False)
    with pytest.raises(OSError):
        engine.harden()
    (again,) = store.count(1, [reward(1)], cap=1, syncs=SYNCS, durable=False)
    assert again.repeated
    engine.harden()
    shutil.copy(tmp_path / "s.db", tmp_path / "copy.db")  # without the log, whose writes were lost
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("SELECT count(*) FROM rewarded").fetchone() == (1,)
    engine.close()


def test_while_a_reader_is_in_the_way_a_failed_sync_is_not_made_good(tmp_path):
    engine = SqliteEngine(tmp_path / "s.db", sync=FailingDisk())
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    reader = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM terms").fetchall()
    with engine.read() as sql:
        sql.all("PRAGMA busy_timeout = 100")
    store.count(1, [reward(1)], cap=1, syncs=SYNCS, durable=False)
    for _ in range(2):
        with pytest.raises(OSError):
            engine.harden()
    with pytest.raises(OSError):
        store.count(1, [reward(2)], cap=1, syncs=SYNCS)
    reader.close()
    engine.harden()
    engine.close()


def test_a_full_disk_fails_the_transaction_and_not_the_store(tmp_path):
    engine = SqliteEngine(tmp_path / "s.db")
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    with engine.read() as sql:
        ((pages,),) = sql.all("PRAGMA page_count")
        sql.all(f"PRAGMA max_page_count = {pages}")
    large = [reward(number)._replace(features=b"x" * 4000) for number in range(200)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.count(1, large, cap=1, syncs=SYNCS)
    with engine.read() as sql:
        sql.all("PRAGMA max_page_count = 1000000")
    (verdict,) = store.count(1, [reward(9)], cap=1, syncs=SYNCS)
    assert not verdict.repeated
    engine.close()


def test_raw_rows_leave_the_log_as_soon_as_no_reader_is_in_the_way(tmp_path):
    """The log was emptied once, or not at all if somebody was reading then."""
    engine = SqliteEngine(tmp_path / "s.db")
    store, secret = SiloStore(engine), b"a secret row of features"
    store.begin_term("plan-1", "{}", 100.0)
    with engine.read() as sql:
        sql.all("PRAGMA busy_timeout = 100")
    store.count(1, [reward(1)._replace(features=secret)], cap=1, syncs=SYNCS)
    reader = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM terms").fetchall()
    close_next(store)
    store.draw(1, 0, b"drawn", b"encoder", None)
    assert not engine.forget()
    reader.close()
    assert engine.forget()
    assert secret not in (tmp_path / "s.db").read_bytes() + (tmp_path / "s.db-wal").read_bytes()
    engine.close()
