"""How much Gaussian noise a transcript needs, and the steps of the proof: exactly, or with the paper's constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import (
    published_ldp_sigma,
    published_levels,
    theorem_ldp_sigma,
    tree_levels,
    zcdp_epsilon,
)
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.ledger import Gaussian
from fedbandit.protocol.guarantee import Request

__all__ = ["FLIP", "LEAK", "PUBLISHED", "GaussianNoise", "Stated", "gaussian_noise", "published_scales"]

LEAK = "whether a sync happens depends on users' raw data, and noise on what is sent does not hide that"
FLIP = (
    "silos act on raw sums, so one user changes the actions of others in the batch, the batch sum moves by far more "
    "than 1, and the theorem's proof does not apply; act lazily instead"
)
VISITS_SILOS = "visits at most {} silos"
PUBLISHED = "the noise uses the constants of the published simulation, not those of the theorem"


class GaussianNoise(NamedTuple):
    """The noise that a transcript needs, with the proof or, where there is no proof, the reason."""

    sigma: float  # on the diagonal of the covariance
    shift: float  # of one batch sum by one user, in the same unit; the guarantee and the ledger both read it here
    scales: Scales
    steps: tuple[str, ...] = ()
    problem: str = ""
    beside: float = 0.0  # mu^2 of a silo's own releases, in units of the mu^2 of these

    def cost(self, own_share: float = 1.0) -> Gaussian:
        """What one release costs, together with what the silo releases to itself at the same sync; `own_share` of the
        noise is the silo's own. Two Gaussians cost as much as one whose precision, 1 / sigma^2, is the sum of
        theirs."""
        own = 1 / math.sqrt(own_share**-2 + self.beside)
        return Gaussian(self.sigma / math.sqrt(1 + self.beside), self.sigma * own, self.shift)


class Stated(NamedTuple):
    """The noise that some paper states, and the paper's words for it."""

    sigma: float  # in units of the covariance, as `Request.exact_epsilon` takes it
    scales: Scales
    step: str


def gaussian_noise(
    request: Request,
    joint_silos: bool,
    comes: str = VISITS_SILOS,
    literature: Callable[[Request], Stated] | None = None,
) -> GaussianNoise:
    """The noise of one transcript; `joint_silos`: the transcript is a sum over silos, so a user's visits add up in it.

    `comes` is the wording for what `silos_per_user` counts. `literature` states the noise of a trust model that has a
    paper of its own.
    """
    if request.calibration == "literature":
        assert literature is not None, "a plan refuses calibrations that its trust model does not declare"
        noise = _computed(request, joint_silos, comes, literature(request))
    else:
        calibrate = {"exact": _exact, "paper": _theorem, "published": _published}[request.calibration]
        noise = calibrate(request, joint_silos, comes)
    if not request.public_schedule:
        return noise._replace(steps=(), problem=LEAK)
    if request.adaptive and request.acting == "eager":  # a batch may then be as long as the horizon
        return noise._replace(steps=(), problem=FLIP)
    return noise


def _exact(request: Request, joint_silos: bool, comes: str) -> GaussianNoise:
    """A joint release of both streams, by the analytic Gaussian: no slack."""
    sigma, privacy = request.exact_sigma(joint_silos), request.asked
    scales, mu = request.exact_scales(sigma), at_most(request.mu(sigma, joint_silos), 5)
    steps = (
        *_sensitivity_steps(request, joint_silos, comes),
        f"Noise of standard deviation {scales.diagonal:.5g} on the diagonal, {scales.off_diagonal:.5g} off it and "
        f"{scales.bias:.5g} on the bias makes the transcript mu-GDP with mu = {mu} (Gaussians, composed adaptively).",
        f"With that mu it is exactly {privacy.pair}-DP (analytic Gaussian).",
    )
    beside = 0.0 if request.personal is None else request.personal.share / request.released_share
    return GaussianNoise(sigma, request.user_shift(joint_silos), scales, steps, beside=beside)


def _theorem(request: Request, joint_silos: bool, comes: str) -> GaussianNoise:
    """The noise of Theorem LDP, and an exact check of what it promises."""
    privacy = request.asked
    sigma = theorem_ldp_sigma(privacy.epsilon, privacy.delta, tree_levels(request.encoder.size))
    slack = (
        "The theorem takes the sensitivity of each stream to be 1, as for adding or removing a user. The next steps "
        "compute exactly whether its slack covers the true sensitivity."
    )
    return _computed(
        request, joint_silos, comes, Stated(sigma, Scales.flat(sigma), _theorem_step(request, sigma)), slack
    )


def _computed(request: Request, joint_silos: bool, comes: str, stated: Stated, *before: str) -> GaussianNoise:
    """Noise that somebody else has fixed, and an exact check of what it promises; `before` are the steps before it."""
    noise = GaussianNoise(stated.sigma, request.user_shift(joint_silos), stated.scales)
    if request.acting == "eager":
        return noise._replace(problem=FLIP)
    exact = request.exact_epsilon(stated.sigma, joint_silos)
    if exact > request.asked.epsilon:
        return noise._replace(problem=f"the theorem's noise gives an exact epsilon of {at_most(exact)} here")
    steps = (
        stated.step,
        *before,
        *_sensitivity_steps(request, joint_silos, comes),
        f"At sigma_0 = {stated.sigma:.4f} this is exactly {request.pair_of(exact)}-DP, within the budget.",
    )
    return noise._replace(steps=steps)


