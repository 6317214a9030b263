"""A federation without an end at full speed: nobody counts more often than they may, ever; nothing grows with ticks."""

import asyncio
import json
import os
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fedbandit.federation.silo import book
from fedbandit.federation.states import SyncState
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.link import Link
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import clock
from tests.torture.conftest import Size, Tally
from tests.torture.test_soak import HOUR, LOG, QUICK, START, TIDY, Soak, soaked

pytestmark = pytest.mark.fire
PEOPLE, CAP, APART = 40, 3, 5  # who come to a silo, how often they count, how many syncs apart
LOOKED_AT = 30  # rounds of the plan: the run is ten times as long, or more


class EndlessSoak(Soak):
    """The same people come again and again; the silos forget everything but how often each of them has counted."""

    def __init__(self, folder: Path, plan: Plan, stack: ExitStack) -> None:
        super().__init__(folder, plan, stack)
        self.counted: Counter[tuple[str, int]] = Counter()
        self.last: dict[tuple[str, int], int] = {}

    async def tick(self, sync: int) -> None:
        """Somebody known comes to every silo, and every third time somebody who opts out; then the sync is due."""
        for name, agent in self.agents.items():
            for opting_out in (False, True)[: 2 if sync % 3 == 0 else 1]:
                person = PEOPLE if opting_out else int(self._random.integers(PEOPLE))
                actions = self._random.normal(size=(2, self.plan.dim))
                actions /= np.linalg.norm(actions, axis=-1, keepdims=True)
                decision = agent.silo.decide(actions, user=f"person {person}", shared=not opting_out)
                answer = agent.silo.reward(decision.id, float(self._random.random()))
                if answer.counted:
                    self._note((name, person), sync)
        self.clock.now = START + self.plan.ticks[sync] * HOUR
        for agent in self.agents.values():
            assert agent.silo.ticker.release() == [sync]
            await agent.send(cast(Link, self._queue))
        await self._deliver()
        if sync % TIDY == 0:
            assert all(agent.silo.ticker.tidy() for agent in self.agents.values())

    def _note(self, who: tuple[str, int], sync: int) -> None:
        assert who[1] != PEOPLE, "somebody who opted out was counted"
        assert sync - self.last.get(who, -APART) >= APART
        self.counted[who] += 1
        self.last[who] = sync

    def finished(self, ticks: int) -> None:
        """What is left is whole: the newest model everywhere, ledgers that verify, and the budget as promised."""
        kept = self.plan.reach + TIDY + 1
        assert max(self.counted.values()) == CAP  # ever
        models = set()
        for agent in self.agents.values():
            store, status = agent.silo.store, agent.silo.status()
            assert status["released"] == status["model"] == ticks
            assert (status["syncs"], status["ended"], status["missed"], status["weight"]) == (None, False, [], 1.0)
            assert status["opted_out"] == -(-ticks // 3)
            assert status["over_cap"] + status["opted_out"] + sum(
                times for (name, _), times in self.counted.items() if name == agent.party.name
            ) == ticks + -(-ticks // 3)
            assert 0.999 < status["epsilon_spent"] <= 1.0
            rows = store.ledger()
            assert (book.length(rows), len(rows) <= kept + 1) == (ticks, True)  # and the term's first
            assert book.spending(rows).epsilon == pytest.approx(1.0, rel=1e-6)
            assert len(store.releases(1)) <= kept
            assert len(store.models(1)) <= kept
            assert len(store.own(1)[0]) <= 3 * kept
            assert agent.refused.count == 0
            models.add(store.models(1)[-1])
            encoder = messages.decode_stream(store.encoder(1) or b"")
            assert (encoder.done, len(encoder.memory[0])) == (ticks, self.plan.encoder.touches - 1)
            assert sorted(_times(store)) == sorted(
                times for (name, _), times in self.counted.items() if name == agent.party.name
            )
        assert len(models) == 1
        assert np.isfinite(Outcome.decode(models.pop()[1], self.plan).prefix).all()
        for keeper in self.keepers.values():
            syncs = keeper.store.all()
            assert syncs[-1].sync == ticks - 1
            assert len(syncs) <= kept
            assert {sync.state for sync in syncs} == {SyncState.PUBLISHED}
            assert (keeper.refused.count, keeper.problem, keeper.progress.closed) == (0, None, ticks)


def _times(store: object) -> list[int]:
    with store.engine.read() as sql:  # type: ignore[attr-defined]
        return [int(times) for (times,) in sql.all("SELECT times FROM participants WHERE term = 1")]


def test_nothing_grows_with_ticks(tmp_path: Path, size: Size, tally: Tally) -> None:
    """In the second half files do not grow at all, but for what SQLite sets aside, and memory by less than 8 MB."""
    ticks = size(300, 5_000)
    privacy = Privacy(1.0, 1e-5, participations=CAP, apart=APART)
    plan = Plan(3, LOOKED_AT, 2, privacy, schedule=clock(HOUR), forget=0.7, endless=True)
    quick = QUICK if QUICK.is_dir() and os.access(QUICK, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=quick) as folder, ExitStack() as stack:
        soak = EndlessSoak(Path(folder), plan, stack)
        marks = asyncio.run(soaked(soak, ticks, (ticks // 2, ticks)))
        soak.finished(ticks)
    middle, late = marks
    assert late.memory - middle.memory < 8 * 2**20, marks
    for name, size_ in late.files.items():
        assert size_ <= 1.05 * middle.files[name] + 2**16, (
            f"{name} grows with ticks: {json.dumps([m.files for m in marks])}"
        )
    assert late.logs < 2 * LOG, marks
    tally("ticks without an end", ticks)
