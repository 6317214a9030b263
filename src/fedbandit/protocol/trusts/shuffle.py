"""SDP by amplification (Theorem SDP): silos send as under silo-level LDP, and a mixer hides who sent what.

The noise is set by the theorem (calibration "paper"), or by the same proof with every step computed and with the true
sensitivity (calibration "exact", `privacy.clones`). Either way, what is promised was computed: without the mixer by
exact Gaussian accounting, with it by the clones. The better of the two is the promise.

Clones hide what one silo sends. A user who visits v silos changes what v of them send, in the same shuffled releases:
these are not v mechanisms that could be composed. But the silos can be changed one after the other. Each step leaves
the other silos as they are, whosever data they have, so it is (e, d)-DP as for a user of one silo. By group privacy, v
steps are (v e, d (1 + e^e + ... + e^((v-1) e)))-DP. Without a mixer, where silos do compose, the cost is sqrt(v)
instead of v: the more silos people visit, the less the mixer is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from fedbandit._arrays import Floats, Integers
from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import LARGEST_EXPONENT, published_levels
from fedbandit.privacy.amplification import Amplified, largest_epsilon, published_sdp_sigma, theorem_sdp
from fedbandit.privacy.budget import Privacy, at_most, exactly
from fedbandit.privacy.clones import amplified_epsilon, amplified_sigma
from fedbandit.privacy.ledger import Gaussian
from fedbandit.privacy.noise import NoiseSource
from fedbandit.privacy.sensitivity import joint_shift, rounding_shift
from fedbandit.protocol.adversaries import (
    Adversary,
    Bound,
    Moment,
    Residual,
    SeesMessages,
    gaussian_residuals,
    place_residuals,
)
from fedbandit.protocol.base import SILOS, Message, Part, Protocol
from fedbandit.protocol.calibration import FLIP, LEAK, PUBLISHED, gaussian_noise, published_scales
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.trust import AuditSize, Faith, Trust

__all__ = ["TRUST", "Hidden", "SeesShuffled", "ShuffleProtocol"]

TOGETHER = "the analyzer together with the mixer"
SAME = 1e-9  # relative: an epsilon that was solved for is met up to its last digits


@dataclass(frozen=True)
class ShuffleProtocol(Protocol):
    """R as in Algorithm 2; S is a uniform permutation of the silos' messages.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for one user among all silos, by clones (the proof of the
    amplification lemma, computed) and optimal composition over the releases that hold the user. S must be honest.
    """

    needs_mixer: bool = False  # whether the promise needs the mixer: the noise alone is not enough

    parts = (Part(blind=True),)
    sends = "noisy sums of one batch, through the mixer"

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """S: the messages in random order."""
        (messages,) = held
        return (_shuffled(messages, noise),)

    def adversaries(self) -> tuple[Adversary, ...]:
        """The analyzer behind the mixer; also whoever sees the messages before they are shuffled, if the promise is
        against them too."""
        return (SeesShuffled(tests_noise=True),) if self.needs_mixer else (SeesShuffled(), SeesMessages(TOGETHER))


def _shuffled(messages: Integers, noise: NoiseSource) -> Integers:
    """Messages (..., senders, width) in random order; where there are several runs, each has an order of its own."""
    *lead, senders, _ = messages.shape
    orders = np.stack([noise.permutation(senders) for _ in range(math.prod(lead))])
    return np.take_along_axis(messages, orders.reshape(*lead, senders, 1), axis=SILOS)


@dataclass(frozen=True)
class SeesShuffled:
    """Sees unlabelled releases. Any of them may be that of the user's silo; all other silos are the same in both
    worlds."""

    tests_noise: bool = False  # whether the noise is tested here, because nobody else sees the messages
    name: str = "the analyzer behind the mixer"
    bound: Bound = "dp"
    remembers: bool = False

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        """Exact for a user of one silo; for a user of several, computed as if each silo could be behind any of the
        releases."""
        variances = protocol.release_scales(moment.users) ** 2
        others = moment.expected[0][..., -1:, :]
        residual = (moment.held[0] - others).astype(np.float64)
        score: Floats | float = 0.0
        for silo in self._visited(moment):
            for sign, expected in zip((-1, 1), moment.expected, strict=True):
                gap = (expected[..., silo : silo + 1, :] - others).astype(np.float64)
                each = np.sum(residual * (gap / variances) - gap**2 / (2 * variances), axis=-1)
                score = score + sign * logsumexp(each, axis=-1)
        return score

    def _visited(self, moment: Moment) -> list[int]:
        """The silos whose releases differ between the worlds."""
        low, high = moment.expected
        differs = np.any(low != high, axis=(0, -1))
        return [int(silo) for silo in np.flatnonzero(differs)]

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """The order of the messages; and the noise in them, unless that is left to the adversary that sees them before
        they are shuffled."""
        sent, scales = moment.sent[-1][0], claimed.release_scales(moment.users)
        order = place_residuals("order of the shuffled messages", sent, moment.held[0], scales)
        if not self.tests_noise:
            return order
        return (*order, *gaussian_residuals("noise behind the mixer", sent, moment.expected[world], scales))


def _build(request: Request) -> Built:
    """The lemma's noise ("paper"), the least that its proof certifies ("exact"), or the published simulation's."""
    privacy = request.asked
    if privacy.apart:
        raise ArgumentError(
            "apart", f"must be 0 for trust 'shuffle', got {privacy.apart}: its proof does not allow for spacing"
        )
    if request.calibration == "published":
        levels = published_levels(request.encoder.size)
        sigma = published_sdp_sigma(privacy.epsilon, privacy.delta, request.silos, request.rounds, levels)
        return _built(request, published_scales(sigma), nothing(PUBLISHED))
    if request.calibration == "exact":
        return _build_exactly(request)
    for field in ("participations", "silos_per_user"):
        if getattr(privacy, field) > 1:
            raise ArgumentError(
                field,
                "must be 1 for trust 'shuffle' unless calibration is 'exact': its lemma allows one datum per user",
            )
    local = _local_budget(request)
    return _built(request, Scales.flat(local.sigma), _guarantee(request, local.sigma, _lemma_steps(request, local)))


def _build_exactly(request: Request) -> Built:
    """The least noise by clones, or the noise without the mixer where that is less."""
    alone = gaussian_noise(request, joint_silos=False)
    if alone.problem:
        return _built(request, alone.scales, nothing(alone.problem))
    hidden, privacy, sigma = Hidden.of(request), request.asked, alone.sigma
    if hidden is not None:
        sizes = (hidden.shift, hidden.spread, hidden.silos, hidden.releases)
        sigma = amplified_sigma(*sizes, *_for_one_silo(privacy), most=alone.sigma)
    steps = alone.steps if sigma == alone.sigma else ()
    return _built(request, request.exact_scales(sigma), _guarantee(request, sigma, steps))


@dataclass(frozen=True)
class Hidden:
    """What the clones have to hide, in units of the covariance noise, and among how many."""

    shift: float  # how far one user moves one release
    spread: float  # the largest distance between releases of two silos
    releases: int  # how many releases hold the user
    silos: int  # how many silos to hide among: one of the others may tell the analyzer which message is its own

    @classmethod
    def of(cls, request: Request) -> Hidden | None:
        """None where clones hide nothing. That is where nobody knows beforehand how many points a release will have (on
        a clock, and in a live silo, which counts rewards as they come), where data decide, and where a release is not a
        sum.

        A user's visits may all lie in one batch, or each in a batch of its own: both are counted. Two sums of n points
        are at most as far apart as n replaced users move one sum.
        """
        encoder, visits = request.encoder, request.asked.participations
        unknown = not request.counted or request.visits == "public" or request.acting == "eager" or request.adaptive
        rows = [encoder.row(sync) for sync in range(encoder.size)]
        if unknown or any(np.any((row != 0) & (row != 1)) for row in rows):
            return None
        batches = np.diff((0, *request.times))
        points = max(float(row @ batches[: len(row)]) for row in rows)
        one = joint_shift("replace-one", request.reward_bound, request.ratio)
        rounding = rounding_shift("replace-one", request.dim, request.bits, request.ratio)
        releases = min(encoder.size, visits * encoder.touches)
        return cls(request.shift.total, points * (one + rounding), releases, max(1, request.silos - 1))

    def epsilon(self, request: Request, sigma: float) -> float:
        """The epsilon that the clones certify at this noise, for all silos that a user visits. Where there are several
        and that would be more than was asked for, it is infinity: their delta would be larger, too."""
        visits, (most, delta) = request.asked.silos_per_user, _for_one_silo(request.asked)
        each = amplified_epsilon(self.shift / sigma, self.spread / sigma, self.silos, self.releases, delta)
        return math.inf if visits > 1 and each > most * (1 + SAME) else visits * each


def _for_one_silo(privacy: Privacy) -> tuple[float, float]:
    """What one silo may spend so that all silos of a user together spend the budget, by group privacy."""
    visits, epsilon = privacy.silos_per_user, privacy.epsilon / privacy.silos_per_user
    grown = sum(math.exp(min(i * epsilon, LARGEST_EXPONENT)) for i in range(visits))
    return epsilon, privacy.delta / grown


def _local_budget(request: Request) -> Amplified:
    """The theorem's local mechanism; where there is none, the error says how far the theorem reaches."""
    privacy, releases = request.asked, request.encoder.touches
    try:
        return theorem_sdp(privacy.epsilon, privacy.delta, request.silos, request.rounds, releases)
    except ArgumentError:
        limit = largest_epsilon(privacy.delta, request.silos, request.rounds, releases)
        theorem = (
            f"{request.rounds} rounds and delta = {exactly(privacy.delta)} (Theorem SDP needs a local epsilon <= 1/T)"
        )
        if not limit:
            raise ArgumentError(
                "silos", f"must be more than {request.silos} for trust 'shuffle': no epsilon is in reach with {theorem}"
            ) from None
        raise ArgumentError(
            "epsilon",
            f"must be at most about {limit:.2g} for trust 'shuffle' with {request.silos} silos, {theorem}, got "
            f"{exactly(privacy.epsilon)}",
        ) from None


