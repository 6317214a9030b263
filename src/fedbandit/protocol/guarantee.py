"""What a protocol is asked for, and what it promises in return: the last lines of a proof, with the numbers in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedbandit.bandit.statistics import is_diagonal, width
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Shift, joint_shift, rounding_shift
from fedbandit.protocol.base import Protocol
from fedbandit.protocol.encoder import Encoder


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


@dataclass(frozen=True)
class Request:
    """All that a trust model needs to know to calibrate itself."""

    silos: int
    rounds: int
    dim: int
    encoder: Encoder
    times: tuple[int, ...]  # synchronisation times
    privacy: Privacy | None
    calibration: str  # "exact", "paper" or "published"
    acting: str
    bits: int
    centre: float = 0.0
    ratio: float = 1.0  # (covariance noise / bias noise)^2
    cohort: int = 0  # smallest number of silos in a round; 0: all
    colluding: int = 0
    decode_at: str = "analyzer"
    public_schedule: bool = True
    share: float = 1.0  # of mu^2: what the releases may spend of it, the schedule spends the rest

    @property
    def asked(self) -> Privacy:
        """The budget, where the trust model needs one."""
        if self.privacy is None:
            raise ValueError("privacy must be given for every trust but 'none', got None")
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

    def _moved(self, joint_silos: bool) -> float:
        """How far one user moves the releases that are accounted for together."""
        visits = self.asked.silos_per_user
        return self.sensitivity * (visits if joint_silos else math.sqrt(visits))

    def exact_sigma(self, joint_silos: bool) -> float:
        """Noise, in the covariance's units, at which the whole transcript meets the budget exactly."""
        budget = gaussian_sigma(self.asked.epsilon, self.asked.delta)
        return budget * self._moved(joint_silos) / math.sqrt(self.share)

    def exact_epsilon(self, sigma: float, joint_silos: bool) -> float:
        """What noise `sigma` on every number gives, computed exactly, at the budget's delta."""
        return gaussian_epsilon(self.mu(sigma, joint_silos), self.asked.delta)

    def exact_scales(self, sigma: float) -> tuple[float, ...]:
        """Frobenius-exact layout: sigma on the diagonal, sigma / sqrt 2 above it (an off-diagonal move counts twice in
        the Frobenius norm but is released once), sigma / sqrt(ratio) on the bias."""
        scales = np.where(is_diagonal(self.dim), sigma, sigma / np.sqrt(2))
        scales[: self.dim] = sigma / np.sqrt(self.ratio)
        return tuple(scales.tolist())

    def flat_scales(self, sigma: float) -> tuple[float, ...]:
        """The paper's layout: sigma on every number on and above the diagonal and on the bias."""
        return (sigma,) * width(self.dim)


COMMON_ASSUMPTIONS = (
    "features have norm at most 1 and rewards lie in [0, 1]; a silo refuses others",
    "times and sizes of messages are fixed by the plan, not by data",
)