def _theorem_step(request: Request, sigma: float) -> str:
    """What the theorem says about its own mechanism, the tree; about others it says nothing."""
    if request.encoder.name != "tree":
        return f"The noise is Theorem LDP's for a tree over {request.encoder.size} releases: sigma_0 = {sigma:.4f}."
    levels, delta = tree_levels(request.encoder.size), request.asked.delta / 2
    stream = zcdp_epsilon(levels / (2 * sigma**2), delta)
    return (
        f"Theorem LDP: each p-sum is 1/(2 sigma_0^2)-zCDP and a datum enters kappa = 1 + log2 {request.encoder.size} = "
        f"{levels:.3f} of them, so each of the two streams is ({at_most(stream)}, {exactly(delta)})-DP at sigma_0 = "
        f"{sigma:.4f}."
    )


def _published(request: Request, joint_silos: bool, comes: str) -> GaussianNoise:
    """The noise of the published simulation, which promises nothing."""
    privacy = request.asked
    sigma = published_ldp_sigma(privacy.epsilon, privacy.delta, published_levels(request.encoder.size))
    return GaussianNoise(sigma, request.user_shift(joint_silos), published_scales(sigma), problem=PUBLISHED)


def published_scales(sigma: float) -> Scales:
    """The published simulation adds (Z + Z') / 2 to a covariance: sigma on the diagonal, sigma / sqrt 2 off it."""
    return Scales(sigma, sigma, sigma / math.sqrt(2))


def _sensitivity_steps(request: Request, joint_silos: bool, comes: str) -> tuple[str, ...]:
    """How far one user can move the transcript, in words and numbers."""
    shift, encoder, privacy = request.shift, request.encoder, request.asked
    one_round = shift.exact + shift.rounding
    steps = [
        f"One round moves a batch sum (bias and covariance together) by at most {at_most(shift.exact, 6)} "
        f"({privacy.adjacency}, rewards entering as y - {request.centre:g}, covariance and bias noise in the ratio "
        f"{math.sqrt(request.ratio):.4g}:1), and by {at_most(shift.rounding, 3)} more for rounding to "
        f"2^-{request.bits}."
    ]
    if request.acting == "eager":
        steps.append(
            f"Silos act eagerly, so a user can change the actions of all {request.largest_batch} users of every batch "
            f"that the user is in. The number of such batches is at most {privacy.participations}: "
            f"{shift.participations} x {one_round:.5f} = {shift.total:.4g}."
        )
    elif shift.participations > 1:
        steps.append(
            f"A user takes part in at most {shift.participations} rounds of a silo, at worst all in one batch: "
            f"{shift.participations} x {one_round:.5f} = {shift.total:.5f}."
        )
    if privacy.apart:
        steps.append(_spaced_step(request))
    else:
        steps.append(_batch_step(request))
    if request.sensitivity > request.reach * shift.total * (1 + 1e-12):
        steps.append(
            "Some columns of the encoder point in partly opposite directions, so a user whose reward arrives in "
            f"another batch can move the releases further: sensitivity {request.sensitivity:.4f}."
        )
    if encoder.forget < 1:
        steps.append(
            "The sums decoded from these releases are weighted: each sync multiplies the weight of the past by "
            f"{encoder.forget:g}. They are computed from what was released, so they cost nothing more."
        )
    if encoder.endless:
        steps.append(
            "There is no last release. These statements hold for the first K releases, with the same numbers for every "
            "K. Anything that can be seen in all releases is the limit of what can be seen in finitely many, so the "
            "statements hold for all releases together."
        )
    if request.share < 1:
        steps.append(
            f"The schedule looks at a noisy covariance of its own, which spends {1 - request.share:.0%} of mu^2; the "
            f"releases spend the rest."
        )
    if request.personal is not None:
        columns = len(request.personal.columns)
        steps.append(
            "At every sync each silo also releases to itself the numbers from which it learns its own part of theta "
            f"({columns} of {request.dim} weights), with separate noise that is enough for the silo alone. These "
            f"releases spend {request.personal.share:.0%} of mu^2, and the shared releases spend the rest. How people "
            "are served is computed from both."
        )
    visits = privacy.silos_per_user
    if visits > 1:
        how = f"add up to {visits} times" if joint_silos else f"compose in squares, to sqrt {visits} times"
        steps.append(f"A user {comes.format(visits)}; the shifts {how} the sensitivity.")
    return tuple(steps)


def _batch_step(request: Request) -> str:
    """The step of the proof from a batch to all releases."""
    shift, encoder = request.shift, request.encoder
    releases = (
        f"{encoder.touches} releases and no later ones"
        if encoder.endless
        else (f"{encoder.touches} of {encoder.size} releases")
    )
    return (
        f"A batch enters {releases}, with squared weights that add up to at most "
        f"{at_most(encoder.column_norm**2, 5)} ({encoder.name}): sensitivity {shift.total:.5f} x "
        f"{encoder.column_norm:.4f} = {encoder.column_norm * shift.total:.4f}."
    )


def _spaced_step(request: Request) -> str:
    """The step of the proof from visits in batches that lie apart to all releases."""
    shift, privacy, reach = request.shift, request.asked, request.reach
    over = ", ever" if request.encoder.endless else f" of {request.encoder.size}"
    return (
        f"A user counts in at most {privacy.participations} batches{over}, any two at least "
        f"{privacy.apart} syncs apart. Whichever batches these are, and whichever they would be with other data, the "
        f"sum of their columns in {request.encoder.name} has a norm of at most {at_most(reach, 5)} (all visits in one "
        f"batch: {privacy.participations * request.encoder.column_norm:.4f}): sensitivity {shift.total:.5f} x "
        f"{reach:.4f} = {reach * shift.total:.4f}."
    )
