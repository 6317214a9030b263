"""The audit of those who do not count: a sound silo passes, and each way of mixing the two up is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedbandit.audit.live_game import live_case, live_reduced
from fedbandit.audit.opting_out import DEPENDS, served_apart
from fedbandit.federation.silo import releasing, ticker
from fedbandit.federation.silo.decisions.apart import Apart
from fedbandit.federation.silo.decisions.decider import Decider
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store import SiloStore, rewards
from fedbandit.federation.store.rewards import OPEN_BATCH, UNSHARED, CountedRow, Judge, Reward, Verdict
from fedbandit.knowledge import PublicModel
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock

Patch = pytest.MonkeyPatch


def small(name: str = "silo") -> Plan:
    return live_case(name, 4.0, 1e-5).plan


def on_a_clock(**fields: Any) -> Plan:
    privacy = Privacy(4.0, 1e-5, participations=2)
    return live_reduced(Plan(3, 8, 2, privacy, "silo", schedule=clock(60.0), **fields)).plan


@pytest.mark.parametrize("name", ["silo", "secure-sum", "central", "sdp-vector-sum"])
def test_a_sound_silo_passes(name: str) -> None:
    check = served_apart(small(name))
    assert check.failed == ()
    assert check.tests >= 16


@pytest.mark.parametrize("uncounted", ["local", "public"])
def test_a_sound_silo_passes_on_a_clock(uncounted: str) -> None:
    assert served_apart(on_a_clock(uncounted=uncounted)).failed == ()


def raw_sums_decide_for_everybody(patch: Patch) -> None:
    """Somebody who counts is served by what the silo knows of its own."""

    def chosen(self: Decider, offered: Any, public: PublicModel, quick: bool) -> Any:
        return self._for_others(offered, self._apart._own.model())

    patch.setattr(Decider, "_for_counted", chosen)


def raw_sums_decide_after_the_first_sync(patch: Patch) -> None:
    sound = Decider._for_counted

    def chosen(self: Decider, offered: Any, public: PublicModel, quick: bool) -> Any:
        late = public.sync >= 0
        return self._for_others(offered, self._apart._own.model()) if late else sound(self, offered, public, quick)

    patch.setattr(Decider, "_for_counted", chosen)


def whoever_opts_out_is_counted(patch: Patch) -> None:
    sound = Judge.judge

    def judge(self: Judge, reward: Reward) -> Verdict:
        return sound(self, reward._replace(place=OPEN_BATCH) if reward.place == UNSHARED else reward)

    patch.setattr(Judge, "judge", judge)


def the_cap_is_forgotten(patch: Patch) -> None:
    patch.setattr(Judge, "_admit", lambda self, person, sync: self.times.setdefault(person, 0) == 0 or True)
    sound = Apart.way
    patch.setattr(Apart, "way", lambda self, person, shared: sound(self, None if shared else person, shared))


def what_is_kept_is_added_to_the_batch(patch: Patch) -> None:
    """Behind the back of the rows: the sums of those who opted out are released with the batch."""
    sound = ticker.Ticker._draw

    def draw(self: ticker.Ticker, sync: int) -> bool:
        kept = self._store.own(self._term)[0].get(UNSHARED)
        if kept is not None and kept.value:
            added = np.asarray(kept.sums)
            patch.setattr(releasing, "_points", lambda plan, sync, rows: POINTS(plan, sync, rows) + added)
        return sound(self, sync)

    patch.setattr(ticker.Ticker, "_draw", draw)


POINTS = releasing._points


def rows_that_are_left_out_enter_the_batch(patch: Patch) -> None:
    sound = rewards.insert

    def insert(sql: Any, term: int, judge: Judge) -> None:
        counted = [
            (reward, verdict._replace(state=DecisionState.COUNTED) if verdict.stays else verdict)
            for reward, verdict in judge.fresh
        ]
        judge.times.update({reward.person: 1 for reward, _ in counted if reward.person is not None})
        others = Judge(judge.open_sync, judge.syncs, judge.cap, judge.known, judge.times, counted, judge.alike)
        sound(sql, term, others)

    patch.setattr("fedbandit.federation.store.silo_store.insert", insert)


def a_new_term_counts_whoever_was_served_by_raw_data(patch: Patch) -> None:
    sound = SiloStore.opt_out

    def opt_out(self: SiloStore, term: int, people: Sequence[bytes], for_good: bool, **options: Any) -> None:
        sound(self, term, people, **options)

    patch.setattr(SiloStore, "opt_out", opt_out)


def raw_data_decide_before_it_is_written_who_is_over_the_cap(patch: Patch) -> None:
    sound = Apart._written

    def written(self: Apart, people: Sequence[tuple[bytes, bool]]) -> bool:
        return sound(self, [(person, shared) for person, shared in people if person not in self._people])

    patch.setattr(Apart, "_written", written)


FAULTS = {
    raw_sums_decide_for_everybody: "actions",
    raw_sums_decide_after_the_first_sync: "actions",
    whoever_opts_out_is_counted: "batch",
    the_cap_is_forgotten: "batch",
    what_is_kept_is_added_to_the_batch: "encoded",
    rows_that_are_left_out_enter_the_batch: "batch",
    a_new_term_counts_whoever_was_served_by_raw_data: "batch",
    raw_data_decide_before_it_is_written_who_is_over_the_cap: "batch",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_mix_up_is_caught(fault: Any, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    assert DEPENDS[FAULTS[fault]] in served_apart(on_a_clock()).failed


def test_rows_of_another_type_are_never_released(monkeypatch: Patch) -> None:
    """A row that was not read from a batch stops the release instead of leaking."""
    monkeypatch.setattr("fedbandit.federation.store.silo_store.rows_of", lambda *asked: [tuple(ROW)])
    with pytest.raises(TypeError, match="people who count"):
        served_apart(on_a_clock())


ROW = CountedRow(np.array([1.0, 0.0]).tobytes(), 1.0)
