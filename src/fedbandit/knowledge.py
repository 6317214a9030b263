"""Who is served by what: public and local knowledge are two types, so that one cannot be mistaken for the other.

People whose data are released are served by a `PublicModel`, which is made from decoded prefix sums alone. Everybody
else (over the cap, or opted out) may be served by `LocalKnowledge`: all that their silo knows, its own raw data and the
public model. Where silos differ, `personal_model` adds what a silo has released to itself. The result is again a
`PublicModel`, made from releases alone. So a release depends on the counted people's data and on earlier releases, and
on nothing else.

How a silo weighs the two. The silo subtracts its own part, which it knows, from the public prefix sums. What is left is
the data of the other silos plus noise: W = V + N and U = V theta + e + h, where e is the randomness of rewards and N
and h are the noise. V is unknown, but probably resembles the silo's own covariance. So the estimate of V lies between W
and a multiple of that covariance: the less noise W holds, the closer to W (the shrinkage of Ledoit & Wolf 2004, with
known noise). Given V, U is a linear equation for theta with covariance variance V + noise^2 I. By generalised least
squares, a visit elsewhere in a direction in which V has the eigenvalue v is therefore worth
variance v / (variance v + noise^2) of a visit to the silo itself. Data that are drowned in noise are worth nothing, and
the silo decides as it would alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NOISELESS
from fedbandit.bandit.linucb import Fit, Model, solved
from fedbandit.bandit.prior import Prior
from fedbandit.bandit.statistics import Scales, unpack
from fedbandit.plan import Plan

__all__ = [
    "NONE_YET",
    "LocalKnowledge",
    "OwnData",
    "PublicModel",
    "local_knowledge",
    "nothing_public",
    "personal_model",
    "prior_of",
    "public_model",
]

NONE_YET = -1  # no sync has been decoded
LARGEST_VARIANCE = 0.25  # of a reward in [0, 1]: assumed before there are rewards
SMALLEST_VARIANCE = 1e-6
BELIEF = 4  # visits: this assumption weighs as much as they do
SPREAD = 0.25  # assumed before there are data: how far silos' own weights lie from the shared ones


class PublicModel(NamedTuple):
    """What the federation has released so far, as decoded, and the model that follows from it.

    It serves those whose data are released. A silo's `OwnData` cannot enter: nothing here takes them.
    """

    sync: int  # the last sync that was decoded, counted from 0; NONE_YET before the first
    prefix: Floats  # (..., width), natural units: the sums of this term, with those it began with
    fit: Fit

    @property
    def model(self) -> Model:
        """The model that decides."""
        return self.fit.model


class OwnData(NamedTuple):
    """A silo's sums over all its visits that have a reward: released, waiting for their sync, or never shared.

    They never leave the silo. Leading axes are allowed: (runs, silos) in the simulator.
    """

    sums: Integers  # (..., width), on the plan's grid
    squares: Floats  # (...), the sum of squared rewards, centred as in the plan
    visits: Numbers  # (...)
    released: Numbers  # (..., width): the part of `sums` that the decoded public prefix sum holds


class LocalKnowledge(NamedTuple):
    """All that a silo knows: V = lambda I + own + others, and the bias that goes with it.

    It serves those whose data stay in the silo, and is not a `PublicModel`.
    """

    precision: Floats  # (..., dim, dim)
    bias: Floats  # (..., dim)
    visits: Floats  # (...): the silo's own, plus the number of visits that the other silos' data are worth

    def model(self, plan: Plan) -> Model:
        """The model that decides, with the radii of a lone silo that has seen `visits` visits."""
        root = np.linalg.inv(np.swapaxes(np.linalg.cholesky(self.precision), -1, -2))
        theta = solved(root, self.bias)
        radii = [plan.radius_alone(float(one)) for one in np.ravel(self.visits)]
        return Model(theta, root, np.reshape(radii, np.shape(self.visits)))


def nothing_public(plan: Plan, lead: tuple[int, ...] = (), prior: Floats | None = None) -> PublicModel:
    """The public model before the first sync: nothing, or what the term begins with."""
    return public_model(plan, NONE_YET, np.zeros((*lead, plan.protocol.width)), 0, prior)


def public_model(plan: Plan, sync: int, prefix: Floats, round_: int, prior: Floats | None = None) -> PublicModel:
    """The model for everybody whose data are released, after `round_` rounds and this sync.

    `prior` is passed on to `Plan.known`.
    """
    return PublicModel(sync, plan.known(prefix, round_, prior), plan.fit(prefix, round_, prior))


def prior_of(plan: Plan, sync: int, known: Floats, weight: float = 1.0) -> Prior:
    """What the next term begins with, if this term ends at `sync` with the sums `known`.

    >>> from fedbandit.privacy.budget import Privacy
    >>> plan = Plan(silos=4, rounds=100, dim=2, privacy=Privacy(5.0, 1e-6))
    >>> prior = prior_of(plan, plan.syncs - 1, np.ones(5), weight=0.5)
    >>> later = plan.changed(prior=prior)
    >>> round(float(later.noise_law.bias[-1] / plan.noise_law.bias[-1]), 4)  # sqrt(1 + 0.5^2)
    1.118
    >>> prior.visits
    400.0
    """
    if sync == NONE_YET:
        raise ArgumentError("prior", "must come from a term with a model, but this one has decoded no sync")
    law = plan.noise_law
    last = min(sync, len(law.bias) - 1)  # in a run without an end, the last entry holds for all later syncs
    noise = Scales(float(law.bias[last]), float(law.diagonal[last]), float(law.off_diagonal[last]))
    before = 0.0 if plan.prior is None else plan.prior.counts
    visits = plan.remembered(plan.ticks[sync]) * plan.people * plan.silos + before
    return Prior(tuple(known.tolist()), noise, visits, weight)


def personal_model(plan: Plan, public: PublicModel, own: Floats) -> PublicModel:
    """The public model plus each silo's own part of theta, learnt from what the silo has released to itself.

    `own` (..., width) holds the sums decoded from those releases, in natural units. It has the axes of `public`, and
    possibly one more for the silos. With P the personal columns and theta the public one, the sums say
    b = g - C theta = G delta + noise, where g is the bias of P, C holds the rows P of the covariance, and G its rows
    and columns P. The variance of the noise is that of the release plus that of the rewards. With the prior
    N(0, SPREAD^2) on delta, the best estimate follows for each eigenvector of G. If noise drowns the data, delta stays
    near 0 and the public model hardly changes.
    """
    model, columns, lead = public.model, list(plan.personal), own.shape[:-1]
    more, square = [1] * (len(lead) + 1 - model.theta.ndim), (plan.dim, plan.dim)
    theta = np.broadcast_to(model.theta.reshape(*model.theta.shape[:-1], *more, plan.dim), (*lead, plan.dim)).copy()
    if public.sync != NONE_YET:
        gain = float(plan.encoder.prefix_norms[min(public.sync, plan.encoder.size - 1)])
        theta[..., columns] += _own_part(own, theta, columns, plan.request.own_scales().times(gain))
    root = np.broadcast_to(model.root.reshape(*model.root.shape[:-2], *more, *square), (*lead, *square))
    radius = np.broadcast_to(np.reshape(model.radius, (*np.shape(model.radius), *more)), lead)
    return public._replace(fit=public.fit._replace(model=Model(theta, root, radius)))


def _own_part(own: Floats, theta: Floats, columns: list[int], noise: Scales) -> Floats:
    """delta (..., personal) in the formula of `personal_model`; `noise` is the noise of the decoded sums."""
    bias, covariance = unpack(own, theta.shape[-1])
    rows = covariance[..., columns, :]
    told = bias[..., columns] - np.einsum("...ij,...j->...i", rows, theta)
    entry = max(noise.off_diagonal, noise.diagonal / np.sqrt(2)) ** 2
    drawn = noise.bias**2 + 2 * entry * (np.sum(theta**2, axis=-1) + len(columns) * SPREAD**2)
    values, vectors = np.linalg.eigh(rows[..., columns])
    seen = np.maximum(values, 0.0)
    turned = np.einsum("...ij,...i->...j", vectors, told)
    doubt = (drawn[..., None] + LARGEST_VARIANCE * seen) / SPREAD**2
    guessed = seen * turned / np.maximum(seen**2 + doubt, np.finfo(float).tiny)
    return np.asarray(np.einsum("...ij,...j->...i", vectors, guessed))


def local_knowledge(plan: Plan, own: OwnData, public: PublicModel) -> LocalKnowledge:
    """All that a silo with these data knows. `own` has the axes of `public`, possibly followed by more."""
    scale = 2.0**-plan.bits
    bias, covariance = unpack(np.asarray(own.sums * scale), plan.dim)
    variance = _variance(own, bias, covariance)
    precision = covariance + _regulariser(plan, variance)
    if public.sync == NONE_YET and plan.prior is None:
        return LocalKnowledge(precision, bias, np.asarray(own.visits, dtype=float))
    more = own.sums.ndim - public.prefix.ndim
    prefix = public.prefix.reshape(*public.prefix.shape[:-1], *[1] * more, -1)
    others = _others(plan, public.sync, prefix - own.released * scale, precision, variance)
    if plan.personal:
        others = _of_what_is_shared(others, list(plan.personal))
    visits = own.visits + np.trace(others.precision, axis1=-2, axis2=-1)
    return LocalKnowledge(precision + others.precision, bias + others.bias, visits)


class _Others(NamedTuple):
    """What the other silos' data are worth, expressed as sums of this silo's own visits."""

    precision: Floats  # (..., dim, dim)
    bias: Floats  # (..., dim)


def _others(plan: Plan, sync: int, rest: Floats, alike: Floats, variance: Floats) -> _Others:
    """What the other silos' data are worth here.

    `rest` (..., width) is the public sums less the silo's own part; `alike` (..., dim, dim) is what their covariance
    probably looks like.
    """
    law = plan.noise_law
    # Before the first sync there is only the prior's noise, which is less. In a run without an end, the last entry
    # holds for all later syncs.
    sync = min(max(sync, 0), len(law.bias) - 1)
    bias, noisy = unpack(rest, plan.dim)
    entry = max(float(law.off_diagonal[sync]), float(law.diagonal[sync]) / np.sqrt(2))
    drawn = plan.dim * (plan.dim + 1) * entry**2  # the mean of |N|^2: diagonal entries have twice the variance
    covariance, doubt = _between(noisy, alike, drawn)
    noise = float(law.bias[sync]) ** 2 + entry**2 * doubt[..., None]  # variance of h - (W - V) theta, |theta| <= 1
    values, vectors = np.linalg.eigh(covariance)
    data = variance[..., None] * np.maximum(values, 0.0)
    worth = data / np.maximum(data + noise, np.finfo(float).tiny)
    turned = worth * np.einsum("...ij,...i->...j", vectors, bias)
    return _Others(
        np.einsum("...ij,...j,...kj->...ik", vectors, worth * np.maximum(values, 0.0), vectors),
        np.einsum("...ij,...j->...i", vectors, turned),
    )


def _of_what_is_shared(others: _Others, columns: list[int]) -> _Others:
    """What the other silos tell about the shared weights of theta.

    The weights in `columns` are each silo's own, so they are free in the others' equations. Eliminating them leaves the
    Schur complement, which says nothing about the same weights here.
    """
    precision, bias = others
    block = precision[..., columns, :][..., columns] + np.finfo(float).eps * np.eye(len(columns))
    solved = np.linalg.solve(block, np.concatenate([precision[..., columns, :], bias[..., columns, None]], axis=-1))
    aside = precision[..., columns]  # (..., dim, personal)
    shared = ~np.isin(np.arange(bias.shape[-1]), columns)
    return _Others(
        np.where(np.outer(shared, shared), precision - aside @ solved[..., :-1], 0.0),
        np.where(shared, bias - np.einsum("...ij,...j->...i", aside, solved[..., -1]), 0.0),
    )


def _between(noisy: Floats, alike: Floats, drawn: float) -> tuple[Floats, Floats]:
    """A covariance between `noisy` and the multiple of `alike` nearest to it, and the share of `noisy` in it.

    `drawn` is the mean squared norm of the noise.
    """
    factor = np.maximum(_product(noisy, alike) / _product(alike, alike), 0.0)
    target = factor[..., None, None] * alike
    apart = noisy - target
    distance = _product(apart, apart)
    exact = np.maximum(distance - drawn, 0.0) / np.maximum(distance, np.finfo(float).tiny)
    return target + exact[..., None, None] * apart, exact


def _product(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("...ij,...ij->...", left, right))


def _regulariser(plan: Plan, variance: Floats) -> Floats:
    """lambda I: the lambda of a lone silo, or variance times dim if that is larger.

    The latter is the ridge for a theta of norm 1 in no particular direction.
    """
    strength = np.maximum(NOISELESS, variance * plan.dim)
    return np.asarray(strength[..., None, None] * np.eye(plan.dim))


def _variance(own: OwnData, bias: Floats, covariance: Floats) -> Floats:
    """The variance of a reward around its mean, estimated from the residuals of the silo's own visits.

    Before there are any, it is LARGEST_VARIANCE.
    """
    dim = bias.shape[-1]
    inverse = np.linalg.inv(covariance + np.eye(dim))
    theta = np.einsum("...ij,...j->...i", inverse, bias)
    fitted = 2 * np.einsum("...i,...i->...", theta, bias) - np.einsum("...i,...ij,...j->...", theta, covariance, theta)
    used = np.einsum("...ij,...ji->...", inverse, covariance)
    residuals = np.maximum(own.squares - fitted, 0.0)
    free = np.maximum(own.visits - used, 0.0)
    return np.asarray(np.maximum((BELIEF * LARGEST_VARIANCE + residuals) / (BELIEF + free), SMALLEST_VARIANCE))
