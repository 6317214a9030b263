"""Audits a schedule that depends on the data: the determinant rule, on raw sums or on noisy ones.

Only the user's silo is played; the others are the adversary's, send nothing and never ask for a sync. All users have a
single action. Each trial synchronises after different rounds, so trials are run sync by sync: all wait the same number
of rounds, each counted from its own last sync, until each has reached its next sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Flags, Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.audit.calendar_game import Retraced, Scored, adversaries_of, remembered
from fedbandit.audit.residuals import Recorder
from fedbandit.audit.times_and_sizes import Envelope
from fedbandit.audit.worlds import User, telling_pair
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol import composition
from fedbandit.protocol.adversaries import Adversary, Bound, Moment, Residual, gaussian_residuals, gaussian_score
from fedbandit.protocol.base import Message
from fedbandit.protocol.determinant import DeterminantRule, RuleState
from fedbandit.schedule import Adaptive

__all__ = ["MESSAGES", "RULE", "TIMES", "AdaptiveGame", "adaptive_games", "decisive_background"]

PILOT_SEED, PILOT_TRIALS = 0, 200
TIMES = "an observer of when messages are sent"
MESSAGES = "an observer of the messages"
RULE_NOISE = "noise of the sums that the rule looks at"
RULE = "an observer of the messages and of the sums that the rule looks at"
FIRST_LOOK, LAST_LOOK, ALL_LOOKS, RELEASE_BEFORE = "first look", "last look", "all looks", "release before"


class View(NamedTuple):
    """An observer who sees a part of it, and what its success refutes."""

    name: str
    bound: Bound


@dataclass(frozen=True)
class AdaptiveGame:
    """A plan with an adaptive schedule, and two worlds that differ in the user of the first round.

    That user also comes in the next rounds, as often as the promise allows.
    """

    plan: Plan
    rule: DeterminantRule  # the rule that runs: the plan's own, unless a fault was planted
    worlds: tuple[Integers, Integers]  # (rounds, width): contributions
    expected_time: float  # a first sync before this time speaks for world 1
    reader: Adversary  # of the messages
    adversaries: tuple[View, ...]

    silos = 1  # that are played
    planned: Envelope = ()  # unknown: times depend on the data

    @property
    def chunk(self) -> int:
        """The number of trials that are run together: enough to be fast, few enough to keep all messages in memory."""
        return int(np.clip(10_000_000 // (self.plan.rounds * self.plan.protocol.width), 20, 1000))

    def play(self, world: int, trials: int, noise: NoiseSource) -> Scored:
        """Run to the horizon; score the times, the messages, and the messages with what the rule looks at."""
        protocol, rounds = self.plan.protocol, self.plan.rounds
        totals = tuple(_cumulative(points) for points in self.worlds)
        memories = tuple(Retraced(protocol.encoder, 1, protocol.width) for _ in self.worlds)
        state, last = composition.init(protocol, (trials,), self.silos), np.zeros(trials, dtype=np.int64)
        times, messages, nodes = np.zeros(trials), np.zeros(trials), np.zeros(trials)
        sent: list[Message] = []
        before: dict[str, Floats] = {}  # noise up to the last sync
        recorder = Recorder(rounds * protocol.width)
        while (last < rounds).any():
            sync = state.silos.done
            now, seen, looks = self._next(world, last, state.prefix, noise, recorder)
            batches = tuple((total[now] - total[last])[:, None] for total in totals)
            state, transcript = composition.send(protocol, state, batches[world], noise)
            low, high = (memory.release(sync, batch) for memory, batch in zip(memories, batches, strict=True))
            sent = remembered((self.reader,), sent, transcript.sent)
            moment = Moment(sync, 1, (low, high), sent, transcript.held)
            messages += np.where(last < rounds, self.reader.score(protocol, moment), 0.0)
            released = self.reader.residuals(protocol, moment, world)
            recorder.add(released)
            if self.rule.private:
                before = _compared(recorder, before, looks, released, last < rounds)
            nodes += seen
            if sync == 0:
                times += self.expected_time - now
            state, last = composition.receive(protocol, state, transcript), now
        scores = {TIMES: times, MESSAGES: messages, RULE: messages + nodes}
        return Scored(np.stack([scores[view.name] for view in self.adversaries]), (), recorder.tallies())

    def _next(
        self, world: int, last: Integers, prefix: Floats, noise: NoiseSource, recorder: Recorder
    ) -> tuple[Integers, Floats, dict[str, Floats]]:
        """When each trial synchronises next, the score of what the rule has looked at until then, and the noise in it
        (trials, entries): that of the first look, that of the last, and that of all together."""
        rounds, covariances = self.plan.rounds, self.worlds[world][:, self.plan.dim :]
        root = self.plan.fit(prefix, rounds).model.root
        now, scores = last.copy(), np.zeros(len(last))
        waiting: Flags = last < rounds
        first = not last.any()  # the user comes in the first rounds, where the rule's sums differ most
        state, history, looks = self.rule.init((len(last),)), list[Integers](), dict[str, Floats]()
        while waiting.any():
            history.append(covariances[np.minimum(last + state.waited, rounds - 1)])
            state, asks = self.rule.step(state, history[-1], root, noise)
            scores += np.where(waiting, self._node_score(state) if first else 0.0, 0.0)
            if self.rule.private:
                row = self.rule.tree.row(state.waited - 1)
                exact = sum(row[j] * history[j] for j in np.flatnonzero(row))
                (seen,) = gaussian_residuals(
                    RULE_NOISE, state.node[:, None], exact[:, None], self.plan.rule.node_scales
                )
                looks = _looked(looks, seen.values[:, 0], waiting)
                recorder.add((seen,) if first else ())
            now += waiting
            waiting &= ~asks & (now < rounds)
        return now, scores, looks

    def _node_score(self, state: RuleState) -> Floats | float:
        """Log-likelihood ratio of the tree node that the last round completed; the tree begins with the user."""
        if not self.rule.private:
            return 0.0
        row = self.rule.tree.row(state.waited - 1)
        low, high = (row @ points[: state.waited, self.plan.dim :] for points in self.worlds)
        return gaussian_score(state.node, (low, high), self.rule.node_scales, axes=(-1,))


def _looked(looks: dict[str, Floats], seen: Floats, waiting: Flags) -> dict[str, Floats]:
    """What is known of the noise that the rule has looked at, with that of one more round (trials, entries)."""
    if not looks:
        return dict.fromkeys((FIRST_LOOK, LAST_LOOK, ALL_LOOKS), seen)
    still = waiting[:, None]
    last, together = np.where(still, seen, looks[LAST_LOOK]), looks[ALL_LOOKS] + np.where(still, seen, 0.0)
    return {**looks, LAST_LOOK: last, ALL_LOOKS: together}


def _compared(
    recorder: Recorder,
    before: dict[str, Floats],
    looks: dict[str, Floats],
    released: Sequence[Residual],
    runs: Flags,
) -> dict[str, Floats]:
    """Compare the first look after a sync with the noise `before` it, and the release that follows with all looks;
    returns the noise before the next look."""
    if before:
        recorder.fresh(f"{RULE_NOISE}, after a sync", looks[FIRST_LOOK], before, runs)
    for residual in released:
        noise = residual.values[:, 0]
        recorder.fresh(f"{residual.name}, beside {RULE_NOISE}", noise, looks, runs)
        before = {**looks, RELEASE_BEFORE: noise}
    return before


def adaptive_games(plan: Plan) -> tuple[AdaptiveGame, ...]:
    """A game for the user whose norm decides whether to synchronise; under a private rule, also one for the user of
    largest shift."""
    assert isinstance(plan.schedule, Adaptive)
    assert plan.privacy is not None
    if not plan.trusting.separate:
        raise ArgumentError(
            "trust", f"must protect each silo on its own to audit an adaptive schedule, got {plan.trust!r}"
        )
    if plan.privacy.silos_per_user > 1:
        raise ArgumentError(
            "silos_per_user",
            f"must be 1 to audit an adaptive schedule, because one silo is played; got {plan.privacy.silos_per_user}",
        )
    someone, nobody = User(np.eye(plan.dim)[0], 1.0), User(np.zeros(plan.dim), 1.0)
    size, decided = decisive_background(plan)
    by_norm = _game(plan, (nobody, someone), size, decided + 0.5, View(TIMES, "dp"))
    if not plan.schedule.private:
        return (by_norm,)
    bound = by_norm.reader.bound
    by_shift = _game(plan, telling_pair(plan), size, decided + 0.5, View(MESSAGES, bound), View(RULE, bound))
    return (replace(by_norm, expected_time=_typical_time(by_norm)), by_shift)


def _typical_time(game: AdaptiveGame) -> float:
    """The median time of the first sync in world 0, from a pilot run with separate noise: fixed before the audit."""
    pilot = SimulatedNoise(np.random.default_rng(PILOT_SEED))
    return game.expected_time - float(np.median(game.play(0, PILOT_TRIALS, pilot).scores[0]))


def decisive_background(plan: Plan) -> tuple[float, int]:
    """The norm of all other users at which the user's norm decides whether round t synchronises, and that t.

    Without noise the gain after t rounds is log det(I + W / lambda). If even unit vectors never reach the threshold,
    there is nothing to decide: the norm is 1 and t is the last round. If the user alone is enough for a sync, nobody
    else is needed: the norm is 0 and t is the first round.
    """
    from scipy.optimize import brentq  # imported late: no other audit waits for it

    rounds = np.arange(1, plan.rounds + 1)
    if _raw_gains(plan, 0.0, 1.0)[0] > plan.rule.limit(1):
        return 0.0, 1
    crossed = np.flatnonzero(_raw_gains(plan, 1.0, 0.0) > plan.rule.limit(rounds))
    if not len(crossed):
        return 1.0, plan.rounds
    t = int(rounds[crossed[0]])

    def excess(size: float) -> float:
        with_user, without = _raw_gains(plan, size, 1.0), _raw_gains(plan, size, 0.0)
        return float((with_user[t - 1] + without[t - 1]) / 2 - plan.rule.limit(t))

    return float(brentq(excess, 0.0, 1.0)), t


def _raw_gains(plan: Plan, size: float, user: float) -> Floats:
    """log det(I + W / lambda) after every round, for a user of norm `user` followed by others of norm `size`."""
    x = _others(plan, size)
    x[: _visits(plan)] = user * np.eye(plan.dim)[0]
    weights = np.cumsum(x**2, axis=0)
    return np.asarray(np.log1p(weights / plan.regulariser).sum(axis=1))


def _others(plan: Plan, size: float) -> Floats:
    """Vectors of norm `size`, along one axis after another, (rounds, dim)."""
    return np.asarray(size * np.eye(plan.dim)[np.arange(plan.rounds) % plan.dim])


def _visits(plan: Plan) -> int:
    """The number of consecutive rounds that the user takes part in."""
    assert plan.privacy is not None
    return min(plan.privacy.participations, plan.rounds)


def _game(plan: Plan, pair: tuple[User, User], size: float, expected: float, *views: View) -> AdaptiveGame:
    """The game in which the user is one of the pair, and everybody else has norm `size`."""
    worlds = []
    for user in pair:
        x = _others(plan, size)
        x[: _visits(plan)] = user.x
        worlds.append(contributions(x, np.full(plan.rounds, user.y), plan.bits, plan.centre))
    (reader,) = adversaries_of(plan)
    return AdaptiveGame(plan, plan.rule, (worlds[0], worlds[1]), expected, reader, views)


def _cumulative(points: Integers) -> Integers:
    """Sums over the first 0, 1, 2, ... rounds."""
    return np.concatenate([np.zeros((1, points.shape[1]), dtype=np.int64), np.cumsum(points, axis=0)])
