"""A silo without an end: releases are exact after any restart, old rows go, who has counted is known for good."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbandit import Plan, Privacy, clock, every
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.federation.one_process import StillClock
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.agreement import check_live
from fedbandit.federation.silo import book
from fedbandit.federation.silo.agent import Agent
from fedbandit.federation.silo.forwarding import is_known
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.silo.ticker import SumsFull
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import heads, messages
from fedbandit.federation.wire.heads import Head
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.privacy import spending
from fedbandit.protocol import mechanisms

HOUR = 3600.0
ROWS = np.eye(2)
SOON = Timing(reward_window=5 * HOUR)


def plan_of(**fields: Any) -> Plan:
    given = {"silos": 1, "rounds": 5, "dim": 2, "schedule": clock(HOUR), "forget": 0.5, "endless": True}
    return Plan(**{**given, "trust": "silo", "privacy": Privacy(1.0, 1e-6), **fields})


def visit(silo: Silo, user: str, reward: float) -> bool:
    return silo.reward(silo.decide(ROWS[:1], user=user).id, reward).counted


def tick(silo: Silo, clocks: StillClock) -> list[int]:
    clocks.now += HOUR
    return silo.tick()


def test_releases_are_rows_of_the_matrix_whatever_is_restarted(tmp_path: Path) -> None:
    """Without noise, so that every bit can be compared; and decoded they are weighted sums."""
    plan, clocks, rng = plan_of(trust="none", privacy=None), StillClock(), np.random.default_rng(0)
    decoding, weighted, batches = plan.protocol.init_analyzer(), np.zeros(plan.protocol.width), []
    for restart in range(4):
        with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=SOON) as silo:
            for sync in range(20 * restart, 20 * (restart + 1)):
                reward = float(rng.random())
                visit(silo, f"person {sync}", reward)
                assert tick(silo, clocks) == [sync]
                stored = silo.store.release(1, sync)
                assert stored is not None
                (released,) = messages.decode(stored.drawn or b"")
                batches.append(contributions(ROWS[0], reward, plan.bits, plan.centre))
                exact = plan.encoder.row(sync) @ np.array(batches, dtype=np.float64) * 2**plan.encoder.fraction_bits
                np.testing.assert_array_equal(released, exact)
                weighted = plan.forget * weighted + batches[-1]
                decoding, decoded = plan.protocol.decode(decoding, (released[None],))
                np.testing.assert_allclose(decoded, weighted * 2.0**-plan.bits, atol=1e-9)
            assert len(silo.store.releases(1)) <= plan.reach + 1


def test_rows_go_and_counts_stay(tmp_path: Path) -> None:
    plan, clocks = plan_of(privacy=Privacy(1.0, 1e-6, participations=2)), StillClock()
    with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=SOON) as silo:
        assert [visit(silo, "always", 0.5) for _ in range(3)] == [True, True, False]
        for sync in range(90):
            visit(silo, f"person {sync}", 0.5)
            tick(silo, clocks)
        rows = silo.store.ledger()
        assert [row.number for row in rows] == [0, *range(90 - plan.reach, 90)]
        assert len(silo.store.releases(1)) == plan.reach
        status = silo.status()
        assert (status["released"], status["over_cap"], status["syncs"]) == (90, 1, None)
        assert 0.999 < status["epsilon_spent"] <= 1.0
    with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=SOON) as silo:
        assert not visit(silo, "always", 0.5)  # 88 syncs after the last time, of which nothing else is kept
        assert visit(silo, "person 3", 0.5)
        assert not visit(silo, "person 3", 0.5) or not visit(silo, "person 3", 0.5)


def test_rewards_that_may_still_come_keep_their_rows(tmp_path: Path) -> None:
    """An id is known as taken for as long as its decision waits for a reward, however fast the plan forgets."""
    plan, clocks = plan_of(), StillClock()
    with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=Timing(reward_window=85 * HOUR)) as silo:
        decision = silo.decide(ROWS[:1], user="first").id
        silo.reward(decision, 0.5)
        for _ in range(80):
            tick(silo, clocks)
        assert silo.reward(decision, 0.5).repeated
        assert len(silo.store.releases(1)) == 80
        for _ in range(40):
            tick(silo, clocks)
        assert len(silo.store.releases(1)) == 86  # those of the window, both of its edges among them


def test_an_old_copy_is_noticed_by_a_ledger_that_has_let_entries_go(tmp_path: Path) -> None:
    plan, clocks = plan_of(), StillClock()
    with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=SOON) as silo:
        for _ in range(90):
            tick(silo, clocks)
        rows = silo.store.ledger()
        assert is_known(rows, book.head(rows[3]))
        assert is_known(rows, Head(4, b"\0" * 32, b""))  # kept no more, and this store is beyond it
        assert not is_known(rows, book.head(rows[3])._replace(hash=b"\0" * 32))
        assert not is_known(rows, Head(91, b"\0" * 32, b""))  # further than this store


def test_sums_hold_the_people_of_a_release_and_not_those_of_all_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for twenty people, and a person per tick, a run without an end goes on; one with an end is full."""
    monkeypatch.setattr(Plan, "capacity", 20)
    endless, clocks = plan_of(forget=0.5), StillClock()
    assert endless.encoder.touches < 20
    for plan, name in ((endless, "endless.db"), (endless.changed(endless=False, rounds=50), "ends.db")):
        with Silo.open(tmp_path / name, plan, clock=clocks, timing=SOON) as silo:

            def run(silo: Silo = silo) -> None:
                for sync in range(30):
                    visit(silo, f"person {sync}", 0.5)
                    tick(silo, clocks)

            if plan.endless:
                run()
            else:
                with pytest.raises(SumsFull):
                    run()


