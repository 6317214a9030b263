"""What a protocol is asked for, and what it promises in return: the last lines of a proof, with the numbers in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedbandit import _validate
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Cost
from fedbandit.privacy.sensitivity import Shift, joint_shift, rounding_shift
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Encoder

__all__ = [
    "BOUNDED",
    "COMMON_ASSUMPTIONS",
    "Acting",
    "Built",
    "Calibration",
    "DecodeAt",
    "Guarantee",
    "Request",
    "Visits",
    "nothing",
]

Calibration = Literal["exact", "paper", "published"]
Acting = Literal["lazy", "eager"]
DecodeAt = Literal["analyzer", "silo"]
Visits = Literal["private", "public"]

BOUNDED = "features have norm at most 1 and rewards lie in [0, 1]; a silo refuses others"
COMMON_ASSUMPTIONS = (BOUNDED, "times and sizes of messages are fixed by the plan, not by data")
PUBLIC_VISITS = "that, when and how often somebody asks is public: a silo may tick by counting requests"


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) for one user, or, where `epsilon` is None, plainly nothing, and why."""

    statement: str
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    against: str = ""
    steps: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()

    @property
    def promised(self) -> bool:
        """Whether anything is promised at all."""
        return self.epsilon is not None

    def __str__(self) -> str:
        lines = [self.statement]
        if self.steps:
            lines += ["Because:", *(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))]
        if self.assumes:
            lines += ["Assuming:", *(f"  - {assumption}" for assumption in self.assumes)]
        return "\n".join(lines)


def nothing(why: str) -> Guarantee:
    """No guarantee, said plainly."""
    return Guarantee(f"No privacy guarantee: {why}.")


class Built(NamedTuple):
    """What a trust model makes of a request."""

    protocol: Protocol
    guarantee: Guarantee
    spends: Callable[[int], Cost]  # what the release of a sync costs


@dataclass(frozen=True)
class Request:
    """All that a trust model needs to know to calibrate itself."""

    silos: int
    rounds: int
    dim: int
    encoder: Encoder
    times: tuple[int, ...]  # rounds after which silos synchronise
    privacy: Privacy | None
    calibration: Calibration
    acting: Acting
    bits: int
    centre: float
    ratio: float  # (covariance noise / bias noise)^2
    cohort: int  # smallest number of silos in a sync
    colluding: int
    decode_at: DecodeAt
    public_schedule: bool  # False: raw data decide when to synchronise
    share: float  # of mu^2: what the releases may spend; the schedule spends the rest
    visits: Visits = "private"

    def promise(self, statement: str, against: str, steps: Iterable[str], assumes: Iterable[str]) -> Guarantee:
        """The budget asked for, promised."""
        privacy = self.asked
        if self.visits == "public":
            assumes = (*assumes, PUBLIC_VISITS)
        return Guarantee(
            statement, privacy.epsilon, privacy.delta, privacy.adjacency, against, tuple(steps), tuple(assumes)
        )

    @property
    def asked(self) -> Privacy:
        """The budget, where the trust model needs one."""
        if self.privacy is None:
            raise _validate.ArgumentError("privacy", "must be given for every trust but 'none', got None")
        return self.privacy

    @property
    def adaptive(self) -> bool:
        """Whether the data decide when to synchronise, by a private rule or not."""
        return not self.public_schedule or self.share < 1

    @property
    def largest_batch(self) -> int:
        """Users of one silo in its largest batch."""
        return int(np.max(np.diff((0, *self.times))))

    @property
    def shift(self) -> Shift:
        """The largest move of one batch sum by one user, in units of the covariance noise.

        Acting eagerly, one user can change the action, and so the contribution, of everyone after them in the batch:
        then every batch they take part in may move as a whole, each of its users by a full replacement.
        """
        privacy = self.asked
        adjacency = privacy.adjacency if self.acting == "lazy" else "replace-one"
        bound = max(abs(1 - self.centre), abs(self.centre))
        together = privacy.participations * (1 if self.acting == "lazy" else self.largest_batch)
        rounding = rounding_shift(adjacency, self.dim, self.bits, self.ratio)
        return Shift(joint_shift(adjacency, bound, self.ratio), rounding + self._release_rounding, together)

    @property
    def _release_rounding(self) -> float:
        """Rounding of the releases themselves: half a unit in each number, twice, in every release a batch enters.

        Not made smaller by the column norm, as a batch's shift would be: that is at least 1.
        """
        release_bits = self.bits + self.encoder.fraction_bits
        one_release = rounding_shift("replace-one", self.dim, release_bits, self.ratio)
        return self.encoder.rounding_units * one_release * math.sqrt(self.encoder.touches)

    @property
    def sensitivity(self) -> float:
        """Column norm times shift: the l2 sensitivity of one silo's whole transcript."""
        return self.encoder.column_norm * self.shift.total

    def mu(self, sigma: float, joint_silos: bool) -> float:
        """GDP parameter of the whole transcript, schedule included, at noise `sigma` in the covariance's units.

        A user who visits several silos moves the sum of all silos by as many shifts (`joint_silos`), but each silo's
        own transcript by one: those compose in squares.
        """
        schedule = math.sqrt(1 - self.share) / gaussian_sigma(self.asked.epsilon, self.asked.delta)
        return compose_gdp(self._moved(joint_silos) / sigma, schedule)

    def user_shift(self, joint_silos: bool) -> float:
        """How far one user moves the batch sums that are accounted for together, all their rounds and silos counted."""
        visits = self.asked.silos_per_user
        return self.shift.total * (visits if joint_silos else math.sqrt(visits))

    def _moved(self, joint_silos: bool) -> float:
        """How far one user moves the releases that are accounted for together."""
        return self.encoder.column_norm * self.user_shift(joint_silos)

    def exact_sigma(self, joint_silos: bool) -> float:
        """Noise, in the covariance's units, at which the whole transcript meets the budget exactly."""
        budget = gaussian_sigma(self.asked.epsilon, self.asked.delta)
        return budget * self._moved(joint_silos) / math.sqrt(self.share)

    def exact_epsilon(self, sigma: float, joint_silos: bool) -> float:
        """What noise `sigma` on every number gives, computed exactly, at the budget's delta."""
        return gaussian_epsilon(self.mu(sigma, joint_silos), self.asked.delta)

    def exact_scales(self, sigma: float) -> Scales:
        """Frobenius-exact layout: sigma on the diagonal, sigma / sqrt 2 above it (an off-diagonal move counts twice in
        the Frobenius norm but is released once), sigma / sqrt(ratio) on the bias."""
        return Scales(sigma / math.sqrt(self.ratio), sigma, sigma / math.sqrt(2))
