"""What a run without an end forgets, in both databases: rows of old syncs, and nothing of who has counted."""

from collections.abc import Callable

import pytest

from fedbandit.federation.states import SyncEvent, SyncState
from fedbandit.federation.store import Reward, SiloStore, SyncStore
from fedbandit.federation.store.own_sums import PartSums
from fedbandit.federation.store.pruning import holds_key
from fedbandit.federation.store.rewards import NOWHERE, UNSHARED
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.store.silo_store import OWN_RELEASE, LedgerRow
from fedbandit.federation.wire.heads import Head

SYNCS, ENDLESS = 12, 2**31
PERSON = b"p" * 16


def entry(number: int, term: int) -> LedgerRow:
    event = f'{{"term":{term},"sync":{number - term + 1}}}'
    return LedgerRow(number, f"hash {number}", f"hash {number - 1}", event, "signature")


def _due(ticks: int) -> Callable[[int], int]:
    """So many ticks are due, whoever has come."""
    return lambda seated: ticks


def reward(number: int, person: bytes | None = None, place: int = -1) -> Reward:
    return Reward(bytes([number] * 12), person, b"x" * 16, 0.5, bytes([number]), place)


@pytest.fixture
def silo(engine):
    """Twelve releases of a second term; somebody came twice to the first batch, and may count once."""
    store = SiloStore(engine)
    store.begin_term("plan-1", "{}", 100.0)
    store.tick(1, 0, 0, lambda seated: 1, at=100.0, clock=("a clock", b""))
    store.draw(1, 0, b"drawn", b"encoder", entry(0, 1))
    store.begin_term("plan-2", "{}", 100.0)
    for sync in range(SYNCS):
        rewards = [reward(1, PERSON), reward(2, PERSON), reward(3, place=UNSHARED)] if sync == 0 else []
        store.count(2, rewards, cap=1, syncs=ENDLESS, by_sync=True)
        store.tick(2, 0, 0, _due(sync + 1), at=100.0 + sync, clock=("a clock", b""))
        own = PartSums(1, 0.0, b"")
        store.draw(2, sync, b"drawn", b"encoder", entry(sync + 1, 2), own=own, own_release=b"own %d" % sync)
        store.outcome(2, sync, False, b"model")
    return store


def test_rows_of_old_syncs_go(silo):
    silo.prune(2, 8)
    assert [release.sync for release in silo.releases(2)] == [8, 9, 10, 11]
    assert [sync for sync, _ in silo.models(2)] == [8, 9, 10, 11]
    assert sorted(part for part in silo.own(2)[0] if part >= 0) == [8, 9, 10, 11]
    assert [row.number for row in silo.ledger()] == [
        0,
        1,
        9,
        10,
        11,
        12,
    ]
    assert silo.drawn(2) == SYNCS
    assert silo.entry(2, 10).number == 11
    assert silo.state(2, OWN_RELEASE) == b"own 11"
    assert silo.people_before(2, SYNCS, 9) == 0
    silo.prune(2, 8)
    assert len(silo.ledger()) == 6


def test_who_has_counted_and_how_many_did_not_stays(silo):
    silo.prune(2, 8)
    (verdict,) = silo.count(2, [reward(9, PERSON)], cap=1, syncs=ENDLESS, by_sync=True)
    assert verdict.stays
    assert silo.kept(2) == {NOWHERE: 2, UNSHARED: 1}
    silo.prune(2, 10)
    assert silo.kept(2) == {NOWHERE: 2, UNSHARED: 1}


@pytest.mark.parametrize("before", [-3, 0, SYNCS, SYNCS + 5])
def test_what_is_not_over_is_kept(silo, before):
    silo.prune(2, before)
    assert len(silo.releases(2)) == SYNCS
    assert len(silo.ledger()) == SYNCS + 1


def test_an_earlier_term_is_not_touched(silo):
    silo.prune(1, 1)
    assert [row.number for row in silo.ledger()] == list(range(SYNCS + 1))


def test_a_keeper_forgets_results_heads_and_what_it_said(engine):
    store = SyncStore(engine)
    for sync in range(SYNCS):
        store.receive([(sync, "silo", b"value")])
        store.remember(holds_key(sync), b"held")
        store.close(sync, SyncEvent.COMPLETE, ["silo"], b"result", Head(sync + 1, bytes(32), bytes(64)))
        store.published(sync)
    store.prune(9)
    assert [sync.sync for sync in store.all()] == [9, 10, 11]
    assert store.next_sync() == SYNCS
    assert [store.head(sync).length for sync in (7, 8, 9)] == [0, 9, 10]  # the oldest result follows head 8
    assert (store.recall(holds_key(8)), store.recall(holds_key(9))) == (None, b"held")
    assert store.at(3).state is SyncState.WAITING
    store.prune(0)
    assert len(store.all()) == 3


def test_heads_of_every_place_are_kept_for_so_many_places(engine):
    seen, forever = SeenStore(engine, "", 4), SeenStore(engine, "all")
    for length in range(1, 11):
        for store in (seen, forever):
            store.note([("mixer", length, Head(length, bytes([length] * 32), bytes(64)))], every=["mixer"])
    assert [seen.at("mixer", length) is not None for length in (1, 6, 7, 10)] == [False, False, True, True]
    assert all(forever.at("mixer", length) is not None for length in range(1, 11))
    assert seen.of("mixer").head.length == 10
    assert seen.note([("mixer", 9, Head(9, bytes(32), bytes(64)))], every=["mixer"]) == ["mixer"]  # another story
