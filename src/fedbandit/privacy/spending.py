"""What a ledger has spent and what is left of it, composed exactly over the encoder's own matrix.

Formal guarantee of `spent`: the silo that released exactly these events has been (epsilon, delta)-DP for each of its
users, under the adjacency and against those that it names. The Gaussian releases of a term are one Gaussian mechanism
whose sensitivity is the largest column norm of C over the rows released (a row drawn twice counts twice), so mu is that
of the worst-placed user so far; terms compose in squares. Where a user's visits must lie apart, it is the largest norm
over the visits that were admissible so far, or a bound on it (`privacy.spacing`). Where a trusted receiver adds the
noise, that noise counts, against everybody else. Binomial releases of a term spend its whole budget at once; drawn up
to m times each, they are part of m runs of the term, and spend m times the budget (basic composition); and that adds up
over terms.

A term without an end has spent what its first rows have, up to its last event: that grows from release to release and
stays below the budget, however many there are, since the columns of its matrix have finite norms.

Terms of different adjacency are added up under replace-one. Replacing somebody is removing them and adding another, so
an add-remove term counts with twice its mu (the shifts of both add up), and a binomial one by group privacy for two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.privacy.accounting import compose_gdp, gaussian_delta, gaussian_epsilon
from fedbandit.privacy.ledger import LOST, Binomial, Clear, Entrusted, Entry, Gaussian, LedgerError, Release, terms
from fedbandit.privacy.sensitivity import Adjacency

__all__ = ["Encoders", "Rows", "Spent", "TermSpent", "spent"]

HAIR = 1e-6  # relative: less than this is rounding
LARGEST_EXPONENT = 700.0  # e to it is a float


class Rows(Protocol):
    """All that is asked of an encoder here."""

    def row(self, k: int) -> Floats:
        """C[k, 0..k]."""
        ...

    def moved(self, weights: Floats, visits: int, apart: int) -> float:
        """How far visits that lie apart move rows with these weights."""
        ...

    def reached(self, rows: int, visits: int, apart: int) -> float:
        """How far a unit shift of one batch, or of batches that lie apart, moves the first rows."""
        ...


# Mechanism, horizon (0: without an end) and weight: `protocol.mechanisms.encoder`.
Encoders = Callable[[str, int, float], Rows]


@dataclass(frozen=True)
class TermSpent:
    """One term of the ledger."""

    term: int
    plan: str
    kind: str  # of its events
    trust: str
    adjacency: Adjacency
    against: tuple[str, ...]  # against whom no more was spent
    syncs: int  # planned releases; 0 without an end
    released: int  # different syncs released, those whose entries are kept no more included
    redrawn: tuple[int, ...]  # syncs that were drawn more than once
    given_up: tuple[int, ...]  # syncs that were drawn in a copy of the store that was lost: spent all the same
    draws: int  # of the sync that was drawn most often
    mu: float  # of its Gaussian releases; inf if anything left in the clear
    budget: tuple[float, float]  # (epsilon, delta)

    @property
    def epsilon(self) -> float:
        """Spent so far, at `delta`."""
        return self.draws * self.budget[0] if self.composed_at_once else gaussian_epsilon(self.mu, self.budget[1])

    @property
    def delta(self) -> float:
        """Of `epsilon`: the budget's, unless draws of a term that is composed at once were repeated."""
        return min(1.0, self.draws * self.budget[1]) if self.composed_at_once else self.budget[1]

    @property
    def left(self) -> float:
        """Epsilon left of the term's budget; never below zero, and zero where rounding is all that is left."""
        left = self.budget[0] - self.epsilon
        return left if left > HAIR * self.budget[0] else 0.0

    @property
    def overspent(self) -> bool:
        """More than planned; a hair is allowed for rounding in the last digits."""
        if self.composed_at_once:
            return self.draws > 1
        epsilon, delta = self.budget
        return self.mu > 0 and gaussian_delta(self.mu, epsilon * (1 + HAIR)) > delta * (1 + HAIR)

    @property
    def composed_at_once(self) -> bool:
        """Whether its releases spend the whole budget together, whatever their number."""
        return self.kind == Binomial.kind

    def mu_under(self, adjacency: Adjacency) -> float:
        """`mu` of somebody who is replaced in a term that counts people who come or stay away: twice."""
        return self.mu if adjacency == self.adjacency else 2 * self.mu

    def pair_under(self, adjacency: Adjacency) -> tuple[float, float]:
        """(epsilon, delta) likewise, by group privacy for two."""
        if adjacency == self.adjacency:
            return self.epsilon, self.delta
        return 2 * self.epsilon, self.delta * (1 + math.exp(min(self.epsilon, LARGEST_EXPONENT)))


