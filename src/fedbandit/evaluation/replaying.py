"""What a federation, each silo alone and fixed rules would have done with the people of a table, one after the other.

Step s of a replay is the s-th person of every silo that has so many people. A plan's rounds are steps. If only a share
of the people is kept (a randomised log), a round is 1 / share steps, and all silos synchronise at the same points in
time, as on a clock. The mechanism is the simulator's: the plan's R, S and A with their noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit._arrays import Flags, Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.bandit import linucb
from fedbandit.bandit.linucb import Model
from fedbandit.bandit.policies import Policy
from fedbandit.bandit.statistics import contributions
from fedbandit.evaluation.past import Past
from fedbandit.plan import Plan
from fedbandit.presets import isolated
from fedbandit.schedule import Adaptive, Clock
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.population import AT_ONCE, NEVER, Delays
from fedbandit.simulator.simulated import SimulatedFederation, runs_noise

__all__ = ["Earnings", "Tape", "alone", "best_linear", "federated", "fitted_plan", "fixed", "practised"]

NOBODY = -1
CELLS = 1 << 22  # most numbers in the rows that are scored together
LATE_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Earnings:
    """What a policy would have earned, by run and person."""

    earned: Floats  # (runs, people), NaN where the table does not tell
    chosen: Integers  # (runs, people), the actions


@dataclass(frozen=True)
class Tape:
    """The people of a table in the order in which runs meet them, and all randomness except the mechanism's."""

    past: Past
    runs: int
    seed: int = 0
    shuffle: bool = False  # each run meets the people of a silo in its own random order
    delays: Delays = AT_ONCE  # used unless the table has reward times

    @cached_property
    def who(self) -> Integers:
        """The person of each silo at each step, NOBODY after its last: (runs, silos, steps)."""
        people = [np.flatnonzero(self.past.silo == number) for number in range(len(self.past.silos))]
        who = np.full((self.runs, len(people), max(map(len, people))), NOBODY, dtype=np.int64)
        for run in range(self.runs):
            rng = np.random.default_rng([self.seed, run, 1])
            for silo, mine in enumerate(people):
                who[run, silo, : len(mine)] = rng.permutation(mine) if self.shuffle else mine
        return who

    @property
    def steps(self) -> int:
        return int(self.who.shape[2])

    @cached_property
    def step(self) -> Integers:
        """The step, from 1, at which each person comes: (runs, people)."""
        steps = np.zeros((self.runs, len(self.past)), dtype=np.int64)
        run, silo, step = np.nonzero(self.who != NOBODY)
        steps[run, self.who[run, silo, step]] = step + 1
        return steps

    @cached_property
    def comes(self) -> Integers:
        """The step after which each person's reward is known: (runs, people)."""
        waits = self.past.waits
        if waits is None:
            waits = self.delays.waits(self._chances(2))
        waits = np.broadcast_to(waits, self.step.shape)
        paced = np.ceil(np.where(waits == NEVER, 0, waits) / self.past.rate).astype(np.int64)
        return np.where(waits == NEVER, NEVER, self.step + paced)

    @cached_property
    def chances(self) -> Floats:
        """The random numbers with which a policy draws each person's action: (runs, people)."""
        return self._chances(3)

    @cached_property
    def kept(self) -> Flags:
        """Who in a randomised log is kept if the choice agrees: rejection makes every action equally likely."""
        if self.past.kind != "randomised" or self.past.propensity is None:
            return np.ones((self.runs, len(self.past)), dtype=bool)
        return self._chances(4) < self.past.rate / self.past.propensity

    def seen(self, run: Integers, person: Integers, action: Integers) -> Floats:
        """The rewards of the chosen actions that a learner sees; NaN where it sees nothing."""
        past = self.past
        if past.outcomes is not None:
            return np.asarray(past.outcomes[person, action])
        done, rewards = past.done
        agrees, reward = done[person] == action, rewards[person]
        if past.kind == "randomised":
            return np.where(agrees & self.kept[run, person], reward, np.nan)
        return np.where(agrees, reward, past.predicted[person, action])

    def earnings(self, chosen: Integers) -> Earnings:
        """What the chosen actions (runs, people) earn; a doubly robust estimate if outcomes are predicted."""
        past, everybody = self.past, np.arange(len(self.past))
        if past.kind == "observed":
            done, rewards = past.done
            surprise = (rewards - past.predicted[everybody, done]) / past.likely
            robust = past.predicted[everybody, chosen] + np.where(done == chosen, surprise, 0.0)
            return Earnings(np.where(np.isnan(rewards), np.nan, robust), chosen)
        earned = [self.seen(np.full(len(past), run), everybody, one) for run, one in enumerate(chosen)]
        return Earnings(np.stack(earned), chosen)

    def _chances(self, purpose: int) -> Floats:
        seeds = [[self.seed, run, purpose] for run in range(self.runs)]
        return np.stack([np.random.default_rng(seed).random(len(self.past)) for seed in seeds])


