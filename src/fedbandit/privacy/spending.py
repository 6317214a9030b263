"""What a ledger has spent and what is left of it, composed exactly over the encoder's own matrix.

Formal guarantee of `spent`: the silo that released exactly these events has been (epsilon, delta)-DP for each
of its users. The Gaussian releases of a term are one Gaussian mechanism whose sensitivity is the largest
column norm of C over the rows released (a row drawn twice counts twice), so mu is that of the worst-placed
user so far; terms compose in squares. Binomial releases of a term spend its whole budget at once, and that
adds up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.privacy.accounting import compose_gdp, gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.ledger import Binomial, Clear, Entry, Gaussian, LedgerError, Release, terms

__all__ = ["Encoders", "Rows", "Spent", "TermSpent", "spent"]


class Rows(Protocol):
    """All that is asked of an encoder here."""

    def row(self, k: int) -> Floats:
        """C[k, 0..k]."""
        ...


Encoders = Callable[[str, int], Rows]  # mechanism and horizon to encoder: `protocol.mechanisms.encoder`


@dataclass(frozen=True)
class TermSpent:
    """One term of the ledger."""

    term: int
    plan: str
    kind: str  # of its events
    trust: str
    syncs: int  # planned releases
    released: int  # different syncs released
    redrawn: tuple[int, ...]  # syncs that were drawn more than once
    mu: float  # of its Gaussian releases; inf if anything left in the clear
    budget: tuple[float, float]  # (epsilon, delta)

    @property
    def epsilon(self) -> float:
        """Spent so far, at the budget's delta."""
        if self.kind == Binomial.kind:
            return self.budget[0]
        return _gaussian_epsilon(self.mu, self.budget[1])

    @property
    def left(self) -> float:
        """Epsilon left of the term's budget; never below zero."""
        return max(0.0, self.budget[0] - self.epsilon)

    @property
    def overspent(self) -> bool:
        """More than planned; a hair is allowed for rounding in the last digits."""
        return self.epsilon > self.budget[0] * (1 + 1e-6)

    @property
    def mu_left(self) -> float:
        """What further Gaussian releases of the term may spend, in squares."""
        planned = 1 / gaussian_sigma(*self.budget)
        return math.sqrt(max(0.0, planned**2 - self.mu**2))


@dataclass(frozen=True)
class Spent:
    """All terms of a ledger together, for a user who took part in every one of them."""

    terms: tuple[TermSpent, ...]

    @property
    def mu(self) -> float:
        """Of all Gaussian releases."""
        return compose_gdp(*(term.mu for term in self.terms))

    @property
    def delta(self) -> float:
        """Of `epsilon`: the smallest delta of a Gaussian term, plus those of all binomial ones."""
        gaussian = [term.budget[1] for term in self.terms if term.kind != Binomial.kind]
        return min(gaussian, default=0.0) + sum(term.budget[1] for term in self._binomial)

    @property
    def epsilon(self) -> float:
        """Spent by all terms together, at `delta`."""
        rest = self.delta - sum(term.budget[1] for term in self._binomial)
        return sum(term.budget[0] for term in self._binomial) + _gaussian_epsilon(self.mu, rest)

    @property
    def _binomial(self) -> list[TermSpent]:
        return [term for term in self.terms if term.kind == Binomial.kind]


def spent(entries: Sequence[Entry], encoders: Encoders) -> Spent:
    """Compose the events of a ledger (verified before); `encoders` is `protocol.mechanisms.encoder`."""
    return Spent(tuple(_term(events, encoders) for events in terms(entries).values()))


def _term(events: Sequence[Release], encoders: Encoders) -> TermSpent:
    first = events[0]
    for event in events:
        if _shared(event) != _shared(first):
            raise LedgerError(f"term {first.term} has releases of two minds about its plan {first.plan[:12]}")
    counts = Counter(event.sync for event in events)
    return TermSpent(
        term=first.term,
        plan=first.plan,
        kind=first.cost.kind,
        trust=first.trust,
        syncs=first.syncs,
        released=len(counts),
        redrawn=tuple(sorted(sync for sync, times in counts.items() if times > 1)),
        mu=_mu(events, encoders),
        budget=(first.epsilon, first.delta),
    )


def _shared(event: Release) -> tuple[object, ...]:
    """What all releases of a term must agree on: their plan fixes it."""
    return event.cost.kind, event.trust, event.mechanism, event.syncs, event.adjacency, event.epsilon, event.delta


def _mu(events: Sequence[Release], encoders: Encoders) -> float:
    """Largest over batches j of the root of the sum over events of (C[sync, j] sensitivity / sigma)^2."""
    if any(isinstance(event.cost, Clear) for event in events):
        return math.inf
    squares = np.zeros(events[0].syncs)
    for event in events:
        if isinstance(event.cost, Gaussian):
            row = encoders(event.mechanism, event.syncs).row(event.sync)
            squares[: len(row)] += (row * event.cost.sensitivity / event.cost.sigma) ** 2
    return float(np.sqrt(squares.max()))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    if mu == 0:
        return 0.0
    return math.inf if math.isinf(mu) else gaussian_epsilon(mu, delta)