def _guarantee(request: Request, sigma: float, before: tuple[str, ...]) -> Guarantee:
    """The guarantee that is computed to hold at this noise; `before` are the steps that led to the noise."""
    if request.calibration == "paper" and request.acting == "eager":
        return nothing(FLIP)
    if not request.public_schedule:
        return nothing(LEAK)
    privacy, hidden = request.asked, Hidden.of(request)
    unshuffled = request.exact_epsilon(sigma, joint_silos=False)
    scales = request.exact_scales(sigma) if request.calibration == "exact" else Scales.flat(sigma)
    assumes: tuple[str, ...] = COMMON_ASSUMPTIONS
    if unshuffled <= privacy.epsilon * (1 + SAME):
        words = " With this much noise, the same holds without the mixer."
        steps: tuple[str, ...] = (_alone_step(request, unshuffled),)
        collusion = "the noise alone still keeps the promise, against all of them together"
    else:
        amplified = math.inf if hidden is None else hidden.epsilon(request, sigma)
        if hidden is None or amplified > privacy.epsilon * (1 + SAME):
            shown = at_most(min(unshuffled, amplified))
            return nothing(f"the lemma's sensitivity is too small here: this noise gives an epsilon of {shown}")
        words = f" Without the mixer it is {request.pair_of(unshuffled)}."
        steps = (*_clone_steps(request, hidden, sigma, amplified), _alone_step(request, unshuffled))
        collusion = (
            "the promise is against the analyzer together with any one other silo; if the mixer colludes too, only the "
            f"noise is left: {request.pair_of(unshuffled)}, against all of them together"
        )
        assumes = (
            *assumes,
            "the mixer does not collude with the analyzer (for the first statement)",
            "every reward is counted in the batch of its round, so that releases hold as many points as planned",
        )
    return request.promise(
        f"What the mixer passes on is {privacy.pair}-differentially private for each user "
        f"of any silo ({privacy.adjacency}), against the analyzer.{words}",
        against="the analyzer",
        steps=(*before, *steps, request.grid_step(request.on_grid(scales))),
        assumes=assumes,
        collusion=collusion,
        missing="the sync is skipped for all silos: the lemma needs every silo",
    )


