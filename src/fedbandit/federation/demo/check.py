"""Is what the federation computed what the library computes? From the applications' own notes and what is on disk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.bandit.statistics import contributions
from fedbandit.federation import mixing, releasing
from fedbandit.federation.demo.clients import Visits
from fedbandit.federation.demo.users import Indices, Users
from fedbandit.federation.home import Home
from fedbandit.federation.learning import Outcome
from fedbandit.federation.noise import ExactNoise
from fedbandit.federation.store import RoundStore, SiloStore, open_engine
from fedbandit.plan import Plan
from fedbandit.protocol.encoder import Stream


class Check(NamedTuple):
    """Every reward that an application had acknowledged is in the sums once; the model is the library's."""

    acknowledged: int  # rewards, by the applications
    counted: int  # rewards, by the silos' releases
    sums_equal: bool  # the silos' encoders are bit for bit where the applications' notes lead
    difference: float | None  # largest, between the live prefix sums and the library's from the same releases
    models: int  # different last models over silos and analyzer: 1

    @property
    def passed(self) -> bool:
        equal = self.difference is None or self.difference < 1e-6
        return self.acknowledged == self.counted and self.sums_equal and equal and self.models == 1


def check(plan: Plan, users: Users, actions: Indices, visits: list[Visits], homes: list[Home]) -> Check:
    """Compare; every party has stopped and its store can be read."""
    silos = [_read(home, plan) for home in homes if home.settings.role == "silo"]
    outcomes = _outcomes(next(home for home in homes if home.settings.role == "analyzer"), plan)
    return Check(
        acknowledged=sum(batch >= 0 for one in visits for batch in one.batches),
        counted=sum(silo.users for silo in silos),
        # Vector-sum rounds every user at random: its state is not a function of the applications' notes.
        sums_equal=plan.protocol.needs_points
        or all(
            _same(_encoded(plan, users, actions, number, visits[number].batches), silo.encoder)
            for number, silo in enumerate(silos)
        ),
        # The trusted server's noise is not kept, so there is nothing to compare with.
        difference=None if plan.trust == "central" else _difference(plan, outcomes, [silo.sent for silo in silos]),
        models=len({outcomes[-1].encode(), *(silo.model for silo in silos)}),
    )


class _Silo(NamedTuple):
    users: int
    sent: dict[int, bytes]  # by step
    encoder: Stream
    model: bytes


def _read(home: Home, plan: Plan) -> _Silo:
    engine = open_engine(home.store(plan.hash))
    try:
        store = SiloStore(engine)
        releases = store.releases(1)
        state = releasing.load_state(plan.protocol, store.encoder(1))
        sent = {release.step: release.sent for release in releases if release.sent is not None}
        return _Silo(sum(release.users for release in releases), sent, state, store.models(1)[-1][1])
    finally:
        engine.close()


def _outcomes(home: Home, plan: Plan) -> list[Outcome]:
    engine = open_engine(home.store(plan.hash))
    try:
        values = [stored.value for stored in RoundStore(engine).rounds() if stored.value is not None]
        return [Outcome.decode(value, plan) for value in values]
    finally:
        engine.close()


def _difference(plan: Plan, outcomes: list[Outcome], sent: list[dict[int, bytes]]) -> float:
    """The library's A on what the silos of each round sent, against the live prefix sums. (That S shuffles, or adds up
    shares, cannot change them.)"""
    state, worst, last = plan.protocol.init_analyzer(), 0.0, None
    for step, live in enumerate(outcomes):
        if live.skipped:
            state, last = mixing.skip(plan, state, last)
        else:
            present = [silo[step] for silo, there in zip(sent, live.cohort, strict=True) if there]
            mixed = plan.protocol.mix(mixing.stacked(plan, present), ExactNoise())
            state, last = mixing.decode(plan, state, mixed, live.cohort)
        worst = max(worst, float(np.abs(live.prefix - last.prefix).max()))
    return worst


def _encoded(plan: Plan, users: Users, actions: Indices, silo: int, batches: list[int]) -> Stream:
    """Where a silo's encoder must stand, from what its applications noted: which reward counted in which batch."""
    chosen = np.take_along_axis(users.contexts[silo], actions[silo][:, None, None], axis=1)[:, 0]
    packed = contributions(chosen, users.rewards(actions)[silo], plan.bits, plan.centre)
    state = plan.protocol.init()
    for step in range(len(plan.times)):
        batch: NDArray[np.int64] = packed[np.array(batches) == step].sum(axis=0)
        state, _ = plan.encoder.step(state, batch)
    return state


def _same(one: Stream, other: Stream) -> bool:
    pairs = zip(one.memory, other.memory, strict=True)
    return one.step == other.step and all(np.array_equal(a, b) for a, b in pairs)
