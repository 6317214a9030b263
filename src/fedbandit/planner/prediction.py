"""What a plan will cost, before anything is run: the regret that its noise and its schedule make unavoidable.

The reference problem is the paper's: every visitor brings `arms` actions in random directions of R^m, m = d - 1, beside
a constant, which has the share s of a row's squared length (the paper's: one half); the mean reward of an action is
(1 + cosine) / 2, the cosine with an unknown direction. A silo that knows that direction up to an angle phi takes the
best action of a wrong direction, and loses the share 1 - cos phi of what acting at random would lose. So a model is as
good as its angle, and

    cos phi = a / sqrt(a^2 + m e^2),    e^2 = (R^2 I + nu^2) / (I + lambda)^2,    a = L I' / (I' + lambda):

I is what has been learnt about each direction that is not taken (whoever takes an action adds its square), R^2 the
variance of a reward, nu^2 that of the privacy noise in one coordinate, and a the length that the regulariser leaves to
the estimate, L = 1/2 / sqrt(1 - s) being theta's and I' what was learnt along it. Visits that count are served by the
model of the last sync and teach the next one. Those that do not are served by all that their silo knows, whose errors
add up by their precisions.

This is a model, not a bound; wide radii cost exploration that it does not count. docs/planning.md holds it against
simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.bandit.directions import PAPERS_SHARE, Alignment, best_of
from fedbandit.plan import Plan
from fedbandit.simulator.attendance import EVERYBODY, Attendance

__all__ = ["ARMS", "Prediction", "noise_variance", "predicted", "predicted_alone"]

ARMS = 100  # of the reference problem, where nobody says how many there are
STOPS = 80  # rounds, besides those of syncs, at which a silo's own knowledge is looked at


@dataclass(frozen=True)
class Prediction:
    """Expected regret of one visit, stretch by stretch: those of the rounds up to `times` (stretches,)."""

    times: Floats
    regret: Floats
    chance: float  # of acting at random

    @property
    def lost_rounds(self) -> float:
        """Rounds of random play, by all silos, that cost as much."""
        return float(self.times[-1]) * self.mean() / self.chance

    def mean(self, first: float = 0.0, last: float | None = None) -> float:
        """Expected regret per visit of the rounds from `first` to `last`."""
        last = float(self.times[-1]) if last is None else last
        edges = np.clip(np.append(0.0, self.times), first, last)
        return float(np.sum(np.diff(edges) * self.regret) / (last - first))

    def total(self, last: float) -> float:
        """Expected regret of all visits to one silo up to round `last`."""
        return self.mean(0.0, last) * last


@dataclass
class _Learnt:
    """What is known about the direction that is looked for: along it, and about each of the others."""

    best: Alignment
    axes: int
    free: float  # the share of a row's squared length that its constant leaves to the others
    along: float = 0.0
    across: float = 0.0

    def add(self, visits: float, cosine: float) -> None:
        """So many visits take the best action of a model with that cosine."""
        others = max(1, self.axes - 1)
        taken = self.best.square if cosine else 1 / self.axes  # along the model's direction; before it there is none
        left = (1 - taken) / others
        self.along += visits * (taken * cosine**2 + left * (1 - cosine**2)) * self.free
        self.across += visits * left * self.free


@dataclass
class _Silos:
    """All silos of a plan, one like the other: what is public, what waits for a sync, and what one of them has seen."""

    best: Alignment
    axes: int
    constant_share: float
    public: _Learnt = field(init=False)
    own: _Learnt = field(init=False)
    cosine: float = 0.0  # of the public model
    moved: float = 0.0  # how far theta has moved, squared, from what the public sums say of it

    def __post_init__(self) -> None:
        self.public, self.own = self.nothing(), self.nothing()

    def nothing(self) -> _Learnt:
        """Before anybody has come."""
        return _Learnt(self.best, self.axes, 1 - self.constant_share)

    @property
    def spread(self) -> float:
        """R^2: the variance of a reward with mean (1 + cosine) / 2."""
        return (1 - self.best.square * self.cosine**2) / 4

    def learn(self, new: _Learnt, forget: float, moved: float) -> None:
        """What was learnt since the last sync becomes public; that sync leaves the weight `forget` to the past.

        `moved` is how far theta has moved since then, squared. Of the estimate a share rho is from before: it is off by
        rho (e + step), e what it was off by. Steps of a random walk point anywhere, so the squares add up.
        """
        public, own = self.public, self.own
        before = forget * public.across
        public.along, public.across = forget * public.along + new.along, before + new.across
        own.along, own.across = forget * own.along, forget * own.across
        self.moved = (before / public.across) ** 2 * (self.moved + moved) if public.across else 0.0

    def synchronise(self, noise: float, regulariser: float) -> None:
        """A model from what was learnt publicly, with noise of that variance."""
        error = (self.spread * self.public.across + noise) / (self.public.across + regulariser) ** 2
        error += self.moved / self.axes
        length = _length(self.constant_share) * self.public.along / (self.public.along + regulariser)
        self.cosine = length / math.sqrt(length**2 + self.axes * error)

    def local_cosine(self, noise: float, others: float) -> float:
        """Of all that one silo knows: its own visits, and the public sums less its own part (`others` is the rest)."""
        heard = others * self.public.across
        precision = self.own.across / self.spread + heard**2 / (self.spread * heard + noise or math.inf)
        length = _length(self.constant_share)
        told = length / math.sqrt(length**2 + self.axes / precision) if precision else 0.0
        return max(told, self.cosine)  # who knows more than the public is not served worse


def _length(constant_share: float) -> float:
    """Of theta, without its constant."""
    return 0.5 / math.sqrt(1 - constant_share)


def _learners(arms: int, dim: int, constant_share: float = PAPERS_SHARE) -> _Silos:
    """Silos that know nothing yet. One of the dimensions is the constant entry."""
    if dim < 2:
        raise ArgumentError("dim", f"must be at least 2 to be predicted: a direction is looked for, got {dim}")
    return _Silos(best_of(arms, dim - 1), dim - 1, constant_share)


def predicted(
    plan: Plan,
    arms: int = ARMS,
    attendance: Attendance = EVERYBODY,
    *,
    constant_share: float = PAPERS_SHARE,
    drift: float = 0.0,
) -> Prediction:
    """The regret of a plan whose rounds are visits, by those who count and those who do not; theta moves at random, by
    `drift` per round in the mean square."""
    if plan.syncs is None:
        raise ArgumentError("schedule", f"must be public to be predicted, got {plan.schedule}")
    noises = noise_variance(plan.noise_law, plan.centre, constant_share)
    regularisers, silos = plan.learner.regularisers, _learners(arms, plan.dim, constant_share)
    syncs = dict(zip(plan.times, zip(noises.tolist(), regularisers.tolist(), strict=True), strict=True))
    partly, every = not attendance.all_counted(plan), attendance.every(plan)
    stops = sorted({*plan.times, *(_stops(plan.rounds) if partly else ())})
    lost, waiting, noise, before, last = [], silos.nothing(), 0.0, 0, 0
    for stop in stops:
        share = attendance.share(plan.cap, (before + stop + 1) // 2, every) if partly else 1.0
        locally = plan.serves_uncounted == "local"
        kept = silos.local_cosine(noise, 1 - 1 / plan.silos) if partly and locally else silos.cosine
        lost.append(share * (1 - silos.cosine) + (1 - share) * (1 - kept))
        waiting.add(plan.silos * share * (stop - before), silos.cosine)
        silos.own.add(share * (stop - before), silos.cosine)
        silos.own.add((1 - share) * (stop - before), kept)
        if stop in syncs:
            silos.learn(waiting, plan.forget, drift**2 * (stop - last))
            last = stop
            waiting = silos.nothing()
            noise, regulariser = syncs[stop]
            silos.synchronise(noise, regulariser)
        before = stop
    return _prediction(stops, lost, silos.best)


def predicted_alone(rounds: int, dim: int, arms: int = ARMS, *, drift: float = 0.0) -> Prediction:
    """A silo on its own, which learns from each of its visits at once, adds no noise and forgets nothing."""
    silos, stops, lost, before = _learners(arms, dim), _stops(rounds), [], 0
    for stop in stops:
        lost.append(1 - silos.cosine)
        new = silos.nothing()
        new.add(stop - before, silos.cosine)
        silos.learn(new, 1.0, drift**2 * (stop - before))
        silos.synchronise(0.0, 1.0)
        before = stop
    return _prediction(stops, lost, silos.best)


def _prediction(stops: Sequence[int], lost: Sequence[float], best: Alignment) -> Prediction:
    """`lost` is the share of what acting at random would lose."""
    chance = best.cosine / 2
    return Prediction(np.array(stops, dtype=float), chance * np.array(lost), chance)


def noise_variance(law: NoiseLaw, centre: float, constant_share: float = PAPERS_SHARE) -> Floats:
    """Variance of the noise in one coordinate of U - W theta, for every prefix sum (syncs,)."""
    constant = (0.5 - centre) ** 2 / constant_share  # its part of theta's squared length, which centring takes away
    return np.asarray(law.bias**2 + (_length(constant_share) ** 2 + constant) * law.off_diagonal**2)


def _stops(rounds: int) -> list[int]:
    """Rounds that lie ever further apart."""
    return [int(stop) for stop in np.unique(np.ceil(np.geomspace(1, rounds, STOPS)))]