def _lemma_steps(request: Request, local: Amplified) -> tuple[str, ...]:
    """How the theorem arrives at its noise."""
    return (
        f"Each stream gets half of the budget, shared over {_counted(request.encoder.touches)} by advanced "
        f"composition: each shuffled release must be ({local.epsilon:.3g}, {local.delta:.3g})-DP.",
        f"The amplification lemma with {request.silos} silos of {request.rounds} points allows a local epsilon of "
        f"{local.local_epsilon:.3g} at delta_0 = {local.local_delta:.3g}: sigma_0 = {local.sigma:.5g}.",
        *_unknown_points(request),
        "The lemma takes the sensitivity of a stream to be 1, as for adding or removing a user. The next steps compute "
        "what its noise really promises.",
    )


def _clone_steps(request: Request, hidden: Hidden, sigma: float, amplified: float) -> tuple[str, ...]:
    """The amplified statement, in numbers."""
    visits, one_silo = request.asked.silos_per_user, request.pair_of(amplified)
    several: tuple[str, ...] = ()
    if visits > 1:
        one_silo = f"({at_most(amplified / visits)}, {at_most(_for_one_silo(request.asked)[1])})"
        several = (
            f"A user visits at most {visits} silos. Changing these one after the other gives "
            f"{request.pair_of(amplified)}-DP (group privacy).",
        )
    return (
        f"One user moves a release by at most {at_most(hidden.shift / sigma)} standard deviations, and releases of two "
        f"silos are at most {at_most(hidden.spread / sigma)} apart, so every other silo is sometimes a clone of the "
        "user's silo (privacy/clones.py).",
        f"One other silo is counted as colluding. Among the remaining {hidden.silos:,} silos, optimal composition over "
        f"{_counted(hidden.releases)} with the user's data, each shuffled anew, gives {one_silo}-DP.",
        *several,
    )


