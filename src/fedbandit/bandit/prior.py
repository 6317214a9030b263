"""What a term begins with: sums that an earlier term has released, and the law of the noise in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.bandit.statistics import Scales, width

__all__ = ["COSTS_NOTHING", "IN_THE_CLEAR", "Prior"]

COSTS_NOTHING = (
    "Models begin with sums that an earlier term has released. They are computed from what everybody knew before this "
    "term began, and cost nothing more. A person who is counted in several terms has spent the budgets of all of them, "
    "which add up; their silo's ledger says to how much, and whether a term had none."
)
IN_THE_CLEAR = (
    "Models begin with sums that an earlier term has released, some or all of them without noise. They are computed "
    "from what everybody knew before this term began, and cost nothing more. But that term promised nothing: for a "
    "person who is counted in both, the promise is about what they give in this one."
)


@dataclass(frozen=True)
class Prior:
    """Public sums of an earlier term, as they were decoded, which are part of every model of this term.

    Formal guarantee: using a prior spends nothing. It is a function of releases that the earlier term has accounted
    for, it was fixed before anybody came in this term, and models are computed only from it and from this term's
    releases. For a person who is counted in both terms, the two budgets compose; the silo's ledger has both. A
    term that released some sums without noise promised nothing, so no budget composes; `step` says so.

    Radii: with the prior's weight w, the sums are W = w W_old + W_new (and likewise U), with independent noise of
    variance w^2 s_old^2 + s_new^2 in each number. So Lemma subG holds with that law of the noise, the visits of both
    terms, and one martingale that runs through them; a weight below 1 only reduces the randomness of old rewards.
    This assumes that theta has not changed since.
    """

    sums: tuple[float, ...]  # (width,), natural units
    noise: Scales  # standard deviations of the noise in the sums
    visits: float  # visits behind the sums, of all silos together, as far as they are remembered
    weight: float = 1.0  # with which the sums enter this term's models

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", tuple(float(number) for number in self.sums))
        object.__setattr__(self, "noise", Scales(*(float(number) for number in self.noise)))
        object.__setattr__(self, "visits", float(self.visits))
        object.__setattr__(self, "weight", float(self.weight))
        if not all(map(math.isfinite, self.sums)):
            raise ArgumentError("prior", "must have finite sums")
        if not all(math.isfinite(number) and number >= 0 for number in (*self.noise, self.visits)):
            raise ArgumentError("prior", "must have noise and visits of 0 or more")
        if _validate.positive("weight", self.weight) > 1:
            raise ArgumentError("weight", f"must be at most 1, with which nothing is forgotten, got {self.weight!r}")

    @property
    def step(self) -> str:
        """What the proof of a plan that begins with these sums says about them."""
        return COSTS_NOTHING if all(self.noise) else IN_THE_CLEAR

    def check(self, dim: int) -> None:
        """Refuse sums of another dimension."""
        if len(self.sums) != width(dim):
            raise ArgumentError("prior", f"must have {width(dim)} sums for {dim} features, got {len(self.sums)}")

    def left(self, sync: int, forget: float, sums: ArrayLike | None = None) -> Floats:
        """What is in the models after a sync, (..., width); `sums` instead of these, as every simulated run has its
        own. One sync leaves `forget` of the past; the model before the first sync has as much as that after it."""
        return np.asarray(self.sums if sums is None else sums, dtype=np.float64) * self._share(sync, forget)

    def added(self, law: NoiseLaw, forget: float) -> NoiseLaw:
        """The law of the noise in sums of this term with the prior: variances add up."""
        shares = np.array([self._share(sync, forget) for sync in range(len(law.bias))])
        return replace(
            law,
            **{name: np.hypot(getattr(law, name), shares * std) for name, std in self.noise._asdict().items()},
        )

    @property
    def counts(self) -> float:
        """Visits, as many as are in this term's models at most."""
        return self.weight * self.visits

    def _share(self, sync: int, forget: float) -> float:
        return float(self.weight * forget ** (max(sync, 0) + 1))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prior:
        """The prior in a table of plain values."""
        _validate.known_keys("prior", dict(data), [field.name for field in fields(cls)], ("sums", "noise", "visits"))
        with _validate.reading("prior"):
            return cls(tuple(data["sums"]), _scales(data["noise"]), data["visits"], data.get("weight", 1.0))


def _scales(numbers: Sequence[float]) -> Scales:
    if len(numbers) != len(Scales._fields):
        raise ArgumentError("prior", f"must have {len(Scales._fields)} standard deviations, got {len(numbers)}")
    return Scales(*numbers)
