"""What a silo draws, and what it does not: while others' word is awaited, after it has left, behind another worker."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.ticker import SumsFull
from fedbandit.federation.states import IllegalEvent
from fedbandit.federation.timing import COUNTED_PACE, Timing
from fedbandit.federation.wire.heads import Head
from fedbandit.plan import Plan
from fedbandit.schedule import clock as by_clock
from tests.federation.clocks import HandClock
from tests.federation.small import small_plan

ACTIONS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
PLAN = small_plan(schedule=by_clock(60.0), rounds=48, visits="private")
ENDLESS = PLAN.changed(forget=0.5, endless=True)


class Others:
    """The word of the others, in a sealer's place: who is a member when, and whether anything may be drawn."""

    def __init__(self, syncs: Collection[int] = range(100)) -> None:
        self.held: str | None = None
        self.syncs, self.heads = syncs, list[Head]()

    def takes_part(self, sync: int) -> bool:
        return sync in self.syncs

    def at_once(self, sync: int, message: object, head: Head) -> None:
        self.heads.append(head)


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def silo(tmp_path: Path, hand: HandClock) -> Iterator[Silo]:
    with opened(tmp_path, hand) as made:
        yield made


def opened(tmp_path: Path, hand: HandClock, plan: Plan = PLAN, **options: Any) -> Silo:
    return Silo.open(tmp_path / "s.db", plan, timing=Timing(start=1000.0), clock=hand, **options)


def heard(silo: Silo, monkeypatch: pytest.MonkeyPatch, syncs: Collection[int] = range(100)) -> Others:
    others = Others(syncs)
    monkeypatch.setattr(silo.ticker, "_sealer", others)
    return others


def come(silo: Silo, people: int) -> None:
    for _ in range(people):
        silo.reward(silo.decide(ACTIONS).id, 1.0)


def test_nothing_is_drawn_while_a_word_is_awaited(silo: Silo, hand: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    others = heard(silo, monkeypatch)
    others.held = "others have seen more of this silo than it knows"
    hand.pass_time(60.0)
    assert silo.tick() == []
    assert others.heads == []
    others.held = None
    assert silo.ticker.due()
    assert silo.tick() == [0]
    hand.pass_time(60.0)
    assert silo.tick() == [1]
    assert [head.length for head in others.heads] == [1, 2]  # that of the entry that is written with the release


def test_a_silo_that_has_left_draws_no_more_and_its_batch_stays_open(
    silo: Silo, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard(silo, monkeypatch, syncs=range(3))
    hand.pass_time(60.0)
    assert silo.tick() == [0]
    hand.pass_time(180.0)
    assert silo.tick() == [1, 2]  # four are due by the clock
    assert silo.ticker.open_sync == 3
    hand.pass_time(60.0)
    assert not silo.ticker.due()
    assert silo.tick() == []
    assert silo.ticker.open_sync == 3


def test_a_sync_that_it_was_no_member_at_is_not_drawn_when_it_is_back(
    silo: Silo, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what follows, before that one is given up: releases are drawn in order."""
    heard(silo, monkeypatch, syncs={0, 2})
    hand.pass_time(60.0)
    assert silo.tick() == [0]
    hand.pass_time(120.0)
    assert silo.tick() == []
    assert silo.ticker.open_sync == 3


def test_what_another_worker_has_drawn_first_is_not_drawn_again(
    silo: Silo, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*rest: object, **more: object) -> None:
        raise IllegalEvent("drawn", "draw")

    monkeypatch.setattr(silo.store, "draw", drawn)
    hand.pass_time(60.0)
    assert silo.tick() == []


def test_a_draw_that_failed_is_looked_at_again(silo: Silo, hand: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    silo.tick()
    come(silo, 3)
    hand.pass_time(60.0)
    monkeypatch.setattr(silo.ticker, "_capacity", 2)
    with pytest.raises(SumsFull):
        silo.tick()
    assert silo.ticker.due()


def test_two_overdue_ticks_are_looked_at_before_they_are_drawn(tmp_path: Path, hand: HandClock) -> None:
    """A look uses nobody's word up that the clock is right."""
    opened(tmp_path, hand).close()
    hand.reboot()
    hand.pass_time(121.0)
    with opened(tmp_path, hand, catch_up=True) as silo:
        silo.ticker.check()
        assert silo.tick() == [0, 1]


def test_a_release_leaves_by_its_own_tick_after_later_ones(tmp_path: Path, hand: HandClock) -> None:
    with opened(tmp_path, hand, small_plan()) as silo:
        come(silo, 5)
        assert silo.tick() == [0]
        hand.pass_time(0.25 * COUNTED_PACE)
        come(silo, 5)
        assert silo.tick() == [1]
        assert silo.ticker.wait_to_send(0) == pytest.approx(0.75 * COUNTED_PACE)
        assert silo.ticker.wait_to_send(1) == 0.0


def test_without_an_end_people_of_the_last_batches_count(
    tmp_path: Path, hand: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ENDLESS.encoder.touches > 2
    with opened(tmp_path, hand, ENDLESS) as silo:
        monkeypatch.setattr(silo.ticker, "_capacity", 5)
        come(silo, 3)
        hand.pass_time(60.0)
        assert silo.tick() == [0]
        come(silo, 3)
        hand.pass_time(60.0)
        with pytest.raises(SumsFull, match=r"would hold 6 people,"):
            silo.tick()


@pytest.mark.parametrize(("expired", "before"), [(10, 11), (500, 50)])
def test_old_syncs_are_forgotten_when_ids_and_releases_are(
    tmp_path: Path, hand: HandClock, monkeypatch: pytest.MonkeyPatch, expired: int, before: int
) -> None:
    """Of a term without an end, and of no other."""
    for plan, pruned in ((ENDLESS, [before]), (PLAN, [])):
        folder = tmp_path / str(plan.endless)
        folder.mkdir()
        with opened(folder, hand, plan) as silo:
            found = list[int]()
            monkeypatch.setattr(silo.ticker, "open_sync", plan.reach + 50)
            monkeypatch.setattr(silo.store, "expire", lambda term, at: expired)
            monkeypatch.setattr(silo.store, "prune", lambda term, sync, found=found: found.append(sync))
            silo.ticker.tidy()
            assert found == pruned


@pytest.mark.parametrize("keep_raw", [True, False])
@pytest.mark.parametrize("cleared", [True, False])
def test_tidying_is_done_when_raw_rows_are_gone_or_are_to_stay(
    tmp_path: Path, hand: HandClock, monkeypatch: pytest.MonkeyPatch, keep_raw: bool, cleared: bool
) -> None:
    with opened(tmp_path, hand, keep_raw=keep_raw) as silo:
        monkeypatch.setattr(silo.store.engine, "forget", lambda: cleared)
        assert silo.ticker.tidy() == (keep_raw or cleared)
