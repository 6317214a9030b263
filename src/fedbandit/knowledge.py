"""Who is served by what: public and local knowledge are two types, and nothing takes the one for the other.

People whose data are released are served by a `PublicModel`, which is made from decoded prefix sums alone. Everybody
else (over the cap, or opted out) may be served by `LocalKnowledge`: all that their silo knows, its own raw data and the
public model. So a release is a function of the counted people's data and of earlier releases, and nothing else.

How the two are weighed. The public prefix sum less the silo's own part of it (which the silo knows) is what the others
know, plus noise: W = V + N and U = V theta + e + h, with e the chance in rewards. V is unknown, but probably looks like
the silo's own: between W and a multiple of that, the estimate of V lies as near to W as W is exact (the shrinkage of
Ledoit & Wolf 2004, with a noise that is known). Given V, U is a linear equation for theta with covariance
variance V + noise^2 I, so by generalised least squares a direction in which V has the eigenvalue v is worth
variance v / (variance v + noise^2) of as many visits to the silo itself. Noise that drowns the data is worth nothing:
then the silo decides as it would alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit.bandit.confidence import NOISELESS
from fedbandit.bandit.linucb import Fit, Model
from fedbandit.bandit.statistics import unpack
from fedbandit.plan import Plan

__all__ = ["NONE_YET", "LocalKnowledge", "OwnData", "PublicModel", "local_knowledge", "nothing_public", "public_model"]

NONE_YET = -1  # no sync has been decoded
LARGEST_VARIANCE = 0.25  # of a reward in [0, 1]: what is believed before there are rewards
SMALLEST_VARIANCE = 1e-6
BELIEF = 4  # visits that this belief is as good as


class PublicModel(NamedTuple):
    """What the federation has released so far, as decoded, and the model that follows from it.

    It serves those whose data are released. `own` data of a silo cannot enter: there is no way to pass them.
    """

    sync: int  # the last sync that was decoded, from 0; NONE_YET before
    prefix: Floats  # (..., width), natural units
    fit: Fit

    @property
    def model(self) -> Model:
        """What decides."""
        return self.fit.model


class OwnData(NamedTuple):
    """What a silo keeps of all its visits that have a reward: released, waiting for their sync, or never shared.

    It never leaves the silo. Leading axes are allowed: (runs, silos) in the simulator.
    """

    sums: Integers  # (..., width), on the plan's grid
    squares: Floats  # (...), sum of the squared rewards, centred like the plan's
    visits: Numbers  # (...)
    released: Numbers  # (..., width): the part of `sums` that the public prefix sum holds, as it was decoded


class LocalKnowledge(NamedTuple):
    """All that a silo knows: V = lambda I + own + others, and the bias that goes with it.

    It serves those whose data stay in the silo, and is no `PublicModel`.
    """

    precision: Floats  # (..., dim, dim)
    bias: Floats  # (..., dim)
    visits: Floats  # (...): own ones, and as many more as what the others tell is worth

    def model(self, plan: Plan) -> Model:
        """What decides, with the radii of a silo alone that has seen so many visits."""
        root = np.linalg.inv(np.swapaxes(np.linalg.cholesky(self.precision), -1, -2))
        theta = np.einsum("...ij,...kj,...k->...i", root, root, self.bias)
        radii = [plan.radius_alone(float(one)) for one in np.ravel(self.visits)]
        return Model(theta, root, np.reshape(radii, np.shape(self.visits)))


def nothing_public(plan: Plan, lead: tuple[int, ...] = ()) -> PublicModel:
    """Before the first sync."""
    return public_model(plan, NONE_YET, np.zeros((*lead, plan.protocol.width)), 0)


def public_model(plan: Plan, sync: int, prefix: Floats, round_: int) -> PublicModel:
    """The model of everybody whose data are released, after `round_` rounds and this sync."""
    return PublicModel(sync, prefix, plan.fit(prefix, round_))


def local_knowledge(plan: Plan, own: OwnData, public: PublicModel) -> LocalKnowledge:
    """All that a silo with these data knows. The axes of `own` are those of `public`, and maybe more after them."""
    scale = 2.0**-plan.bits
    bias, covariance = unpack(np.asarray(own.sums * scale), plan.dim)
    variance = _variance(own, bias, covariance)
    precision = covariance + _regulariser(plan, variance)
    if public.sync == NONE_YET:
        return LocalKnowledge(precision, bias, np.asarray(own.visits, dtype=float))
    more = own.sums.ndim - public.prefix.ndim
    prefix = public.prefix.reshape(*public.prefix.shape[:-1], *[1] * more, -1)
    others = _others(plan, public.sync, prefix - own.released * scale, precision, variance)
    visits = own.visits + np.trace(others.precision, axis1=-2, axis2=-1)
    return LocalKnowledge(precision + others.precision, bias + others.bias, visits)


class _Others(NamedTuple):
    """What the other silos tell, as if it had been seen here."""

    precision: Floats  # (..., dim, dim)
    bias: Floats  # (..., dim)


def _others(plan: Plan, sync: int, rest: Floats, alike: Floats, variance: Floats) -> _Others:
    """The public sums less the silo's own part (..., width), weighed; `alike` (..., dim, dim) is what their covariance
    probably looks like."""
    law = plan.noise_law
    bias, noisy = unpack(rest, plan.dim)
    entry = max(float(law.off_diagonal[sync]), float(law.diagonal[sync]) / np.sqrt(2))
    drawn = plan.dim * (plan.dim + 1) * entry**2  # the mean of |N|^2, diagonal entries having twice the variance
    covariance, doubt = _between(noisy, alike, drawn)
    noise = float(law.bias[sync]) ** 2 + entry**2 * doubt[..., None]  # of h - (W - V) theta, theta of norm 1 at most
    values, vectors = np.linalg.eigh(covariance)
    data = variance[..., None] * np.maximum(values, 0.0)
    worth = data / np.maximum(data + noise, np.finfo(float).tiny)
    turned = worth * np.einsum("...ij,...i->...j", vectors, bias)
    return _Others(
        np.einsum("...ij,...j,...kj->...ik", vectors, worth * np.maximum(values, 0.0), vectors),
        np.einsum("...ij,...j->...i", vectors, turned),
    )


def _between(noisy: Floats, alike: Floats, drawn: float) -> tuple[Floats, Floats]:
    """A covariance between a noisy one and the multiple of another that is nearest to it, and the share of the noisy
    one in it. `drawn` is the mean squared norm of the noise."""
    factor = np.maximum(_product(noisy, alike) / _product(alike, alike), 0.0)
    target = factor[..., None, None] * alike
    apart = noisy - target
    distance = _product(apart, apart)
    exact = np.maximum(distance - drawn, 0.0) / np.maximum(distance, np.finfo(float).tiny)
    return target + exact[..., None, None] * apart, exact


def _product(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("...ij,...ij->...", left, right))


def _regulariser(plan: Plan, variance: Floats) -> Floats:
    """lambda I: the plan's for a silo alone, or, if larger, what a theta of norm 1 in no particular direction calls
    for: variance times dim."""
    strength = np.maximum(NOISELESS, variance * plan.dim)
    return np.asarray(strength[..., None, None] * np.eye(plan.dim))


def _variance(own: OwnData, bias: Floats, covariance: Floats) -> Floats:
    """The variance of a reward around its mean, by the residuals of the silo's own visits.

    Before it has any, LARGEST_VARIANCE is believed.
    """
    dim = bias.shape[-1]
    inverse = np.linalg.inv(covariance + np.eye(dim))
    theta = np.einsum("...ij,...j->...i", inverse, bias)
    fitted = 2 * np.einsum("...i,...i->...", theta, bias) - np.einsum("...i,...ij,...j->...", theta, covariance, theta)
    used = np.einsum("...ij,...ji->...", inverse, covariance)
    residuals = np.maximum(own.squares - fitted, 0.0)
    free = np.maximum(own.visits - used, 0.0)
    return np.asarray(np.maximum((BELIEF * LARGEST_VARIANCE + residuals) / (BELIEF + free), SMALLEST_VARIANCE))
