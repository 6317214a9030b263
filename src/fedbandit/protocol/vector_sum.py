"""SDP by vector sum (Theorem SDP-vec): P_vec inside the tree; every data point carries binomial noise.

P_1D turns a number in [0, 2L] into g + b bits, of which x_hat + Bin(b, 1/4) are ones, x_hat the number times g / (2L),
rounded at random; the server counts ones. (The pseudo-code shifts a coordinate into [0, 2L] and then encodes it as if
it lay in [0, L]; a value above L would not fit into g bits, so the range here is 2L.)

Bits of one coordinate that were shuffled together tell their sum and nothing else, so counts are sent instead of bits
and S adds them: exactly the same law. (Permuting the counts of silos would tell more than shuffled bits do.) A silo
rounds each of its users once for every p-sum they will enter, as they arrive: it need not remember the users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedbandit.privacy.accounting import advanced_composition_share
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import FLIP
from fedbandit.protocol.encoder import Floats, Integers, Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.mechanisms.tree import Tree, lowest_set_bit

BOUND = 1.0  # L: every coordinate of a bias vector or a covariance matrix lies in [-L, L]
ONES = 0.25  # p of the privacy bits
THEOREM_CONSTANT = 24e4


@dataclass(frozen=True)
class Node:
    """One p-sum: its level, and P_1D's parameters for all the users of the federation in it."""

    level: int
    users: int  # n, over all silos
    grid: int  # g
    noise_bits: int  # b, a data point and coordinate

    @property
    def unit(self) -> float:
        """What one counted bit stands for: 2L / g."""
        return 2 * BOUND / self.grid

    @property
    def std(self) -> float:
        """Standard deviation of the noise in one coordinate of the decoded p-sum."""
        return self.unit * math.sqrt(self.users * self.noise_bits * ONES * (1 - ONES))

    def decoded(self, counts: Integers) -> Floats:
        """A_1D and the re-centring of A_vec."""
        return np.asarray((counts - ONES * self.noise_bits * self.users) * self.unit - self.users * BOUND)