def fitted_plan(plan: Plan, past: Past, steps: int) -> Plan:
    """The plan for the silos and rounds of a table. On a clock, the table's people are spread over its periods."""
    if isinstance(plan.schedule, Adaptive) or plan.acting == "eager":
        raise ArgumentError("plan", "must act lazily on a public schedule to be replayed")
    rounds = max(1, math.floor(steps * past.rate))
    if isinstance(plan.schedule, Clock):
        fitted = plan.changed(silos=len(past.silos), people=math.ceil(rounds / plan.rounds)).in_visits()
    else:
        fitted = plan.changed(silos=len(past.silos), rounds=rounds)
    if fitted.dim != past.rows.shape[2]:
        raise ArgumentError("dim", f"must be {past.rows.shape[2]}, the schema's, got {fitted.dim}")
    if fitted.protocol.needs_points or not fitted.trusting.live:
        raise ArgumentError("trust", f"must be one that does not depend on who comes when, got {fitted.trust!r}")
    return fitted


def federated(name: str, plan: Plan, tape: Tape, progress: Progress = lambda share: None) -> Earnings:
    """What the whole federation earns under a plan fitted to the table; `name` is part of the seed of its noise."""
    federation = SimulatedFederation(plan, runs_noise(tape.seed, tuple(range(tape.runs)), name))
    chosen = np.full((tape.runs, len(tape.past)), NOBODY, dtype=np.int64)
    counted = np.zeros(chosen.shape, dtype=bool)
    first = 0
    for time in plan.times:
        end = tape.steps if time == plan.times[-1] else min(tape.steps, math.ceil(time / tape.past.rate))
        for run in range(tape.runs):
            for people in _together(tape, run, first, end):
                chosen[run, people] = _choices(tape, run, people, federation.public.model, plan.policy)
        come = (chosen != NOBODY) & ~counted & (tape.comes <= end)
        federation.synchronise(_sums(tape, come, chosen, plan), time)
        counted |= come
        first = end
        progress(end / tape.steps)
    return tape.earnings(chosen)


def alone(plan: Plan, tape: Tape, progress: Progress = lambda share: None) -> Earnings:
    """What every silo earns by itself, without privacy, learning from each person as soon as the reward is there.

    It uses the plan's radii or practical ones, whichever earn more, because a silo that stays alone is not bound to the
    plan's.
    """
    own = isolated(plan).changed(centre=0.0)  # centring is for a smaller sensitivity, and nothing is released here
    practical = own.changed(confidence="practical", exploration=1.0, reward_noise=1.0)
    silos = tuple(dict.fromkeys((own, practical)))
    played = [_alone(one, tape, lambda done, at=at: progress((at + done) / len(silos))) for at, one in enumerate(silos)]  # type: ignore[misc]
    return max(played, key=lambda one: float(np.nanmean(one.earned)) if not np.isnan(one.earned).all() else -math.inf)


def _alone(own: Plan, tape: Tape, progress: Progress) -> Earnings:
    """What every silo earns by itself, with the radii of `own`."""
    lead, dim = tape.who.shape[:2], own.dim
    inverse = np.broadcast_to(np.eye(dim) / own.regulariser, (*lead, dim, dim)).copy()
    bias = np.zeros((*lead, dim))
    chosen = np.full((tape.runs, len(tape.past)), NOBODY, dtype=np.int64)
    due = _due(tape)
    for step in range(1, tape.steps + 1):
        run, silo = np.nonzero(tape.who[:, :, step - 1] != NOBODY)
        person = tape.who[run, silo, step - 1]
        rows = tape.past.rows[person]
        theta = np.einsum("nde,ne->nd", inverse[run, silo], bias[run, silo])
        widths = np.einsum("nad,nde,nae->na", rows, inverse[run, silo], rows)
        radius = own.radius(max(1, math.floor(step * tape.past.rate)))
        bounds = np.einsum("nad,nd->na", rows, theta) + radius * np.sqrt(np.maximum(widths, 0))
        chosen[run, person] = np.argmax(bounds, axis=1)
        _learn(tape, due.get(step), chosen, inverse, bias)
        progress(step / tape.steps)
    return tape.earnings(chosen)


def fixed(action: int, tape: Tape) -> Earnings:
    """What the same action for everybody earns."""
    return tape.earnings(np.full((tape.runs, len(tape.past)), action, dtype=np.int64))


