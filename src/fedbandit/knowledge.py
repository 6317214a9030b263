"""Who is served by what: public and local knowledge are two types, and nothing takes the one for the other.

People whose data are released are served by a `PublicModel`, which is made from decoded prefix sums alone. Everybody
else (over the cap, or opted out) may be served by `LocalKnowledge`: all that their silo knows, its own raw data and the
public model. So a release is a function of the counted people's data and of earlier releases, and nothing else.

How the two are weighed. The public prefix sum less the silo's own part of it (which the silo knows) is what the others
know, plus noise: W = V + N and U = V theta + e + h, so U - W theta = e + h - N theta has covariance about
variance V + noise^2 I. In the directions of W's eigenvectors these equations are worth variance v / (variance v +
noise^2) of as many visits to the silo itself, v the part of the eigenvalue that noise does not explain.
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
    precision = covariance + NOISELESS * np.eye(plan.dim)
    if public.sync == NONE_YET:
        return LocalKnowledge(precision, bias, np.asarray(own.visits, dtype=float))
    more = own.sums.ndim - public.prefix.ndim
    prefix = public.prefix.reshape(*public.prefix.shape[:-1], *[1] * more, -1)
    others_bias, others = unpack(prefix - own.released * scale, plan.dim)
    values, vectors = np.linalg.eigh(others)
    worth = _worth(plan, public.sync, values, _variance(own, bias, covariance)[..., None])
    turned = np.einsum("...ij,...i->...j", vectors, others_bias)
    precision += np.einsum("...ij,...j,...kj->...ik", vectors, worth * values, vectors)
    bias += np.einsum("...ij,...j->...i", vectors, worth * turned)
    return LocalKnowledge(precision, bias, own.visits + (worth * values).sum(axis=-1))


def _worth(plan: Plan, sync: int, values: Floats, variance: Floats) -> Floats:
    """What the others' equations are worth in each direction of their covariance, between 0 and 1.

    The noise of a symmetric matrix alone has eigenvalues up to about 2 sqrt(dim) times that of one entry: only what
    exceeds it is taken for data. theta is taken to have norm 1, the largest that rewards in [0, 1] allow.
    """
    law = plan.noise_law
    entry = max(law.off_diagonal[sync], law.diagonal[sync] / np.sqrt(2))
    noise = law.bias[sync] ** 2 + entry**2
    data = variance * np.maximum(values - 2 * np.sqrt(plan.dim) * entry, 0.0)
    return np.asarray(data / np.maximum(data + noise, np.finfo(float).tiny))


def _variance(own: OwnData, bias: Floats, covariance: Floats) -> Floats:
    """The variance of a reward around its mean, by the residuals of the silo's own visits.

    Before it has any, LARGEST_VARIANCE is believed, as firmly as by `dim` visits.
    """
    dim = bias.shape[-1]
    inverse = np.linalg.inv(covariance + np.eye(dim))
    theta = np.einsum("...ij,...j->...i", inverse, bias)
    fitted = 2 * np.einsum("...i,...i->...", theta, bias) - np.einsum("...i,...ij,...j->...", theta, covariance, theta)
    used = np.einsum("...ij,...ji->...", inverse, covariance)
    residuals = np.maximum(own.squares - fitted, 0.0)
    free = np.maximum(own.visits - used, 0.0)
    return np.asarray(np.maximum((dim * LARGEST_VARIANCE + residuals) / (dim + free), SMALLEST_VARIANCE))
