"""Auditing a schedule that the data decide: the determinant rule, on raw sums or on noisy ones.

One silo is played, the user's; the others are the adversary's and neither send nor ask for a synchronisation. All users
have a single action. Trials synchronise at times of their own, so runs are vectorised over synchronisations instead of
rounds: in step k every trial looks for its (k + 1)-th synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from fedbandit.audit.adversaries import Everyone, Moment, gaussian_score
from fedbandit.audit.bounds import Bound
from fedbandit.audit.game import Played, Retraced
from fedbandit.audit.worlds import Floats, Integers, User, worst_pair
from fedbandit.bandit import linucb
from fedbandit.bandit.statistics import contributions, symmetric
from fedbandit.plan import Plan
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol import mechanisms
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.encoder import Encoder
from fedbandit.schedule import Adaptive

PILOT_SEED, PILOT_TRIALS = 0, 200
TIMES = "whoever sees when messages are sent"
MESSAGES = "whoever sees the messages"
RULE = "whoever sees the messages and what the rule looks at"


@dataclass(frozen=True)
class AdaptiveGame:
    """A plan with an adaptive schedule, and two worlds that differ in the user of the first round."""

    protocol: Protocol
    dim: int
    regulariser: float
    floor: float
    threshold: float
    rule_scales: tuple[float, ...]  # noise of the rule in each packed matrix entry, in units of the statistics; 0: raw
    worlds: tuple[Integers, Integers]  # (rounds, width): contributions
    expected_time: float  # a first synchronisation by then speaks for world 1
    names: tuple[str, ...]
    bounds: tuple[Bound, ...]
    chunk: int

    silos = 1  # played

    @property
    def rounds(self) -> int:
        return int(self.worlds[0].shape[0])

    def play(self, world: int, trials: int, noise: NoiseSource) -> Played:
        """Run to the horizon; scores of whoever sees the times, the messages, and the rule's own covariances too."""
        protocol, sums = self.protocol, tuple(_cumulative(points) for points in self.worlds)
        state, analyzer = protocol.init((trials, 1)), protocol.init_analyzer((trials,))
        prefix, last = np.zeros((trials, protocol.width)), np.zeros(trials, dtype=np.int64)
        retraced = tuple(Retraced(protocol.encoder, 1, protocol.width) for _ in self.worlds)
        messages: list[Message] = []
        times, sent, seen = np.zeros(trials), np.zeros(trials), np.zeros(trials)
        for step in range(self.rounds):
            covariances, drawn = self._covariances(world, last, noise)
            now = self._next(last, covariances, prefix, share=step == 0)
            batches = tuple((total[now] - total[last])[:, None] for total in sums)
            state, message = protocol.release(state, batches[world], noise)
            messages.append(message)
            low, high = (memory.release(step, batch) for memory, batch in zip(retraced, batches, strict=True))
            mixed = protocol.mix(message, noise)
            moment = Moment(step, 1, (low, high), messages, mixed)
            sent += np.where(last < self.rounds, Everyone().score(protocol, moment), 0.0)
            if step == 0:
                times += self.expected_time - now
                seen += self._rule_score(drawn, world, now)
            analyzer, prefix = protocol.decode(analyzer, mixed)
            last = now
            if (last == self.rounds).all():
                break
        scores = {TIMES: times, MESSAGES: sent, RULE: sent + seen}
        return Played(np.stack([scores[name] for name in self.names]), ())

    def _covariances(self, world: int, last: Integers, noise: NoiseSource) -> tuple[Floats, Integers]:
        """What the rule looks at, (trials, rounds waited, entries), and the noise in the nodes of its tree."""
        total = _cumulative(self.worlds[world])[:, self.dim :]
        local = (total[self._ends(last)] - total[last][:, None]).astype(np.float64)
        scales = np.array(self.rule_scales)
        if not scales.any():
            return local, np.zeros((0, 0, 0), dtype=np.int64)
        drawn = noise.gaussian(scales, (len(last), self.rounds))
        return local + self._tree.decoder @ drawn, drawn

    def _next(self, last: Integers, covariances: Floats, prefix: Floats, share: bool) -> Integers:
        """When each trial synchronises next; `share`: all stand where the first trial does, unless noise moved them."""
        alike = share and not any(self.rule_scales)
        gains = self._gains(covariances[:1] if alike else covariances, prefix)
        ends = self._ends(last)
        crossed = (gains > self.threshold / np.arange(1, self.rounds + 1)) | (ends >= self.rounds)
        return np.asarray(ends[np.arange(len(last)), np.argmax(crossed, axis=1)])

    def _ends(self, last: Integers) -> Integers:
        """The round it is after waiting 1, 2, ... rounds, up to the horizon: (trials, rounds)."""
        return np.asarray(np.minimum(last[:, None] + np.arange(1, self.rounds + 1), self.rounds))

    @property
    def _tree(self) -> Encoder:
        return mechanisms.encoder("tree", self.rounds)

    def _gains(self, local: Floats, prefix: Floats) -> Floats:
        """By how much the local covariance of every round has grown the determinant of the last synchronisation."""
        fitted = linucb.fit(prefix[: len(local)], self.dim, self.regulariser, self.floor, 0.0).model
        return linucb.log_det_gain(symmetric(local * 2.0**-self.protocol.bits, self.dim), fitted.root[:, None])

    def _rule_score(self, drawn: Integers, world: int, ended: Integers) -> Floats | float:
        """Log-likelihood ratio of the nodes of the rule's first tree, up to the synchronisation that ends it."""
        if not any(self.rule_scales):
            return 0.0
        low, high = (np.rint(self._tree.coefficients @ points[:, self.dim :]) for points in self.worlds)
        each = gaussian_score(drawn + (low, high)[world], (low, high), np.array(self.rule_scales), axes=(-1,))
        return np.asarray(np.cumsum(each, axis=1)[np.arange(len(ended)), ended - 1])


