"""What a plan will cost, before anything is run: the regret that its noise and its schedule make unavoidable.

The reference problem is the paper's. Every visitor brings `arms` actions, whose rows are random directions of R^m,
m = d - 1, with a constant that has the share s of a row's squared length (in the paper one half). The mean reward of an
action is (1 + cosine) / 2, where the cosine is that with an unknown direction. A silo that knows this direction up to
an angle phi takes the action that is best for a wrong direction, and loses the share 1 - cos phi of what acting at
random would lose. So a model is as good as its angle, and

    cos phi = a / sqrt(a^2 + m e^2),    e^2 = (R^2 I + nu^2) / (I + lambda)^2.

I is the information about each direction across the chosen one (every action taken adds its squared coordinate), R^2
is the variance of a reward, and nu^2 is the variance of the privacy noise in one coordinate. theta has the length
L = 1/2 / sqrt(1 - s), and a is the part of it that the regulariser leaves to the estimate (`_Silos._left`): the actions
taken all have nearly the same cosine with theta, so the constant explains rewards too, and a regulariser shifts part of
theta to the constant. Visits that count are served by the model of the last sync and teach the next one. Other visits
are served by all that their silo knows; the precisions of its own data and of the public sums add up.

This is a model, not a bound. It counts the exploration that practical radii cost where little is known across the
chosen direction (`_Silos._bend`), but not the cost of wider radii. docs/planning.md compares it with simulations.
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

__all__ = ["ARMS", "Course", "Prediction", "followed", "noise_variance", "noises", "predicted", "predicted_alone"]

ARMS = 100  # actions in the reference problem, unless the number is given
DROWNED = 0.1  # the noise of W multiplies the estimate's squared error by at most one over this
STOPS = 80  # rounds, besides those of syncs, at which a silo's own knowledge is updated
ALONE_STOPS = 320  # the same for a silo that stays alone, which learns after every visit


@dataclass(frozen=True)
class Prediction:
    """The expected regret of one visit, constant on each stretch of rounds."""

    times: Floats  # (stretches,), the last round of each stretch
    regret: Floats  # (stretches,), per visit
    chance: float  # the regret per visit of acting at random

    @property
    def lost_rounds(self) -> float:
        """The number of rounds of random play, by all silos, that cost as much."""
        return float(self.times[-1]) * self.mean() / self.chance

    def mean(self, first: float = 0.0, last: float | None = None) -> float:
        """The expected regret per visit over the rounds from `first` to `last`."""
        last = float(self.times[-1]) if last is None else last
        edges = np.clip(np.append(0.0, self.times), first, last)
        return float(np.sum(np.diff(edges) * self.regret) / (last - first))

    def total(self, last: float) -> float:
        """The expected regret of all visits to one silo up to round `last`."""
        return self.mean(0.0, last) * last


class Noise(NamedTuple):
    """The variances of the noise in one coordinate of U and in one off-diagonal entry of W."""

    bias: float
    product: float


def noises(law: NoiseLaw) -> list[Noise]:
    """The noise of every prefix sum, one per sync."""
    pairs = np.broadcast_arrays(law.bias, law.off_diagonal)
    return [Noise(float(bias) ** 2, float(product) ** 2) for bias, product in zip(*pairs, strict=True)]


class Course(NamedTuple):
    """What a prediction reads off a plan: when it synchronises, and the noise and the regulariser at each sync."""

    silos: int
    times: Sequence[int]  # (syncs,): visits to one silo before each sync
    noises: Sequence[Noise]  # (syncs,)
    regularisers: Sequence[float]  # (syncs,)
    forget: float = 1.0
    cap: int | None = None  # how often a person counts
    every: int = 1  # n: only every n-th visit of a person can count
    locally: bool = True  # whether visits that do not count are served by all that their silo knows
    centre: float = 0.0  # what is subtracted from every reward

    @classmethod
    def of(cls, plan: Plan, attendance: Attendance = EVERYBODY) -> Course:
        """The course of a plan, whose rounds may be periods of a clock."""
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
    """What the action taken at a visit adds to the silos' knowledge."""

    along: float  # information along theta's direction
    across: float  # information about each direction across it
    aligned: float  # the cosine of the action with theta


