"""The audited run: the plan's own R, S and A, its acting and its calendar, in one of two neighbouring worlds.

Both worlds are retraced beside the run, from what the transcript shows and nothing else: that is what the
strongest adversary can do. Runs are vectorised over trials; every array starts with that axis (or with 1
where trials agree).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit.audit.adversaries import Adversary, Moment
from fedbandit.audit.bounds import Bound
from fedbandit.audit.worlds import Batch, Floats, Integers, World
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.silo import DecodedSilo

Envelope = tuple[tuple[int, tuple[int, ...], str], ...]  # of every message: when, which shape, which kind of number


class Played(NamedTuple):
    """What came of some trials in one world."""

    scores: Floats  # (adversaries, trials); above zero means "world 1"
    envelope: Envelope  # times and sizes of all messages, which everybody sees


@dataclass(frozen=True)
class Learner:
    """What silos decide by."""

    dim: int
    bits: int
    centre: float
    regulariser: float
    floor: float
    eager: bool


@dataclass(frozen=True)
class CalendarGame:
    """A plan whose schedule is public, and two worlds to tell apart."""

    protocol: Protocol
    learner: Learner
    times: tuple[int, ...]
    silos: int  # played; the others are the adversary's, and send nothing
    worlds: tuple[World, World]
    adversaries: tuple[Adversary, ...]

    @property
    def chunk(self) -> int:
        """Trials that are run together: enough to be fast, few enough to stay in memory."""
        return int(np.clip(200_000 // (self.silos * self.protocol.width), 20, 1000))

    @property
    def names(self) -> tuple[str, ...]:
        """The adversaries."""
        return tuple(adversary.name for adversary in self.adversaries)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What the success of each of them refutes."""
        return tuple(adversary.bound for adversary in self.adversaries)

    def play(self, world: int, trials: int, noise: NoiseSource) -> Played:
        """Run every step of the calendar in this world and let every adversary score it."""
        protocol, width = self.protocol, self.protocol.width
        state, analyzer = protocol.init((trials, self.silos)), protocol.init_analyzer((trials,))
        prefix = np.zeros((1, width))
        memories = tuple(Retraced(protocol.encoder, self.silos, width) for _ in self.worlds)
        scores = np.zeros((len(self.adversaries), trials))
        messages: list[Message] = []
        decoded = isinstance(protocol, DecodedSilo)  # then earlier messages are needed to make sense of a later one
        envelope = []
        last_choice = max((k for k, batch in enumerate(self.worlds[0]) if batch.choosers), default=0)
        for step, batches in enumerate(zip(*self.worlds, strict=True)):
            points = tuple(decided(self.learner, batch, prefix) for batch in batches)
            low, high = (memory.release(step, p.sum(axis=-2)) for memory, p in zip(memories, points, strict=True))
            everyone = np.broadcast_to(points[world], (trials, *points[world].shape[1:]))
            if protocol.needs_points:
                batch = protocol.collect(state, everyone, noise)
            else:
                sums = np.broadcast_to(points[world].sum(axis=-2), (trials, self.silos, width))
                batch = protocol.privatise(sums, everyone.shape[-2], noise)
            state, message = protocol.release(state, batch, noise)
            mixed = protocol.mix(message, noise)
            messages = [*messages, message] if decoded else [message]
            envelope += [(self.times[step], array.shape[1:], array.dtype.str) for array in message]
            moment = Moment(step, everyone.shape[-2], (low, high), messages, mixed)
            for row, adversary in zip(scores, self.adversaries, strict=True):
                row += adversary.score(protocol, moment)
            if step < last_choice:  # somebody still needs a model
                analyzer, prefix = protocol.decode(analyzer, mixed)
        return Played(scores, tuple(envelope))


def calendar_game(
    plan: Plan, silos: int, worlds: tuple[World, World], adversaries: tuple[Adversary, ...]
) -> CalendarGame:
    """The plan as shipped."""
    learner = Learner(plan.dim, plan.bits, plan.centre, plan.regulariser, plan.learner.floor, plan.acting == "eager")
    return CalendarGame(plan.protocol, learner, plan.times, silos, worlds, adversaries)


def decided(learner: Learner, batch: Batch, prefix: Floats) -> Integers:
    """Contributions of all users of a batch, given the synchronised sums (1 or trials, width).

    Lazily everybody decides by the synchronised model; eagerly also by the raw sums of those before them in
    the batch.
    """
    if not batch.choosers:
        return batch.fixed[None]
    before = batch.fixed.sum(axis=1)[None]  # (1 or trials, silos, width)
    chosen: list[Integers] = []
    for i in range(batch.choosers):
        sums = prefix[:, None] + before * 2.0**-learner.bits if learner.eager else prefix[:, None]
        chosen.append(_choose(learner, batch, i, sums))
        before = before + chosen[-1]
    fixed = np.broadcast_to(batch.fixed, (chosen[0].shape[0], *batch.fixed.shape))
    return np.concatenate([fixed, np.stack(chosen, axis=-2)], axis=-2)


def _choose(learner: Learner, batch: Batch, i: int, sums: Floats) -> Integers:
    """What chooser i of every silo adds: (1 or trials, silos, width)."""
    fitted = linucb.fit(sums, learner.dim, learner.regulariser, learner.floor, batch.radii[i])
    actions, rewards = batch.actions[:, i], batch.rewards[:, i]
    arms = np.argmax(linucb.upper_bounds(actions[None], fitted.model), axis=-1)  # (1 or trials, silos)
    silos = np.arange(actions.shape[0])
    return contributions(actions[silos, arms], rewards[silos, arms], learner.bits, learner.centre)


class Retraced:
    """The noiseless releases of one world, retraced by the encoder's matrix rather than by its stream."""

    def __init__(self, encoder: Encoder, silos: int, width: int) -> None:
        self._encoder = encoder
        self._agreed = np.zeros((encoder.steps, silos, width), dtype=np.int64)  # batches that all trials share
        self._own: dict[int, Integers] = {}  # batches that depend on the trial

    def release(self, step: int, sums: Integers) -> Integers:
        """Row `step` of C on all batches so far, in release units: (1 or trials, silos, width)."""
        if sums.shape[0] == 1:
            self._agreed[step] = sums[0]
        else:
            self._own[step] = sums
        row = np.rint(self._encoder.row(step) * 2.0**self._encoder.fraction_bits).astype(np.int64)
        total: Integers = np.tensordot(row, self._agreed[: step + 1], axes=1)[None]
        for j, own in self._own.items():
            if row[j]:
                total = total + row[j] * own
        return total
