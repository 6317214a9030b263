"""What a ledger has spent and what is left of its budget, composed exactly over the encoder's own matrix.

Formal guarantee of `spent`: the silo that released exactly these events has been (epsilon, delta)-DP for each of its
users, under the adjacency and against the adversaries that it names.

* The Gaussian releases of a term are one Gaussian mechanism. Its sensitivity is the largest column norm of C over the
  rows released (a row drawn twice counts twice), so its mu is that of the worst-placed user so far. Where a user's
  visits must lie apart, it is the largest norm over the visits that were admissible so far, or a bound on it
  (`privacy.spacing`). Terms compose in squares.
* Where a trusted receiver adds the noise, that noise counts, against everybody else.
* Binomial releases of a term spend its whole budget at once. Drawn up to m times each, they are part of m runs of the
  term and spend m times the budget (basic composition). What such terms spend adds up.

A term without an end has spent what its first rows have, up to its last event. That grows with the releases but never
exceeds the budget, however many there are, since the columns of its matrix have finite norms.

Terms of different adjacency are added up under replace-one. To replace somebody is to remove them and to add another.
So an add-remove term counts with twice its mu (the two shifts add up), and a binomial one by group privacy for two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.privacy.accounting import LARGEST_EXPONENT, compose_gdp, gaussian_delta, gaussian_epsilon
from fedbandit.privacy.ledger import LOST, Binomial, Clear, Entrusted, Entry, Gaussian, LedgerError, Release, terms
from fedbandit.privacy.sensitivity import Adjacency

__all__ = ["Encoders", "Rows", "Spent", "TermSpent", "spent"]

HAIR = 1e-6  # relative: less than this is rounding


class Rows(Protocol):
    """What this module asks of an encoder."""

    @property
    def has_negative(self) -> bool:
        """Whether an entry of C is negative."""
        ...

    def row(self, k: int) -> Floats:
        """C[k, 0..k]."""
        ...

    def moved(self, weights: Floats, visits: int, apart: int) -> float:
        """How far visits that lie apart move all rows together, each with its weight in the squared norm."""
        ...

    def reached(self, rows: int, visits: int, apart: int) -> float:
        """How far a unit shift of one batch, or of batches that lie apart, moves the first `rows` rows."""
        ...


# Mechanism, horizon (0: without an end) and weight: `protocol.mechanisms.encoder`.
Encoders = Callable[[str, int, float], Rows]


@dataclass(frozen=True)
class TermSpent:
    """What one term of the ledger has spent."""

    term: int
    plan: str
    kind: str  # of its events
    trust: str
    adjacency: Adjacency
    against: tuple[str, ...]  # against whom no more was spent
    syncs: int  # planned releases; 0 without an end
    released: int  # different syncs released, including those whose entries are no longer kept
    redrawn: tuple[int, ...]  # syncs that were drawn more than once
    given_up: tuple[int, ...]  # syncs that were drawn in a lost copy of the store: they are spent all the same
    draws: int  # how often the sync that was drawn most often was drawn
    mu: float  # of its Gaussian releases; inf if anything left in the clear
    budget: tuple[float, float]  # (epsilon, delta)

    @property
    def epsilon(self) -> float:
        """The epsilon spent so far, at `delta`."""
        return self.draws * self.budget[0] if self.composed_at_once else gaussian_epsilon(self.mu, self.budget[1])

    @property
    def delta(self) -> float:
        """The delta of `epsilon`: the budget's, unless releases of a term composed at once were drawn again."""
        return min(1.0, self.draws * self.budget[1]) if self.composed_at_once else self.budget[1]

    @property
    def left(self) -> float:
        """What is left of the term's epsilon: never below zero, and zero where only rounding is left."""
        left = self.budget[0] - self.epsilon
        return left if left > HAIR * self.budget[0] else 0.0

    @property
    def overspent(self) -> bool:
        """Whether more was spent than planned; a hair is allowed for rounding in the last digits."""
        if self.composed_at_once:
            return self.draws > 1
        epsilon, delta = self.budget
        return self.mu > 0 and gaussian_delta(self.mu, epsilon * (1 + HAIR)) > delta * (1 + HAIR)

    @property
    def composed_at_once(self) -> bool:
        """Whether its releases spend the whole budget together, however many there are."""
        return self.kind == Binomial.kind

    def mu_under(self, adjacency: Adjacency) -> float:
        """`mu` under this adjacency: twice as large for somebody who is replaced in an add-remove term."""
        return self.mu if adjacency == self.adjacency else 2 * self.mu

    def pair_under(self, adjacency: Adjacency) -> tuple[float, float]:
        """(epsilon, delta) under this adjacency: by group privacy for two in the same case."""
        if adjacency == self.adjacency:
            return self.epsilon, self.delta
        return 2 * self.epsilon, self.delta * (1 + math.exp(min(self.epsilon, LARGEST_EXPONENT)))