def best_linear(tape: Tape) -> Earnings:
    """What the linear model that fits all outcomes best, in hindsight, earns.

    No learner with this schema does much better.
    """
    past = tape.past
    if past.outcomes is None:
        raise ArgumentError("best linear policy", "must be asked for only where all outcomes are known")
    rows, outcomes = past.rows.reshape(-1, past.rows.shape[2]), past.outcomes.ravel()
    weights = np.linalg.lstsq(rows, outcomes, rcond=None)[0]
    chosen = np.argmax(past.rows @ weights, axis=1)
    return tape.earnings(np.broadcast_to(chosen, (tape.runs, len(past))).copy())


def practised(tape: Tape) -> Earnings:
    """What the actions in the table earned."""
    past = tape.past
    if past.practice is None:
        raise ArgumentError("practice", "must be in the table: it does not say what was done")
    done = np.zeros(len(past), dtype=np.int64) if past.action is None else past.action
    shape = (tape.runs, len(past))
    return Earnings(np.broadcast_to(past.practice, shape).copy(), np.broadcast_to(done, shape).copy())


# -- internals --------------------------------------------------------------------------------------------------------


def _together(tape: Tape, run: int, first: int, end: int) -> Iterator[Integers]:
    """The people whom one run meets from step `first` to step `end`, not too many at a time."""
    some = tape.who[run, :, first:end]
    people = some[some != NOBODY]
    at_once = max(1, CELLS // int(np.prod(tape.past.rows.shape[1:])))
    for start in range(0, len(people), at_once):
        yield people[start : start + at_once]


def _choices(tape: Tape, run: int, people: Integers, model: Model, policy: Policy) -> Integers:
    mine = Model(model.theta[run], model.root[run], model.radius[run])
    means, spreads = linucb.scores(tape.past.rows[people], mine)
    if policy.certain:
        return np.asarray(np.argmax(means + spreads, axis=1))
    bounds = np.cumsum(policy.probabilities(means, spreads), axis=1)
    at = tape.chances[run, people, None] * bounds[:, -1:]
    return np.asarray(np.minimum((bounds <= at).sum(axis=1), bounds.shape[1] - 1))


def _sums(tape: Tape, come: Flags, chosen: Integers, plan: Plan) -> Integers:
    """The sums of the contributions of people whose rewards have come, (runs, 1, width)."""
    sums = np.zeros((tape.runs, 1, plan.protocol.width), dtype=np.int64)
    for number in range(tape.runs):
        person = np.flatnonzero(come[number])
        for start in range(0, len(person), LATE_AT_ONCE):
            some = person[start : start + LATE_AT_ONCE]
            reward = tape.seen(np.full(len(some), number), some, chosen[number, some])
            taken = some[~np.isnan(reward)]
            rows = tape.past.rows[taken, chosen[number, taken]]
            packed = contributions(rows, reward[~np.isnan(reward)], plan.bits, plan.centre)
            sums[number, 0] += packed.sum(axis=0)
    return sums


def _due(tape: Tape) -> Mapping[int, tuple[Integers, Integers]]:
    """By step: the runs and persons whose rewards come after it."""
    run, person = np.nonzero(tape.comes <= tape.steps)
    at = tape.comes[run, person]
    order = np.argsort(at, kind="stable")
    edges = np.flatnonzero(np.diff(at[order], prepend=-1))
    parts: Sequence[Integers] = np.split(order, edges[1:]) if len(order) else []
    return {int(at[part[0]]): (run[part], person[part]) for part in parts}


def _learn(
    tape: Tape,
    due: tuple[Integers, Integers] | None,
    chosen: Integers,
    inverse: Floats,
    bias: Floats,
) -> None:
    """Add people to their silo's own model by rank-one updates (Sherman-Morrison), one person per silo at a time."""
    if due is None:
        return
    run, person = due
    reward = tape.seen(run, person, chosen[run, person])
    seen = ~np.isnan(reward)
    run, person, reward = run[seen], person[seen], reward[seen]
    silo = tape.past.silo[person]
    while len(run):
        one = np.unique(run * inverse.shape[1] + silo, return_index=True)[1]
        rest = np.ones(len(run), dtype=bool)
        rest[one] = False
        r, m, x = run[one], silo[one], tape.past.rows[person[one], chosen[run[one], person[one]]]
        v = np.einsum("nde,ne->nd", inverse[r, m], x)
        gain = 1 + np.einsum("nd,nd->n", v, x)
        inverse[r, m] -= v[:, :, None] * v[:, None, :] / gain[:, None, None]
        bias[r, m] += x * reward[one, None]
        run, person, silo, reward = run[rest], person[rest], silo[rest], reward[rest]
