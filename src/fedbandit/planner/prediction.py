"""What a plan will cost, before anything is run: the regret that its noise and its schedule make unavoidable.

The reference problem is the paper's: every visitor brings `arms` actions in random directions of R^m, m = d - 1, beside
a constant, which has the share s of a row's squared length (the paper's: one half); the mean reward of an action is
(1 + cosine) / 2, the cosine with an unknown direction. A silo that knows that direction up to an angle phi takes the
best action of a wrong direction, and loses the share 1 - cos phi of what acting at random would lose. So a model is as
good as its angle, and

    cos phi = a / sqrt(a^2 + m e^2),    e^2 = (R^2 I + nu^2) / (I + lambda)^2:

I is what has been learnt about each direction that is not taken (whoever takes an action adds its square), R^2 the
variance of a reward, nu^2 that of the privacy noise in one coordinate, and a the length that the regulariser leaves to
the estimate of theta's L = 1/2 / sqrt(1 - s) (`_Silos._left`): what is taken is aligned with theta nearly always
alike, so that its constant explains rewards as well, and a regulariser gives the constant its part. Visits that count
are served by the model of the last sync and teach the next one. Those that do not are served by all that their silo
knows, whose errors add up by their precisions.

This is a model, not a bound. Practical radii cost exploration where little is known across (`_Silos._bend`); what wider
ones cost is not counted. docs/planning.md holds it against simulations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import PRACTICAL_SCALE, NoiseLaw, self_normalised
from fedbandit.bandit.directions import PAPERS_SHARE, Alignment, best_of
from fedbandit.plan import Plan
from fedbandit.simulator.attendance import EVERYBODY, Attendance

__all__ = ["ARMS", "Course", "Prediction", "followed", "noise_variance", "predicted", "predicted_alone"]

ARMS = 100  # of the reference problem, where nobody says how many there are
DROWNED = 0.1  # the noise of W is not taken to add more to the estimate's own length than times one over this
STOPS = 80  # rounds, besides those of syncs, at which a silo's own knowledge is looked at
ALONE_STOPS = 320  # and of one that stays alone, which learns after every one of them


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


class Noise(NamedTuple):
    """Variances of the noise in one coordinate of U, and in one entry of W off its diagonal."""

    bias: float
    product: float


def noises(law: NoiseLaw) -> list[Noise]:
    """Those of every prefix sum (syncs,)."""
    pairs = np.broadcast_arrays(law.bias, law.off_diagonal)
    return [Noise(float(bias) ** 2, float(product) ** 2) for bias, product in zip(*pairs, strict=True)]


class Course(NamedTuple):
    """What a prediction reads off a plan: when there are syncs, and what is left to know after each of them."""

    silos: int
    times: Sequence[int]  # (syncs,): visits to one silo by then
    noises: Sequence[Noise]  # (syncs,)
    regularisers: Sequence[float]  # (syncs,)
    forget: float = 1.0
    cap: int | None = None  # how often a person counts
    every: int = 1  # which of a person's visits can count: every so-many-th
    locally: bool = True  # whether visits that do not count are served by all that their silo knows
    centre: float = 0.0  # what is taken off every reward

    @classmethod
    def of(cls, plan: Plan, attendance: Attendance = EVERYBODY) -> Course:
        """That of a plan, whose rounds may be periods of a clock."""
        if plan.syncs is None:
            raise ArgumentError("schedule", f"must be public to be predicted, got {plan.schedule}")
        return cls(
            plan.silos,
            [plan.people * time for time in plan.times],
            noises(plan.noise_law),
            plan.learner.regularisers.tolist(),
            plan.forget,
            plan.cap,
            attendance.every(plan.in_visits()) if plan.privacy is not None and plan.privacy.apart else 1,
            plan.serves_uncounted == "local",
            plan.centre,
        )


class _Taken(NamedTuple):
    """What a visit adds to what is known along the direction that is looked for, and about each of the others; and how
    well what is taken is aligned with it."""

    along: float
    across: float
    aligned: float


@dataclass(slots=True)
class _Silos:
    """All silos of a plan, one like the other: what is public, what waits for a sync, and what one of them has seen."""

    best: Alignment
    axes: int
    constant_share: float
    centre: float = 0.0  # what is taken off every reward
    counted: float = 0.0  # public: visits, as far as they are remembered
    aligned: float = 0.0  # and the sum of their cosines with the direction that is looked for
    along: float = 0.0  # what is public about the direction that is looked for
    across: float = 0.0  # and about each of the others
    own: float = 0.0  # what one silo has seen of each of the others
    cosine: float = 0.0  # of the public model
    bent: float = 1.0  # how well what is taken is aligned with it, of how well the best is: practical radii explore
    users: float = 0.0  # visits behind it
    noise: float = 0.0  # variance of the noise in one coordinate of U - W times the estimate
    moved: float = 0.0  # how far theta has moved, squared, from what the public sums say of it

    def taken(self, cosine: float) -> _Taken:
        """The best action of a model with that cosine is taken."""
        square = (
            self.best.square * self.bent**2 if cosine else 1 / self.axes
        )  # along the model; before it there is none
        left = (1 - square) / (self.axes - 1) if self.axes > 1 else 1.0  # on a line every action tells of the same
        free = 1 - self.constant_share  # the share of a row's squared length that its constant leaves to the others
        along = (square * cosine**2 + left * (1 - cosine**2)) * free
        return _Taken(along, left * free, self.best.cosine * self.bent * cosine)

    @property
    def spread(self) -> float:
        """R^2: the variance of a reward with mean (1 + cosine) / 2; on a line, where a cosine is 1 or -1, none."""
        return (1 - self.best.square * self.cosine**2) / 4 if self.axes > 1 else 0.0

    def learn(self, visits: float, sums: _Taken, forget: float, moved: float) -> None:
        """What was learnt since the last sync becomes public; that sync leaves the weight `forget` to the past.

        `moved` is how far theta has moved since then, squared. Of the estimate a share rho is from before: it is off by
        rho (e + step), e what it was off by. Steps of a random walk point anywhere, so the squares add up.
        """
        before = forget * self.across
        self.counted, self.aligned = forget * self.counted + visits, forget * self.aligned + sums.aligned
        self.along, self.across, self.own = forget * self.along + sums.along, before + sums.across, forget * self.own
        self.moved = (before / self.across) ** 2 * (self.moved + moved) if self.across else 0.0

    def synchronise(self, noise: Noise, regulariser: float) -> None:
        """A model from what was learnt publicly, with noise of these variances.

        (V + lambda) times the estimate is V theta + the noise of U - that of W times the estimate, which is shrunken,
        and longer by its own errors.
        """
        constant, length = self._left(regulariser)
        weight = (self.across + regulariser) ** 2
        stated = self.spread * self.across + noise.bias + (constant**2 + length**2) * noise.product
        error = stated / weight / max(1 - self.axes * noise.product / weight, DROWNED)
        self.noise = noise.bias + (constant**2 + length**2 + self.axes * error) * noise.product
        error += self.moved / self.axes
        self.cosine = self._expected(length, error)
        self.bent = self._bend(length**2 + self.axes * error, regulariser)

    def _left(self, regulariser: float) -> tuple[float, float]:
        """What the regulariser leaves of theta to the estimate, of its constant and along its direction.

        Where rewards are centred: theta - lambda (V + lambda)^-1 theta, V of these two, which are told apart by actions
        whose cosines differ. Where they are not, the constant is shrunken, too, and what it leaves unexplained makes
        the estimate longer again, where actions were taken: about as much, so that each is taken for itself.
        """
        share, whole = self.constant_share, _length(self.constant_share)
        offset = (0.5 - self.centre) / math.sqrt(share)  # the constant's theta
        constant, along = share * self.counted + regulariser, self.along + regulariser
        both = math.sqrt(share * (1 - share)) * self.aligned
        if offset:
            return offset * (1 - regulariser / constant), whole * (1 - regulariser / along)
        part = regulariser / (constant * along - both**2)
        return part * both * whole, whole - part * constant * whole

    def _bend(self, square: float, regulariser: float) -> float:
        """How much worse than the best of a model of that squared length the action is aligned with it that is taken.

        The score of an action at the cosine c is l c + beta sqrt(c^2 / V_along + (1 - c^2) / V_across). Where little is
        known across, its maximum lies at c^2 = l^2 / V_across / (D (l^2 + beta^2 D)), D = 1 / V_across - 1 / V_along;
        with few actions none is better aligned than that, and the radius changes nothing.
        """
        if self.axes == 1 or self.along <= self.across or not square:
            return 1.0
        unseen = 1 / (self.across + regulariser)
        gap = unseen - 1 / (self.along + regulariser)
        if not gap:  # the regulariser is so large that what was seen is lost in rounding
            return 1.0
        stated = self_normalised(self.users, self.axes + 1, regulariser, Plan.alpha) + math.sqrt(regulariser)
        aligned = square * unseen / (gap * (square + (PRACTICAL_SCALE * stated) ** 2 * gap))
        return min(1.0, math.sqrt(aligned) / self.best.cosine) if self.best.cosine else 1.0

    def local_cosine(self, others: float) -> float:
        """Of all that one silo knows: its own visits, and the public sums less its own part (`others` is the rest)."""
        heard, spread = others * self.across, self.spread
        if not self.own and not heard:
            return self.cosine
        precision = self.own / spread if spread else math.inf
        precision += heard**2 / (spread * heard + self.noise or math.inf)
        # Who knows more than the public is not served worse.
        return max(self._expected(_length(self.constant_share), 1 / precision), self.cosine)

    def _expected(self, length: float, error: float) -> float:
        """The cosine of an estimate of that length whose coordinates are off by `error` in the mean square; on a line,
        where it is 1 or -1, its mean."""
        if self.axes > 1:
            return length / math.sqrt(length**2 + self.axes * error)
        return math.erf(length / math.sqrt(2 * error)) if error else 1.0


def _length(constant_share: float) -> float:
    """Of theta, without its constant."""
    return 0.5 / math.sqrt(1 - constant_share)


def _learners(arms: int, dim: int, constant_share: float, centre: float) -> _Silos:
    """Silos that know nothing yet. One of the dimensions is the constant entry."""
    if dim < 2:
        raise ArgumentError("dim", f"must be at least 2 to be predicted: a direction is looked for, got {dim}")
    return _Silos(best_of(arms, dim - 1), dim - 1, constant_share, centre)


def predicted(
    plan: Plan,
    arms: int = ARMS,
    attendance: Attendance = EVERYBODY,
    *,
    constant_share: float = PAPERS_SHARE,
    drift: float = 0.0,
) -> Prediction:
    """The regret of a plan, by those who count and those who do not; theta moves at random, by `drift` per visit in the
    mean square."""
    course = Course.of(plan, attendance)
    return followed(course, plan.dim, arms, attendance, constant_share=constant_share, drift=drift)


def followed(
    course: Course,
    dim: int,
    arms: int = ARMS,
    attendance: Attendance = EVERYBODY,
    *,
    constant_share: float = PAPERS_SHARE,
    drift: float = 0.0,
) -> Prediction:
    """The same for what was read off a plan."""
    silos, rounds = _learners(arms, dim, constant_share, course.centre), course.times[-1]
    earlier, later = (attendance.share(course.cap, round_, course.every) for round_ in (1, rounds))
    partly = earlier < 1 or later < 1
    syncs = dict(zip(course.times, zip(course.noises, course.regularisers, strict=True), strict=True))
    stops = sorted({*syncs, *_stops(rounds)}) if partly else list(course.times)
    lost, before, last, visited, sums = [], 0, 0, 0.0, _Taken(0.0, 0.0, 0.0)
    for stop in stops:
        visits = stop - before
        share = earlier if (before + stop + 1) // 2 <= attendance.first_visits else later
        kept = silos.local_cosine(1 - 1 / course.silos) if partly and course.locally else silos.cosine
        lost.append(share * (1 - silos.bent * silos.cosine) + (1 - share) * (1 - kept))
        taken = silos.taken(silos.cosine)
        counted = course.silos * share * visits
        visited, sums = visited + counted, _added(sums, taken, counted)
        if partly:
            silos.own += visits * (share * taken.across + (1 - share) * silos.taken(kept).across)
        if stop in syncs:
            silos.users = course.silos * stop
            silos.learn(visited, sums, course.forget, drift**2 * (stop - last))
            silos.synchronise(*syncs[stop])
            last, visited, sums = stop, 0.0, _Taken(0.0, 0.0, 0.0)
        before = stop
    return _prediction(stops, lost, silos.best)


def _added(sums: _Taken, taken: _Taken, visits: float) -> _Taken:
    """What so many visits add."""
    return _Taken(*(total + visits * one for total, one in zip(sums, taken, strict=True)))


def predicted_alone(
    rounds: int,
    dim: int,
    arms: int = ARMS,
    *,
    constant_share: float = PAPERS_SHARE,
    centre: float = 0.0,
    drift: float = 0.0,
) -> Prediction:
    """A silo on its own, which learns from each of its visits at once, adds no noise and forgets nothing."""
    silos, stops, lost, before = _learners(arms, dim, constant_share, centre), _stops(rounds, ALONE_STOPS), [], 0
    for stop in stops:
        lost.append(1 - silos.bent * silos.cosine)
        taken, visits = silos.taken(silos.cosine), stop - before
        silos.users = stop
        silos.learn(visits, _added(_Taken(0.0, 0.0, 0.0), taken, visits), 1.0, drift**2 * visits)
        silos.synchronise(Noise(0.0, 0.0), 1.0)
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


@lru_cache(maxsize=64)
def _stops(rounds: int, count: int = STOPS) -> tuple[int, ...]:
    """Rounds that lie ever further apart."""
    return tuple(int(stop) for stop in np.unique(np.ceil(np.geomspace(1, rounds, count))))