def _alone_step(request: Request, unshuffled: float) -> str:
    return f"Without a mixer, a silo's transcript is {request.pair_of(unshuffled)}-DP, computed exactly."


def _counted(releases: int) -> str:
    return "1 release" if releases == 1 else f"{releases} releases"


def _unknown_points(request: Request) -> tuple[str, ...]:
    """A step to say that on a clock the lemma only sets the noise, and proves nothing about it."""
    if request.counted:
        return ()
    return (
        "On a clock nobody knows how many points a silo will have, so the lemma proves nothing here. Its noise is what "
        "it asks for with one point per period, and the promise rests only on the exact computation below.",
    )


def _built(request: Request, scales: Scales, guarantee: Guarantee) -> Built:
    """The protocol with this noise. A release costs what it would without a mixer, because that can be composed."""
    drawn = request.on_grid(scales)
    alone = request.exact_epsilon(scales.diagonal, joint_silos=False)
    needs_mixer = guarantee.promised and alone > request.asked.epsilon * (1 + SAME)
    protocol = ShuffleProtocol(request.encoder, drawn, request.dim, request.bits, request.silos, needs_mixer)
    cost = Gaussian(scales.diagonal, scales.diagonal, request.user_shift(joint_silos=False))
    return Built(protocol, guarantee, lambda sync: cost)


TRUST = Trust(
    name="shuffle",
    build=_build,
    faith=Faith.TWO_WHO_DO_NOT_COLLUDE,
    who="Users trust their own silo. The mixer must not collude with the analyzer.",
    whole=True,
    calibrations=("paper", "published", "exact"),
    audit=AuditSize(trials=2_000),
)
