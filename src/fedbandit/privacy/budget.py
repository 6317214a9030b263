"""What is asked for: an epsilon and a delta, for whom, and how often one person may take part."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from fedbandit import _validate
from fedbandit.privacy.sensitivity import ADJACENCIES, Adjacency

__all__ = ["Privacy", "at_most", "exactly"]

LEAST = {"epsilon": 1e-100, "delta": 1e-300}  # below these, squares and inverses leave the range of floating point


@dataclass(frozen=True)
class Privacy:
    """(epsilon, delta) for one user, over the whole horizon.

    `adjacency`: replace-one (the paper's definition: a user becomes another) or add-remove (a user's round is empty).
    `participations`: rounds of one silo that the same user may take part in; a silo enforces the cap.
    `silos_per_user`: silos that the same user may visit (Appendix "Non-unique users").
    `apart`: how many syncs apart two visits of the same user to a silo must lie for both to count. 0: they may share a
    batch, which then moves by one shift per visit; 1: each counts in a batch of its own; 30: the second counts only if
    it comes at least 30 syncs later. A silo enforces this too, and it needs much less noise.

    >>> Privacy(epsilon=1.0, delta=1e-5)
    Privacy(epsilon=1.0, delta=1e-05, adjacency='replace-one', participations=1, silos_per_user=1, apart=0)
    >>> Privacy(epsilon=1.0, delta=2.0)
    Traceback (most recent call last):
    fedbandit._validate.ArgumentError: delta must lie strictly between 0 and 1, got 2.0
    """

    epsilon: float
    delta: float = 1e-5
    adjacency: Adjacency = "replace-one"
    participations: int = 1
    silos_per_user: int = 1
    apart: int = 0

    def __post_init__(self) -> None:
        _validate.plain_numbers(self)
        _validate.positive("epsilon", self.epsilon)
        _validate.within("delta", self.delta, 0, 1)
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise _validate.ArgumentError(name, f"must be at least {least:g}, got {getattr(self, name)!r}")
        _validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        _validate.count("participations", self.participations)
        _validate.count("silos_per_user", self.silos_per_user)
        if _validate.count("apart", self.apart, least=0) and self.participations == 1:
            raise _validate.ArgumentError(
                "apart", f"must be 0 where a user counts once, got {self.apart}: set participations above 1"
            )

    def as_dict(self) -> dict[str, Any]:
        """The budget as plain data. `apart` was added later: it is left out where it is not used, so that older plans
        keep their hashes."""
        data = asdict(self)
        if not self.apart:
            del data["apart"]
        return data

    @property
    def pair(self) -> str:
        """(epsilon, delta) as text, exactly: one promise must not be rounded into another.

        >>> Privacy(1.0, 1e-5).pair, Privacy(0.1234567, 1 - 1e-16).pair
        ('(1, 1e-05)', '(0.1234567, 0.9999999999999999)')
        """
        return f"({exactly(self.epsilon)}, {exactly(self.delta)})"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Privacy:
        """The budget that a plan wrote as plain data; unknown names are refused."""
        _validate.known_keys("privacy", data, cls.__dataclass_fields__, required=("epsilon", "delta"))
        return cls(**data)


def exactly(number: float) -> str:
    """The shortest text that reads back as this number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


def at_most(number: float, digits: int = 4) -> str:
    """A computed epsilon or delta in few digits, rounded up: what is printed is never less than what is spent.

    >>> at_most(1.23441), at_most(0.99991), at_most(1.00000001), at_most(math.inf)
    ('1.235', '1', '1.001', 'infinity')
    """
    if not math.isfinite(number):
        return "infinity"
    last_digits = 1 - 1e-12  # a sum of floats may exceed a round number in these
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(number * last_digits))
    return f"{float(rounded):.{digits}g}"
