"""Checks that the federation computed what the library computes, from the applications' notes and what is on disk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Integers
from fedbandit.bandit.statistics import contributions
from fedbandit.demo.clients import Visits
from fedbandit.demo.visitors import Visitors
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo.decisions.actions import checked_many, inside
from fedbandit.federation.store import SiloStore, SyncStore, open_engine
from fedbandit.federation.wire import messages
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan
from fedbandit.protocol.base import Message
from fedbandit.protocol.encoder import Stream

__all__ = ["Verification", "check"]


class Verification(NamedTuple):
    """Whether every acknowledged reward is in the sums exactly once, and the model is the library's."""

    acknowledged: int  # rewards that were acknowledged to the applications
    counted: int  # rewards in the silos' releases
    sums_equal: bool  # whether the silos' encoders have, bit for bit, the state that the applications' notes give
    difference: float | None  # the largest between the live prefix sums and the library's from the same releases
    models: int  # the number of different last models among silos and analyzer, which must be 1

    @property
    def passed(self) -> bool:
        equal = self.difference is None or self.difference < 1e-6
        return self.acknowledged == self.counted and self.sums_equal and equal and self.models == 1


def check(plan: Plan, users: Visitors, actions: Integers, visits: list[Visits], homes: list[Home]) -> Verification:
    """Compare, after every party has stopped, so that its store can be read."""
    silos = [_read(home, plan) for home in homes if home.settings.role == "silo"]
    outcomes = _outcomes(next(home for home in homes if home.settings.role == "analyzer"), plan)
    return Verification(
        acknowledged=sum(batch >= 0 for one in visits for batch in one.batches),
        counted=sum(silo.users for silo in silos),
        # If a protocol rounds every user at random, its state is not a function of the applications' notes.
        sums_equal=plan.protocol.needs_points
        or all(
            _same(_encoded(plan, users, actions, number, visits[number].batches), silo.encoder)
            for number, silo in enumerate(silos)
        ),
        # Noise that S draws is not kept, so there is nothing to compare with.
        difference=None if plan.protocol.mixer_draws else _difference(plan, outcomes, [silo.sent for silo in silos]),
        models=len({outcomes[-1].encode(), *(silo.model for silo in silos)}),
    )


class _Silo(NamedTuple):
    users: int
    sent: dict[int, Message]  # by sync
    encoder: Stream
    model: bytes


def _read(home: Home, plan: Plan) -> _Silo:
    engine = open_engine(home.store(plan.hash))
    try:
        store = SiloStore(engine)
        releases = store.releases(1)
        stored = store.encoder(1)
        state = plan.protocol.init() if stored is None else messages.decode_stream(stored)
        sent = {release.sync: messages.decode(release.sent) for release in releases if release.sent is not None}
        return _Silo(sum(release.users for release in releases), sent, state, store.models(1)[-1][1])
    finally:
        engine.close()


def _outcomes(home: Home, plan: Plan) -> list[Outcome]:
    engine = open_engine(home.store(plan.hash))
    try:
        values = [stored.value for stored in SyncStore(engine).all() if stored.value is not None]
        return [Outcome.decode(value, plan) for value in values]
    finally:
        engine.close()


def _difference(plan: Plan, outcomes: list[Outcome], sent: list[dict[int, Message]]) -> float:
    """The largest difference between the live prefix sums and those of the library's S and A on what the silos sent.

    (Shuffling, or adding up shares, cannot change them.)
    """
    protocol, worst = plan.protocol, 0.0
    state, prefix = protocol.init_analyzer(), np.zeros(protocol.width)
    for sync, live in enumerate(outcomes):
        if live.skipped:
            state = protocol.skip(state)
        else:
            present = [silo[sync] for silo, there in zip(sent, live.cohort, strict=True) if there]
            together = tuple(np.stack(arrays) for arrays in zip(*present, strict=True))
            state, prefix = protocol.decode(state, protocol.passed_on(together, ExactNoise()))
        worst = max(worst, float(np.abs(live.prefix - prefix).max()))
    return worst


def _encoded(plan: Plan, users: Visitors, actions: Integers, silo: int, batches: list[int]) -> Stream:
    """The state that a silo's encoder must have, by the applications' notes of the batch in which a reward counts."""
    offered = checked_many(users.contexts[silo], plan.dim)
    chosen = inside(np.take_along_axis(offered, actions[silo][:, None, None], axis=1)[:, 0])
    rewards = [users.reward(silo, round_, int(action)) for round_, action in enumerate(actions[silo])]
    packed = contributions(chosen, rewards, plan.bits, plan.centre)
    state = plan.protocol.init()
    for sync in range(len(plan.times)):
        batch: Integers = packed[np.array(batches) == sync].sum(axis=0)
        state, _ = plan.encoder.step(state, batch)
    return state


def _same(one: Stream, other: Stream) -> bool:
    pairs = zip(one.memory, other.memory, strict=True)
    return one.done == other.done and all(np.array_equal(a, b) for a, b in pairs)