@dataclass(slots=True)
class _Silos:
    """The silos of a plan, which are all alike: what the public model knows, and what one silo has seen itself."""

    best: Alignment
    axes: int  # m, the dimension without the constant
    constant_share: float
    centre: float = 0.0  # what is subtracted from every reward
    counted: float = 0.0  # visits in the public sums, as far as they are remembered
    aligned: float = 0.0  # the sum of their cosines with theta
    along: float = 0.0  # public information along theta's direction
    across: float = 0.0  # public information about each direction across it
    own: float = 0.0  # one silo's own information about each direction across it
    cosine: float = 0.0  # of the public model with theta
    bent: float = 1.0  # alignment of the action taken with the model, relative to the best action's: radii explore
    users: float = 0.0  # visits behind the public model
    noise: float = 0.0  # variance of the noise in one coordinate of U - W times the estimate
    moved: float = 0.0  # squared distance that theta has moved away from what the public sums say

    def taken(self, cosine: float) -> _Taken:
        """What the best action of a model with this cosine adds."""
        square = (
            self.best.square * self.bent**2 if cosine else 1 / self.axes
        )  # along the model's direction; without a model, actions point anywhere
        left = (1 - square) / (self.axes - 1) if self.axes > 1 else 1.0  # with one axis, all actions lie along it
        free = 1 - self.constant_share  # the share of a row's squared length besides its constant
        along = (square * cosine**2 + left * (1 - cosine**2)) * free
        return _Taken(along, left * free, self.best.cosine * self.bent * cosine)

    @property
    def spread(self) -> float:
        """R^2: the variance of a reward with mean (1 + cosine) / 2; 0 with one axis, where a cosine is 1 or -1."""
        return (1 - self.best.square * self.cosine**2) / 4 if self.axes > 1 else 0.0

    def learn(self, visits: float, sums: _Taken, forget: float, moved: float) -> None:
        """Make public what was learnt since the last sync; the past keeps the weight `forget`.

        `moved` is the squared distance that theta has moved since then. A share rho of the estimate is from before the
        last sync, so the estimate is off by rho (e + step), where e is how far it was off then. Steps of a random walk
        point anywhere, so the squares add up.
        """
        before = forget * self.across
        self.counted, self.aligned = forget * self.counted + visits, forget * self.aligned + sums.aligned
        self.along, self.across, self.own = forget * self.along + sums.along, before + sums.across, forget * self.own
        self.moved = (before / self.across) ** 2 * (self.moved + moved) if self.across else 0.0

    def synchronise(self, noise: Noise, regulariser: float) -> None:
        """Make the public model from the public sums, with noise of these variances.

        (V + lambda) times the estimate is V theta plus the noise of U minus the noise of W times the estimate, which is
        shrunken, and longer by its own errors.
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
        """What the regulariser leaves of theta to the estimate: of its constant, and along its direction.

        If rewards are centred, it is theta - lambda (V + lambda)^-1 theta. V is the 2 x 2 matrix of these two, which
        actions with different cosines tell apart. If rewards are not centred, the constant shrinks too, and what it
        leaves unexplained makes the estimate longer again in the direction of the actions taken. The two effects about
        cancel, so that each part is computed by itself.
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
        """How well the action taken is aligned with a model of this squared length, relative to the best action.

        The score of an action at the cosine c is l c + beta sqrt(c^2 / V_along + (1 - c^2) / V_across). Where little is
        known across, its maximum lies at c^2 = l^2 / V_across / (D (l^2 + beta^2 D)), D = 1 / V_across - 1 / V_along.
        With few actions, none is better aligned than that, and the radius changes nothing.
        """
        if self.axes == 1 or self.along <= self.across or not square:
            return 1.0
        unseen = 1 / (self.across + regulariser)
        gap = unseen - 1 / (self.along + regulariser)
        if not gap:  # the regulariser is so large that the data are lost in rounding
            return 1.0
        stated = self_normalised(self.users, self.axes + 1, regulariser, Plan.alpha) + math.sqrt(regulariser)
        aligned = square * unseen / (gap * (square + (PRACTICAL_SCALE * stated) ** 2 * gap))
        return min(1.0, math.sqrt(aligned) / self.best.cosine) if self.best.cosine else 1.0

    def local_cosine(self, others: float) -> float:
        """The cosine of all that one silo knows: its own visits, and the share `others` of the public sums."""
        heard, spread = others * self.across, self.spread
        if not self.own and not heard:
            return self.cosine
        precision = self.own / spread if spread else math.inf
        precision += heard**2 / (spread * heard + self.noise or math.inf)
        # A silo that knows more than the public model does not serve worse.
        return max(self._expected(_length(self.constant_share), 1 / precision), self.cosine)

    def _expected(self, length: float, error: float) -> float:
        """The cosine of an estimate of this length whose coordinates have the mean squared error `error`.

        With one axis it is 1 or -1, and this is its mean.
        """
        if self.axes > 1:
            return length / math.sqrt(length**2 + self.axes * error)
        return math.erf(length / math.sqrt(2 * error)) if error else 1.0


def _length(constant_share: float) -> float:
    """The length of theta without its constant."""
    return 0.5 / math.sqrt(1 - constant_share)


def _learners(arms: int, dim: int, constant_share: float, centre: float) -> _Silos:
    """Silos that know nothing yet. One of the `dim` columns is the constant."""
    if dim < 2:
        raise ArgumentError("dim", f"must be at least 2 to be predicted: one column is the constant, got {dim}")
    return _Silos(best_of(arms, dim - 1), dim - 1, constant_share, centre)


def predicted(
    plan: Plan,
    arms: int = ARMS,
    attendance: Attendance = EVERYBODY,
    *,
    constant_share: float = PAPERS_SHARE,
    drift: float = 0.0,
) -> Prediction:
    """The predicted regret of a plan, over visits that count and visits that do not.

    theta moves at random, by `drift` per visit (root mean square).
    """
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
    """The predicted regret of a course, which `Course.of` reads off a plan."""
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
    """`sums` plus what `visits` visits add, each `taken`."""
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
    """The predicted regret of a lone silo, which learns from every visit at once, adds no noise and forgets nothing."""
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
    """The prediction for `lost`, the shares of what acting at random would lose."""
    chance = best.cosine / 2
    return Prediction(np.array(stops, dtype=float), chance * np.array(lost), chance)


def noise_variance(law: NoiseLaw, centre: float, constant_share: float = PAPERS_SHARE) -> Floats:
    """The variance of the noise in one coordinate of U - W theta, for every prefix sum (syncs,)."""
    constant = (0.5 - centre) ** 2 / constant_share  # the constant's part of theta's squared length; 0 if centred
    return np.asarray(law.bias**2 + (_length(constant_share) ** 2 + constant) * law.off_diagonal**2)


@lru_cache(maxsize=64)
def _stops(rounds: int, count: int = STOPS) -> tuple[int, ...]:
    """Rounds at growing distances, up to `rounds`."""
    return tuple(int(stop) for stop in np.unique(np.ceil(np.geomspace(1, rounds, count))))
