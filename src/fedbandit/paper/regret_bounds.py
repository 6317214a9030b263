"""The paper's regret bounds as numbers: Lemmas general and subG with every constant of their proofs, and the theorems.

`bound` takes a plan. The plan's noise, schedule and silos give lambda_min, lambda_max and nu, and these give the bound
of Lemma general. One function therefore serves Theorems LDP, SDP and SDP-vec and their corollaries, which differ only
in the noise. The theorems' own formulas hide constants; `order_ldp`, `order_sdp` and `order_sdp_vec` are these formulas
with every hidden constant read as 1, to show how they grow.
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
        """What the bound says, in words; `chance` is what all silos together lose per round by acting at random."""
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
    agents: int = 1,  # number of self-normalised processes that must all stay in bounds
) -> RegretBound:
    """Lemma general with every constant of its proof; alpha / 2 goes to the rewards' noise.

    When agents act lazily, all use the same sums, and one process serves them all. When they act eagerly, the sums of
    each contain its own data, and a union bound over `agents` = M is needed.
    """
    users = silos * rounds
    growth = dim * math.log1p(users / (dim * smallest))  # log(det of the last V / det of the first)
    radius = math.sqrt(2 * math.log(2 * agents / alpha) + growth) + math.sqrt(largest) + nu
    good = 2 * math.sqrt(2) * radius * math.sqrt(2 * users * growth)  # Cauchy-Schwarz, elliptical potential
    return RegretBound(silos, rounds, radius, good, silos * batch * growth / math.log(2))


def bound(plan: Plan, rounds: int | None = None) -> RegretBound:
    """Lemma subG for this plan's noise with the constants of its proof, for the first `rounds` rounds (default: all).

    A quarter of alpha goes to the noise of the covariance, a quarter to that of the bias. Binomial noise (vector sum)
    is treated as Gaussian noise of the same variance.
    """
    if plan.syncs is None:
        raise ArgumentError("schedule", "must be public for a regret bound: no proof covers one that depends on data")
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


class Order(NamedTuple):
    """The terms of a theorem's bound, with hidden constants read as 1."""

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
    """Theorem SDP at this plan's size and budget, even outside the theorem's range."""
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
    """The number of silos from which Theorem SDP's privacy term is below MT, at the largest epsilon and delta allowed.

    The largest epsilon is sqrt(kappa) / (T sqrt M), so the term is T M^(3/4) times logarithms: always linear in T.
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
    """A shuffle theorem's bound; its privacy term has the factor log^(3/4)(`inside` / delta)."""
    privacy, (batches, learning, last) = plan.request.asked, _common(plan)
    cost = plan.dim**0.75 * math.log(inside / privacy.delta) ** 0.75 / math.sqrt(privacy.epsilon)
    return Order(batches, learning, math.sqrt(plan.silos * plan.rounds) * cost * last)


def _common(plan: Plan) -> tuple[float, float, float]:
    """What all theorems share: the terms `batches` and `learning`, and the factor log^(1/4)(T/(B alpha))."""
    users, batch = plan.silos * plan.rounds, plan.request.largest_batch
    batches = plan.dim * plan.silos * batch * math.log(plan.rounds)
    learning = plan.dim * math.sqrt(users) * math.log(users / plan.alpha)
    return batches, learning, math.log(plan.encoder.size / plan.alpha) ** 0.25