@dataclass(frozen=True)
class Spent:
    """All terms of a ledger together, for a user who took part in every one of them."""

    terms: tuple[TermSpent, ...]

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency that `epsilon` and `delta` are for: the one of all terms, or replace-one where they differ."""
        found = {term.adjacency for term in self.terms}
        return "add-remove" if found == {"add-remove"} else "replace-one"

    @property
    def converted(self) -> tuple[int, ...]:
        """The terms of another adjacency, which count as if somebody were replaced in them."""
        return tuple(term.term for term in self.terms if term.adjacency != self.adjacency)

    @property
    def mu(self) -> float:
        """The mu of all Gaussian releases together."""
        return compose_gdp(*(term.mu_under(self.adjacency) for term in self.terms))

    @property
    def delta(self) -> float:
        """The delta of `epsilon`: the smallest delta of a Gaussian term, plus those of all binomial terms."""
        return min(1.0, self._gaussian_delta + sum(delta for _, delta in self._at_once))

    @property
    def epsilon(self) -> float:
        """The epsilon spent by all terms together, at `delta`."""
        gaussian = gaussian_epsilon(self.mu, self._gaussian_delta) if self.mu > 0 else 0.0
        return sum(epsilon for epsilon, _ in self._at_once) + gaussian

    @property
    def _gaussian_delta(self) -> float:
        return min((term.budget[1] for term in self.terms if not term.composed_at_once), default=0.0)

    @property
    def _at_once(self) -> list[tuple[float, float]]:
        return [term.pair_under(self.adjacency) for term in self.terms if term.composed_at_once]


def spent(entries: Sequence[Entry], encoders: Encoders) -> Spent:
    """Compose the events of a ledger that was verified before; `encoders` is `protocol.mechanisms.encoder`."""
    return Spent(tuple(_term(events, encoders) for events in terms(entries).values()))


def _term(events: Sequence[Release], encoders: Encoders) -> TermSpent:
    first = events[0]
    for event in events:
        if _shared(event) != _shared(first):
            raise LedgerError(f"the releases of term {first.term} disagree about its plan {first.plan[:12]}")
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
    """What all releases of a term must agree on, because their plan fixes it."""
    promised = event.adjacency, event.epsilon, event.delta, event.visits, event.apart
    return event.cost.kind, event.trust, event.mechanism, event.syncs, event.forget, *promised


def _mu(events: Sequence[Release], encoders: Encoders) -> float:
    """The mu of a term's Gaussian releases: the largest over batches j of the root of the sum over events of
    (C[sync, j] sensitivity / sigma)^2. Where visits must lie apart, the largest over admissible sets of batches, with
    the sum of C[sync, j] over the set in the place of C[sync, j].

    If C has negative entries, the sensitivity allows for late rewards over the first rows of C, each drawn equally
    often (`late_factor`). So every sync up to the last counts as drawn as often as the one that was drawn most often.
    """
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
    if encoder.has_negative:
        weights[: np.flatnonzero(weights)[-1] + 1] = weights.max()
    if first.apart:
        return encoder.moved(weights, first.visits, first.apart)
    squares = np.zeros(first.syncs)
    for sync in np.flatnonzero(weights):
        row = encoder.row(int(sync))
        squares[: len(row)] += weights[sync] * row**2
    return float(np.sqrt(squares.max()))


def _mu_endless(events: Sequence[Release], encoders: Encoders) -> float:
    """The mu of a term without an end. Every sync up to the last was drawn at least once, kept or not, and counts at
    the largest cost of those that are kept. If one was drawn more often, all count as drawn that often."""
    if any(isinstance(event.cost, Clear) for event in events):
        return math.inf
    costs = [event.cost for event in events if isinstance(event.cost, Gaussian | Entrusted)]
    if not costs:
        return 0.0
    last, draws = max(events, key=lambda event: event.sync), max(Counter(event.sync for event in events).values())
    encoder = encoders(last.mechanism, 0, last.forget)
    reached = encoder.reached(last.sync + 1, last.visits, last.apart)
    return math.sqrt(draws) * max(cost.sensitivity / cost.sigma for cost in costs) * reached
