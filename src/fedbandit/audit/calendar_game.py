"""The audited run: the plan's own R, S and A, its acting and its calendar, in one of two neighbouring worlds.

During the run, the noiseless releases of both worlds are computed from the transcript and nothing else: the strongest
adversary can do no more. Runs are vectorised over trials; every array starts with that axis (or with 1 if all trials
agree).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.audit.residuals import Recorder, Tallies
from fedbandit.audit.times_and_sizes import Envelope
from fedbandit.audit.worlds import Batch, World
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.adversaries import Adversary, Moment
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Encoder

__all__ = ["CalendarGame", "Retraced", "Scored", "adversaries_of", "calendar_game", "decided", "remembered"]

Entries = TypeVar("Entries", Floats, Integers)


class Scored(NamedTuple):
    """The results of some trials in one world."""

    scores: Floats  # (adversaries, trials); above zero means "world 1"
    envelopes: tuple[Envelope, ...] = ()  # times and sizes of all messages; one for all trials, or one per trial
    tallies: Tallies = {}  # of the noise itself  # noqa: RUF012 (never written to)


@dataclass(frozen=True)
class CalendarGame:
    """A plan whose schedule is public, and two worlds to tell apart."""

    plan: Plan  # how silos learn, and when
    protocol: Protocol  # the protocol that runs: the plan's own for the played silos, unless a fault was planted
    eager: bool  # whether silos act on raw sums, whatever the plan says
    silos: int  # that are played; the others are the adversary's or take part in no sync, and send nothing
    worlds: tuple[World, World]
    adversaries: tuple[Adversary, ...]

    @property
    def chunk(self) -> int:
        """The number of trials that are run together: enough to be fast, few enough to stay in memory."""
        return int(np.clip(200_000 // (self.silos * self.protocol.width), 20, 1000))

    @property
    def claimed(self) -> Protocol:
        """The plan's own protocol, for the played silos."""
        return _among(self.plan.protocol, self.silos)

    @property
    def planned(self) -> Envelope:
        """Times and sizes of all messages according to the plan."""
        claimed = self.claimed
        size = self.silos * claimed.width * np.dtype(np.int64).itemsize
        return tuple((_slot(time, part), size) for time in self.plan.times for part in range(len(claimed.parts)))

    def play(self, world: int, trials: int, noise: NoiseSource) -> Scored:
        """Run every sync of the calendar in this world and let every adversary score it."""
        scores = np.zeros((len(self.adversaries), trials))
        envelope: list[tuple[str, int]] = []
        claimed, recorder = self.claimed, Recorder(len(self.worlds[0]) * self.silos * self.protocol.width)
        for moment in self._moments(world, trials, noise):
            time, sent = self.plan.times[moment.sync], moment.sent[-1]
            envelope += [(_slot(time, part), array.nbytes // trials) for part, array in enumerate(sent)]
            few = _first(moment, recorder.runs)
            for row, adversary in zip(scores, self.adversaries, strict=True):
                row += adversary.score(self.protocol, moment)
                recorder.add(adversary.residuals(claimed, few, world))
        return Scored(scores, (tuple(envelope),), recorder.tallies())

    def squares(self, noise: NoiseSource) -> dict[str, Floats]:
        """By stream of noise, in one run: the sum of every entry's squared residuals over syncs and silos, and their
        number, (width, 2)."""
        claimed, found = self.claimed, dict[str, Floats]()
        for moment in self._moments(0, 1, noise):
            for adversary in self.adversaries:
                for residual in adversary.residuals(claimed, moment, 0):
                    if not residual.uniform:
                        sums = (residual.values**2).sum(axis=(0, 1))
                        count = np.full(len(sums), float(np.prod(residual.values.shape[:2])))
                        found[residual.name] = found.get(residual.name, 0.0) + np.stack([sums, count], axis=-1)
        return found

    def exact_mu(self) -> dict[str, float]:
        """By adversary, the mu of the claimed noise for these two worlds, computed without drawing noise.

        The score of a run without noise is mu^2 / 2. An adversary who sees random words has a random score, and no mu.
        """
        one, again = (self._silent_scores(seed) for seed in (0, 1))
        scored = zip(self.adversaries, one, again, strict=True)
        return {a.name: float(np.sqrt(max(0.0, 2 * s))) for a, s, t in scored if s == t and a.bound == "gdp"}

    def _silent_scores(self, seed: int) -> list[float]:
        """The score of each adversary in one run of world 1 without noise."""
        scores = np.zeros(len(self.adversaries))
        for moment in self._moments(1, 1, _Silent(np.random.default_rng(seed))):
            scores += [float(np.squeeze(adversary.score(self.protocol, moment))) for adversary in self.adversaries]
        return scores.tolist()

    def _moments(self, world: int, trials: int, noise: NoiseSource) -> Iterator[Moment]:
        """Every sync of the calendar as it happens in this world, with the noiseless releases of both worlds."""
        protocol = self.protocol
        state = composition.init(protocol, (trials,), self.silos)
        prefix = np.zeros((1, protocol.width))  # before the first sync all trials agree
        memories = tuple(Retraced(protocol.encoder, self.silos, protocol.width) for _ in self.worlds)
        sent: list[Message] = []
        for sync, batches in enumerate(zip(*self.worlds, strict=True)):
            points = tuple(decided(self.plan, batch, prefix, self.eager) for batch in batches)
            low, high = (memory.release(sync, p.sum(axis=-2)) for memory, p in zip(memories, points, strict=True))
            batch = self._collected(state, points[world], trials, noise)
            state, transcript = composition.send(protocol, state, batch, noise)
            _refuse_undeclared(protocol, transcript.sent)
            sent = remembered(self.adversaries, sent, transcript.sent)
            yield Moment(sync, points[world].shape[-2], (low, high), sent, transcript.held)
            if sync < self._last_choice:  # a later chooser needs a model
                state = composition.receive(protocol, state, transcript)
                prefix = state.prefix

    @property
    def _last_choice(self) -> int:
        """The last batch in which somebody has a choice."""
        return max((sync for sync, batch in enumerate(self.worlds[0]) if batch.choosers), default=0)

    def _collected(self, state: composition.State, points: Integers, trials: int, noise: NoiseSource) -> Integers:
        """What the batches keep of their users' data `points`, (1 or trials, silos, users, width)."""
        if self.protocol.needs_points:
            everyone = np.broadcast_to(points, (trials, *points.shape[1:]))
            return self.protocol.collect(state.silos, everyone, noise)
        sums = np.broadcast_to(points.sum(axis=-2), (trials, self.silos, self.protocol.width))
        return self.protocol.privatise(sums, points.shape[-2], noise)


class _Silent(SimulatedNoise):
    """A noise source whose Gaussian noise is zero; everything else is random."""

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        return np.zeros((*lead, len(scales)), dtype=np.int64)


def calendar_game(plan: Plan, silos: int, worlds: tuple[World, World]) -> CalendarGame:
    """The game of the plan, unchanged, against every adversary that its trust model names."""
    return CalendarGame(plan, _among(plan.protocol, silos), plan.acting == "eager", silos, worlds, adversaries_of(plan))


def adversaries_of(plan: Plan) -> tuple[Adversary, ...]:
    """Every adversary that the plan's trust model names; without one there is nothing to audit."""
    named = plan.protocol.adversaries()
    if not named:
        raise ArgumentError("trust", f"must name an adversary to be audited; {plan.trust!r} names none")
    return named


def _among(protocol: Protocol, silos: int) -> Protocol:
    """The protocol with unchanged noise, when this number of silos is in a sync."""
    return replace(protocol, silos=silos)


def _refuse_undeclared(protocol: Protocol, sent: Message) -> None:
    """Refuse a message with numbers that no adversary looks at: an array that `parts` does not declare is padding, or
    has the shape of a release and is scored as a copy of it. (A live silo sends nothing that is not declared.)"""
    for index, array in enumerate(sent[len(protocol.parts) :], len(protocol.parts)):
        if array.shape[-1] != protocol.width and array.any():
            raise ArgumentError(
                "trust",
                f"must declare all that its silos send, got numbers in array {index} of a message, not in `parts`",
            )


def _first(moment: Moment, runs: int) -> Moment:
    """The same moment, for the first `runs` runs only."""
    low, high = (expected[:runs] for expected in moment.expected)
    sent = [tuple(array[:runs] for array in message) for message in moment.sent]
    return moment._replace(expected=(low, high), sent=sent, held=tuple(array[:runs] for array in moment.held))


def _slot(time: int, part: int) -> str:
    return f"array {part} after round {time}"


def remembered(adversaries: Sequence[Adversary], earlier: list[Message], sent: Message) -> list[Message]:
    """All messages so far, or only the newest if no adversary looks back."""
    return [*earlier, sent] if any(adversary.remembers for adversary in adversaries) else [sent]


def decided(plan: Plan, batch: Batch, prefix: Floats, eager: bool) -> Integers:
    """Contributions of all users of a batch, given the synchronised sums (1 or trials, width).

    A lazy silo decides by the synchronised model; an eager one also by the raw sums of earlier users of the batch.
    """
    if not batch.choosers:
        return batch.fixed[None]
    before = batch.fixed.sum(axis=1)[None]  # (1 or trials, silos, width)
    chosen: list[Integers] = []
    for chooser in range(batch.choosers):
        sums = prefix[:, None] + before * 2.0**-plan.bits if eager else prefix[:, None]
        chosen.append(_chosen(plan, batch, chooser, sums))
        before = before + chosen[-1]
    fixed = np.broadcast_to(batch.fixed, (chosen[0].shape[0], *batch.fixed.shape))
    return np.concatenate([fixed, np.stack(chosen, axis=-2)], axis=-2)


def _chosen(plan: Plan, batch: Batch, chooser: int, sums: Floats) -> Integers:
    """What chooser number `chooser` of every silo adds: (1 or trials, silos, width)."""
    model = plan.fit(sums, batch.rounds[chooser]).model
    actions, rewards = batch.actions[:, chooser], batch.rewards[:, chooser]
    arms = np.argmax(linucb.upper_bounds(actions[None], model), axis=-1)  # (1 or trials, silos)
    silos = np.arange(actions.shape[0])
    return contributions(actions[silos, arms], rewards[silos, arms], plan.bits, plan.centre)


class Retraced:
    """The noiseless releases of one world, computed by the encoder's matrix instead of its stream."""

    def __init__(self, encoder: Encoder, silos: int, width: int) -> None:
        self._encoder = encoder
        self._agreed = np.zeros((encoder.size, silos, width), dtype=np.int64)  # batches that all trials share
        self._own: dict[int, Integers] = {}  # batches that depend on the trial

    def release(self, sync: int, sums: Integers) -> Integers:
        """Row `sync` of C on all batches so far, in release units: (1 or trials, silos, width)."""
        if sums.shape[0] == 1:
            self._agreed[sync] = sums[0]
        else:
            self._own[sync] = sums
        row = self._encoder.row(sync) * 2.0**self._encoder.fraction_bits
        if self._encoder.rounding_units:  # the release is rounded as a whole, not the coefficients
            return np.asarray(np.rint(self._weighted(row, sync)).astype(np.int64))
        return self._weighted(np.rint(row).astype(np.int64), sync)

    def _weighted(self, row: Entries, sync: int) -> Entries:
        """The sum of the batches so far, weighted by a row of integers or floats."""
        total: Entries = np.tensordot(row, self._agreed[: sync + 1], axes=1)[None]
        for j, own in self._own.items():
            if row[j]:
                total = total + row[j] * own
        return total