def test_live_it_takes_a_clock_and_a_new_term_may_follow_at_any_time(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unless a clock ticks"):
        check_live(plan_of(schedule=every(1), visits="public"))
    plan, clocks = plan_of(), StillClock()
    with Silo.open(tmp_path / "silo.db", plan, clock=clocks, timing=SOON) as silo:
        tick(silo, clocks)
    other = plan.changed(endless=False, rounds=3, forget=0.6)
    with Silo.open(tmp_path / "silo.db", other, clock=clocks, new_term=True, timing=SOON) as silo:
        assert silo.term.number == 2
        tick(silo, clocks)
        terms = book.spending(silo.store.ledger()).terms
        assert [term.syncs for term in terms] == [0, 3]


def test_a_newcomer_s_earlier_term_stays_in_its_ledger(tmp_path: Path) -> None:
    """A silo that joins late has no entries of the syncs before: those of its earlier term are not taken for them."""
    clocks, before = StillClock(), plan_of(endless=False, forget=1.0, rounds=5, privacy=Privacy(3.0, 1e-6))
    with Silo.open(tmp_path / "silo.db", before, clock=clocks, timing=SOON) as silo:
        for _ in range(5):
            tick(silo, clocks)
        spent = silo.status()["epsilon_spent"]
    later = plan_of()
    with Silo.open(tmp_path / "silo.db", later, clock=clocks, timing=SOON, new_term=True, since=3) as silo:
        for _ in range(3 + 2 * later.reach):
            tick(silo, clocks)
        entries = book.entries(silo.store.ledger())
    assert [entry.event.term for entry in entries[:7]] == [1] * 5 + [2] * 2
    assert spending.spent(entries, mechanisms.encoder).epsilon > spent


def test_a_model_of_long_ago_accuses_nobody(tmp_path: Path) -> None:
    """The analyzer was away for longer than the silo keeps a release, which its models then count all the same: the
    silo said that its store was an old copy, and drew nothing more."""
    plan, clocks = plan_of(trust="none", privacy=None), StillClock()
    timing = Timing(start=clocks.now, reward_window=5 * HOUR)
    homes = {home.settings.name: home for home in founding.local(tmp_path / "homes", plan, ["silo-00"], timing)}
    party, analyzer = homes["silo-00"].party(), homes["analyzer"].party()
    sealer = Sealer(party)
    with Silo.open(
        tmp_path / "silo.db", plan, name="silo-00", secret=bytes(32), clock=clocks, timing=timing, sealer=sealer
    ) as silo:
        agent = Agent(silo, party, sealer)
        sealer.clear()
        for sync in range(2 * plan.reach):
            assert tick(silo, clocks) == [sync]
        assert silo.store.release(1, 0) is None
        previous = heads.link(bytes(32), f"{analyzer.agreement.id} {plan.hash}".encode())
        for sync in range(3):
            outcome = Outcome(np.zeros(plan.protocol.width), np.array([1]))
            head = analyzer.signed(sync + 1, heads.link(previous, outcome.encode()))
            model = SignedOutcome(outcome, previous, head)
            asyncio.run(agent.handle([analyzer.seal("model", party.public, sync, model.encode())]))
            previous = head.hash
            assert (agent.refused.reasons, agent.problem, silo.version) == ({}, None, sync + 1)
