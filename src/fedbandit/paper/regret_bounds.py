"""The paper's regret bounds as numbers: Lemmas general and subG with every constant of their proofs, and the theorems.

`bound` is for a plan: its noise, its schedule and its silos give lambda_min, lambda_max and nu, and these give the
bound of Lemma general. So one function serves Theorems LDP, SDP and SDP-vec and their corollaries: they differ only in
the noise, which the plan knows. The theorems' own formulas hide constants; `order_ldp`, `order_sdp` and
`order_sdp_vec` are these formulas with every hidden constant read as 1, to see how they grow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedbandit._validate import ArgumentError
from fedbandit.bandit.confidence import matrix_norm_bound, vector_norm_bound
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import tree_levels

__all__ = [
    "Order",
    "RegretBound",
    "bound",
    "bound_holds",
    "cap_of_theorem_sdp",
    "general",
    "order_ldp",
    "order_sdp",
    "order_sdp_vec",
    "silos_where_theorem_sdp_speaks",
]


class RegretBound(NamedTuple):
    """A bound on the group regret of the first `rounds` rounds that holds with probability 1 - alpha."""

    silos: int
    rounds: int
    radius: float  # beta_T
    good: float  # Step 4 of the proof: epochs in which det V at most doubles
    bad: float  # Step 5: all other epochs

    @property
    def total(self) -> float:
        return self.good + self.bad

    @property
    def per_round(self) -> float:
        """Reg_M(T)/T, as the figures show it."""
        return self.total / self.rounds

    def says(self, chance: float) -> str:
        """What is known by the bound; `chance` is what acting at random loses per round, all silos together."""
        if self.per_round >= self.silos:
            return f"vacuous here: {self.per_round:,.4g} per round, and nobody can lose more than {self.silos:,}"
        if self.per_round >= chance:
            return f"vacuous here: {self.per_round:,.4g} per round, and acting at random loses {chance:.4g}"
        return f"{self.per_round:,.4g} per round"


def general(
    silos: int,
    rounds: int,
    dim: int,
    batch: int,
    alpha: float,
    smallest: float,  # lambda_min
    largest: float,  # lambda_max
    nu: float,
    agents: int = 1,  # self-normalised processes that must all stay in bounds
) -> RegretBound:
    """Lemma general, every constant of its proof counted; alpha / 2 goes to the rewards' noise.

    Acting lazily, all agents use the same sums, and one process serves them all. Acting eagerly, each has its own data
    in its sums, and a union over `agents` = M is needed.
    """
    users = silos * rounds
    growth = dim * math.log1p(users / (dim * smallest))  # log det of the last V over the first
    radius = math.sqrt(2 * math.log(2 * agents / alpha) + growth) + math.sqrt(largest) + nu
    good = 2 * math.sqrt(2) * radius * math.sqrt(2 * users * growth)  # Cauchy-Schwarz, elliptical potential
    return RegretBound(silos, rounds, radius, good, silos * batch * growth / math.log(2))


def bound(plan: Plan, rounds: int | None = None) -> RegretBound:
    """Lemma subG for this plan's noise, by the constants of its proof; for its first `rounds` rounds, or all of them.

    Of alpha, a quarter goes to the covariance's noise and a quarter to the bias's. Binomial noise (vector sum) is
    taken for Gaussian noise of its variance.
    """
    if plan.syncs is None:
        raise ArgumentError("schedule", "must be public to have a regret bound: no proof covers one that data decide")
    matrix = matrix_norm_bound(plan.noise_law, plan.dim, plan.alpha / 4)
    vector = vector_norm_bound(plan.noise_law.bias, plan.dim, plan.alpha / 4)
    regulariser = max(1.0, 2 * matrix)
    smallest = regulariser - matrix
    return general(
        plan.silos,
        rounds or plan.rounds,
        plan.dim,
        plan.request.largest_batch,
        plan.alpha,
        smallest,
        regulariser + matrix,
        vector / math.sqrt(smallest),
        agents=plan.silos if plan.acting == "eager" else 1,
    )


def bound_holds(plan: Plan) -> bool:
    """Whether the proof covers how this plan acts: lazily, on a public schedule, with the radii of the proof."""
    return plan.confidence == "proof" and plan.acting == "lazy" and plan.syncs is not None


class Order(NamedTuple):
    """The terms of a theorem's bound, hidden constants read as 1."""

    batches: float  # d M B log T
    learning: float  # d sqrt(MT) log(MT/alpha)
    privacy: float

    @property
    def total(self) -> float:
        return sum(self)


def order_ldp(plan: Plan) -> Order:
    """Theorem LDP at this plan's size and budget."""
    privacy, (batches, learning, last) = plan.request.asked, _common(plan)
    cost = (plan.silos * plan.dim) ** 0.75 * math.log(1 / privacy.delta) ** 0.25 / math.sqrt(privacy.epsilon)
    return Order(batches, learning, math.sqrt(plan.rounds) * cost * last)


def order_sdp(plan: Plan) -> Order:
    """Theorem SDP at this plan's size and budget, in its range or not."""
    kappa = tree_levels(plan.encoder.size)
    return _order_sdp(plan, plan.silos * kappa)


def order_sdp_vec(plan: Plan) -> Order:
    """Theorem SDP-vec at this plan's size and budget."""
    kappa = tree_levels(plan.encoder.size)
    return _order_sdp(plan, kappa * plan.dim**2)


def cap_of_theorem_sdp(silos: int, rounds: int, syncs: int) -> float:
    """The largest epsilon of Theorem SDP's range, sqrt(kappa) / (C_1 T sqrt M), with C_1 read as 1."""
    return math.sqrt(tree_levels(syncs)) / (rounds * math.sqrt(silos))


def silos_where_theorem_sdp_speaks(rounds: int, syncs: int, dim: int, alpha: float = 0.01) -> float:
    """From how many silos on the privacy term of Theorem SDP lies below MT, at the largest epsilon and delta it allows.

    There epsilon is sqrt(kappa) / (T sqrt M), so the term is T M^(3/4) times logarithms: linear in T whatever T is.
    """
    kappa = tree_levels(syncs)
    last = math.log(syncs / alpha)

    def share(silos: float) -> float:  # of MT; delta = kappa / T
        return math.sqrt(math.sqrt(dim**3 * math.log(silos * rounds) ** 3 * last / (kappa * silos)))

    silos = 1.0
    while share(silos) >= 1:
        silos *= 1.001
    return silos


def _order_sdp(plan: Plan, inside: float) -> Order:
    """The shuffle theorems: log^(3/4)(`inside` / delta) in the privacy term."""
    privacy, (batches, learning, last) = plan.request.asked, _common(plan)
    cost = plan.dim**0.75 * math.log(inside / privacy.delta) ** 0.75 / math.sqrt(privacy.epsilon)
    return Order(batches, learning, math.sqrt(plan.silos * plan.rounds) * cost * last)


def _common(plan: Plan) -> tuple[float, float, float]:
    """What all theorems share: both terms without privacy, and log^(1/4)(T/(B alpha))."""
    users, batch = plan.silos * plan.rounds, plan.request.largest_batch
    batches = plan.dim * plan.silos * batch * math.log(plan.rounds)
    learning = plan.dim * math.sqrt(users) * math.log(users / plan.alpha)
    return batches, learning, math.log(plan.encoder.size / plan.alpha) ** 0.25