def adaptive_games(plan: Plan, chunk: int) -> tuple[AdaptiveGame, ...]:
    """The user whose norm decides whether to synchronise; and, under a private rule, the user of largest shift."""
    assert isinstance(plan.schedule, Adaptive)
    assert plan.privacy is not None
    if plan.trust != "silo":
        raise ValueError(f"trust must be 'silo' to audit an adaptive schedule, got {plan.trust!r}")
    someone, nobody = User(np.eye(plan.dim)[0], 1.0), User(np.zeros(plan.dim), 1.0)
    size, decided = decisive_background(plan)
    by_norm = _game(plan, (nobody, someone), size, decided + 0.5, {TIMES: "dp"}, chunk)
    if not plan.schedule.private:
        return (by_norm,)
    pair = worst_pair(plan.dim, plan.privacy.adjacency, plan.centre, plan.ratio)
    by_shift = _game(plan, pair, size, decided + 0.5, {MESSAGES: "gdp", RULE: "gdp"}, chunk)
    return (replace(by_norm, expected_time=_typical_time(by_norm)), by_shift)


def _typical_time(game: AdaptiveGame) -> float:
    """The median first synchronisation of world 0, from a pilot with noise of its own: fixed before the audit."""
    pilot = SimulatedNoise(np.random.default_rng(PILOT_SEED))
    return game.expected_time - float(np.median(game.play(0, PILOT_TRIALS, pilot).scores[0]))


def decisive_background(plan: Plan) -> tuple[float, int]:
    """The norm of everybody else at which the first user's norm decides whether round t synchronises, and that t.

    Without noise the gain after t rounds is log det(I + W / lambda). Where even unit vectors never reach the threshold,
    there is nothing to decide and the norm is 1, the round the last.
    """
    assert isinstance(plan.schedule, Adaptive)
    rounds, threshold = np.arange(1, plan.rounds + 1), plan.schedule.threshold
    crossed = np.flatnonzero(_raw_gains(plan, 1.0, 0.0) > threshold / rounds)
    if not len(crossed):
        return 1.0, plan.rounds
    t = int(rounds[crossed[0]])

    def excess(size: float) -> float:
        with_user, without = _raw_gains(plan, size, 1.0), _raw_gains(plan, size, 0.0)
        return float((with_user[t - 1] + without[t - 1]) / 2 - threshold / t)

    return float(brentq(excess, 0.0, 1.0)), t


def _raw_gains(plan: Plan, size: float, user: float) -> Floats:
    """log det(I + W / lambda) after every round: a user of this norm, then vectors of norm `size` along the axes."""
    counts = np.cumsum(np.eye(plan.dim)[np.arange(plan.rounds) % plan.dim], axis=0)
    counts[:, 0] -= 1
    weights = size**2 * counts
    weights[:, 0] += user**2
    return np.asarray(np.log1p(weights / plan.regulariser).sum(axis=1))


def _game(
    plan: Plan, pair: tuple[User, User], size: float, expected: float, views: dict[str, Bound], chunk: int
) -> AdaptiveGame:
    assert isinstance(plan.schedule, Adaptive)
    others = size * np.eye(plan.dim)[np.arange(plan.rounds) % plan.dim]
    worlds = []
    for user in pair:
        x = others.copy()
        x[0] = user.x
        worlds.append(contributions(x, np.full(plan.rounds, user.y), plan.bits, plan.centre))
    return AdaptiveGame(
        plan.protocol,
        plan.dim,
        plan.regulariser,
        plan.learner.floor,
        plan.schedule.threshold,
        tuple(plan.schedule_scales.tolist()),
        (worlds[0], worlds[1]),
        expected,
        tuple(views),
        tuple(views.values()),
        chunk,
    )


def _cumulative(points: Integers) -> Integers:
    """Sums over the first 0, 1, 2, ... rounds."""
    return np.concatenate([np.zeros((1, points.shape[1]), dtype=np.int64), np.cumsum(points, axis=0)])