@dataclass(frozen=True)
class Spent:
    """All terms of a ledger together, for a user who took part in every one of them."""

    terms: tuple[TermSpent, ...]

    @property
    def adjacency(self) -> Adjacency:
        """That of `epsilon` and `delta`: the terms' own, or replace-one where they differ."""
        found = {term.adjacency for term in self.terms}
        return "add-remove" if found == {"add-remove"} else "replace-one"

    @property
    def converted(self) -> tuple[int, ...]:
        """Terms of another adjacency, counted as if somebody were replaced in them."""
        return tuple(term.term for term in self.terms if term.adjacency != self.adjacency)

    @property
    def mu(self) -> float:
        """Of all Gaussian releases."""
        return compose_gdp(*(term.mu_under(self.adjacency) for term in self.terms))

    @property
    def delta(self) -> float:
        """Of `epsilon`: the smallest delta of a Gaussian term, plus those of all binomial ones."""
        return min(1.0, self._gaussian_delta + sum(delta for _, delta in self._at_once))

    @property
    def epsilon(self) -> float:
        """Spent by all terms together, at `delta`."""
        gaussian = gaussian_epsilon(self.mu, self._gaussian_delta) if self.mu > 0 else 0.0
        return sum(epsilon for epsilon, _ in self._at_once) + gaussian

    @property
    def _gaussian_delta(self) -> float:
        return min((term.budget[1] for term in self.terms if not term.composed_at_once), default=0.0)

    @property
    def _at_once(self) -> list[tuple[float, float]]:
        return [term.pair_under(self.adjacency) for term in self.terms if term.composed_at_once]


def spent(entries: Sequence[Entry], encoders: Encoders) -> Spent:
    """Compose the events of a ledger (verified before); `encoders` is `protocol.mechanisms.encoder`."""
    return Spent(tuple(_term(events, encoders) for events in terms(entries).values()))


def _term(events: Sequence[Release], encoders: Encoders) -> TermSpent:
    first = events[0]
    for event in events:
        if _shared(event) != _shared(first):
            raise LedgerError(f"term {first.term} has releases of two minds about its plan {first.plan[:12]}")
    counts = Counter(event.sync for event in events)
    adjacency: Adjacency = "add-remove" if first.adjacency == "add-remove" else "replace-one"
    return TermSpent(
        term=first.term,
        plan=first.plan,
        kind=first.cost.kind,
        trust=first.trust,
        adjacency=adjacency,
        against=tuple(dict.fromkeys(event.cost.against for event in events)),
        syncs=first.syncs,
        released=max(counts) + 1 if first.endless else len(counts),
        redrawn=tuple(sorted(sync for sync, times in counts.items() if times > 1)),
        given_up=tuple(sorted({event.sync for event in events if LOST in event.released})),
        draws=max(counts.values()),
        mu=_mu(events, encoders),
        budget=(first.epsilon, first.delta),
    )


def _shared(event: Release) -> tuple[object, ...]:
    """What all releases of a term must agree on: their plan fixes it."""
    promised = event.adjacency, event.epsilon, event.delta, event.visits, event.apart
    return event.cost.kind, event.trust, event.mechanism, event.syncs, event.forget, *promised


def _mu(events: Sequence[Release], encoders: Encoders) -> float:
    """Largest over batches j of the root of the sum over events of (C[sync, j] sensitivity / sigma)^2; where visits
    must lie apart, over admissible sets of batches of the same with the sum of C[sync, j] over the set."""
    first = events[0]
    if first.endless:
        return _mu_endless(events, encoders)
    weights = np.zeros(first.syncs)
    for event in events:
        if isinstance(event.cost, Gaussian | Entrusted):
            weights[event.sync] += (event.cost.sensitivity / event.cost.sigma) ** 2
        elif isinstance(event.cost, Clear):
            return math.inf
    if not np.any(weights):
        return 0.0
    encoder = encoders(first.mechanism, first.syncs, first.forget)
    if first.apart:
        return encoder.moved(weights, first.visits, first.apart)
    squares = np.zeros(first.syncs)
    for sync in np.flatnonzero(weights):
        row = encoder.row(int(sync))
        squares[: len(row)] += weights[sync] * row**2
    return float(np.sqrt(squares.max()))


def _mu_endless(events: Sequence[Release], encoders: Encoders) -> float:
    """The same for a term without an end: every sync up to the last was drawn at least once, kept or not, at the
    largest cost of those that are kept; rows that were drawn more often count as if all had been."""
    if any(isinstance(event.cost, Clear) for event in events):
        return math.inf
    costs = [event.cost for event in events if isinstance(event.cost, Gaussian | Entrusted)]
    if not costs:
        return 0.0
    last, draws = max(events, key=lambda event: event.sync), max(Counter(event.sync for event in events).values())
    encoder = encoders(last.mechanism, 0, last.forget)
    reached = encoder.reached(last.sync + 1, last.visits, last.apart)
    return math.sqrt(draws) * max(cost.sensitivity / cost.sigma for cost in costs) * reached