@dataclass(frozen=True)
class VectorSumProtocol(Protocol):
    """R sends counts of ones, S adds them over silos, A subtracts the expected noise and decodes the tree.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for one user among all silos, by the parameters of P_vec
    for each p-sum and advanced composition over the p-sums a datum enters. Needs S honest.
    """

    batch_users: tuple[int, ...] = ()  # users of one silo in each batch
    dim: int = 0
    epsilon: float = 0.0  # of one run of P_vec on one stream
    delta: float = 0.0
    constant: float = THEOREM_CONSTANT

    trust = "vector-sum"
    needs_points = True

    @property
    def tree(self) -> Tree:
        assert isinstance(self.encoder, Tree)
        return self.encoder

    def node(self, k: int) -> Node:
        """The p-sum that step k (from 1) completes."""
        level = lowest_set_bit(k)
        users = self.silos * sum(self.batch_users[k - (1 << level) : k])
        grid = math.ceil(max(2 * math.sqrt(users), self.dim, 4))
        log = math.log(4 * (self.dim**2 + 1) / self.delta)
        bits = math.ceil(self.constant * (grid * log / self.epsilon) ** 2 / users)
        return Node(level, users, grid, bits)

    def nodes_of(self, batch: int) -> dict[int, Node]:
        """Level and parameters of each p-sum that batch `batch` (from 1) enters, within the horizon."""
        ends = ((level, -(-batch // (1 << level)) << level) for level in range(self.tree.levels))
        return {i: self.node(k) for i, k in ends if k <= self.encoder.steps and lowest_set_bit(k) == i}

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        return Stream(0, (np.zeros((*lead, self.tree.levels, self.width), dtype=np.int64),))

    def collect(self, state: Stream, points: Integers, noise: NoiseSource) -> Integers:
        """R_1D without its noise: round every user's every coordinate for each p-sum ahead: (..., levels, width)."""
        counts = np.zeros((*points.shape[:-2], self.tree.levels, self.width), dtype=np.int64)
        shifted = points * 2.0**-self.bits + BOUND
        for level, node in self.nodes_of(state.step + 1).items():
            counts[..., level, :] = noise.rounded_total(np.asarray(shifted / node.unit, dtype=np.float64))
        return counts

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        """The counts of the p-sum that this step completes, with Bin(b, 1/4) for each of the silo's points in it."""
        k = state.step + 1
        node = self.node(k)
        sums = state.memory[0] + batch
        ones = sums[..., node.level, :]
        trials = node.noise_bits * (node.users // self.silos)
        counts = ones + noise.binomial(trials, ONES, ones.shape)
        left = sums.copy()
        left[..., : node.level + 1, :] = 0
        return Stream(k, (left,)), (counts,)

    def mix(self, messages: Message, noise: NoiseSource) -> Message:
        """S: shuffling the bits of a coordinate is adding its counts."""
        return (messages[0].sum(axis=SILOS, keepdims=True),)

    def decode(self, state: Stream, mixed: Message) -> tuple[Stream, Floats]:
        return self.encoder.decode_step(state, self.node(state.step + 1).decoded(self.total(mixed)))

    def pooled(self) -> Self:
        """Sums of independent binomials with one p are binomial: one silo with everybody's users is equal in law."""
        users = tuple(self.silos * users for users in self.batch_users)
        scales = tuple(np.sqrt(self.silos) * np.array(self.scales))
        return replace(self, silos=1, batch_users=users, scales=scales)


def build(request: Request) -> Built:
    """P_vec's parameters for every p-sum (calibration "paper"), or with constant 1 and no composition ("published")."""
    privacy = request.asked
    if not isinstance(request.encoder, Tree):
        raise ValueError("mechanism must be 'tree' for trust 'vector-sum': it encodes p-sums of data points")
    if privacy.participations > 1 or privacy.silos_per_user > 1:
        raise ValueError("participations must be 1 for trust 'vector-sum': P_vec has one data point a user")
    if request.adaptive:
        raise ValueError(
            "schedule must be public for trust 'vector-sum': P_vec is told beforehand how many points it adds"
        )
    levels = request.encoder.levels
    if request.calibration == "published":
        why = "these are the constants of the published simulation, not the theorem's"
        return Built(_protocol(request, privacy.epsilon, privacy.delta, 1.0), nothing(why))
    if request.calibration != "paper":
        raise ValueError(
            "calibration must be 'paper' or 'published' for trust 'vector-sum', whose theorem sets the noise"
        )
    limit = 60 * math.sqrt(2 * levels * math.log(2 / privacy.delta))
    if privacy.epsilon > limit:
        raise ValueError(
            f"epsilon must be at most {limit:.4g} for trust 'vector-sum' (Theorem SDP-vec), got {privacy.epsilon:g}"
        )
    epsilon, delta = advanced_composition_share(privacy.epsilon / 2, privacy.delta / 2, levels)
    protocol = _protocol(request, epsilon, delta, THEOREM_CONSTANT)
    if request.acting == "eager":
        return Built(protocol, nothing(FLIP))
    last = protocol.node(1)
    guarantee = Guarantee(
        f"What the shuffler passes on is ({privacy.epsilon:g}, {privacy.delta:g})-differentially private for each user "
        f"of any silo ({privacy.adjacency}), against the server.",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        "the server",
        (
            f"Half of the budget for each stream, shared over {levels} p-sums by advanced composition: each run of "
            f"P_vec must be ({epsilon:.4g}, {delta:.4g})-SDP.",
            f"P_vec is so with g = max(2 sqrt n, d, 4), p = 1/4 and b = 24e4 g^2 log(4 (d^2 + 1) / delta)^2 / "
            f"(epsilon^2 n): for n = {last.users} users, g = {last.grid} and b = {last.noise_bits}.",
            f"The noise of a p-sum then has standard deviation {last.std:.5g} in each coordinate, whatever n.",
        ),
        (*COMMON_ASSUMPTIONS, "the shuffler does not collude with the server", "all silos take part in every round"),
    )
    return Built(protocol, guarantee)


def _protocol(request: Request, epsilon: float, delta: float, constant: float) -> VectorSumProtocol:
    users = tuple(int(n) for n in np.diff((0, *request.times)))
    bare = VectorSumProtocol(
        request.encoder,
        request.flat_scales(0.0),
        request.bits,
        request.silos,
        users,
        request.dim,
        epsilon,
        delta,
        constant,
    )
    largest = max((bare.node(k) for k in range(1, request.encoder.steps + 1)), key=lambda node: node.users)
    if largest.users * largest.noise_bits > 2**62:
        raise ValueError(
            f"epsilon must be larger for trust 'vector-sum': {largest.noise_bits:.2g} noise bits for each of "
            f"{largest.users} users overflow 64-bit counts"
        )
    per_silo = max(bare.node(k).std for k in (1, request.encoder.steps)) / math.sqrt(request.silos)
    return replace(bare, scales=request.flat_scales(per_silo))
