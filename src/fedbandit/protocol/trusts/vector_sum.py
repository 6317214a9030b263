"""SDP by vector sum (Theorem SDP-vec): P_vec inside the tree; every data point carries binomial noise.

P_1D turns a number in [0, 2L] into g + b bits, of which x_hat + Bin(b, 1/4) are ones, where x_hat is the number times
g / (2L), rounded at random; A counts the ones. (The pseudo-code shifts a coordinate into [0, 2L] and then encodes it as
if it lay in [0, L]. A value above L would not fit into g bits, so the range here is 2L.)

Bits of one coordinate that were shuffled together tell their sum and nothing else. So silos send counts instead of
bits, and S adds them: that has exactly the same law. (Permuting the counts of silos would tell more than shuffled bits
do.) A silo rounds the numbers of each user on arrival, once for every p-sum that the user will enter: it need not
remember the users.

Another silo sees every model, knows the noise that it drew for its own users, and can subtract it.

* Calibration "exact" (`privacy.binomial_noise`): counts hide as much as Gaussian noise does, so everything that is
  computed for Gaussians holds for them: the true sensitivity of both streams together, any number of visits, the exact
  delta. g and b are such that the bits of all silos but one are enough: the promise is against that one, too.
* Calibration "paper": the theorem asks for noise bits of all users together, b n of them, and is met as soon as
  b n >= C (g log)^2 / epsilon^2. The bits of M - 1 silos of M are (1 - 1/M) b n, which is what the theorem asks for at
  epsilon sqrt(M / (M - 1)), at the same delta. The noise is the theorem's own, made for A behind S. So that larger
  epsilon is what is printed against any one other silo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Self

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit._roots import falling_root
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.bandit.statistics import Scales, width
from fedbandit.privacy.accounting import advanced_composition_share, published_levels
from fedbandit.privacy.binomial_noise import ONES
from fedbandit.privacy.budget import at_most, exactly
from fedbandit.privacy.ledger import Binomial, Clear
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.adversaries import (
    Adversary,
    Bound,
    Moment,
    Residual,
    gaussian_residuals,
    gaussian_score,
    summed,
)
from fedbandit.protocol.base import SILOS, Message, Part, Protocol
from fedbandit.protocol.calibration import FLIP, PUBLISHED, gaussian_noise
from fedbandit.protocol.encoder import Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing
from fedbandit.protocol.mechanisms.tree import Tree, lowest_set_bit
from fedbandit.protocol.trust import AuditSize, Faith, Trust
from fedbandit.protocol.vector_coding import BOUND, Coding, ExactCoding, Node, PublishedCoding, TheoremCoding

__all__ = ["TRUST", "SeesCounts", "VectorSumProtocol"]

TAILS = 1e-3  # share of delta that tails of binomials, which no Gaussian has, may cost
LARGEST = 1e3  # a larger epsilon is not worth stating
PRECISION = 1e-6  # relative, of an epsilon that is searched for


@dataclass(frozen=True)
class VectorSumProtocol(Protocol):
    """R sends counts of ones; S adds them over silos; A subtracts the expected noise and decodes the tree.

    Formal guarantee: what S passes on is (epsilon, delta)-DP for one user among all silos. With calibration "paper"
    this is by the theorem, with advanced composition over the p-sums that a datum enters. With "exact" it is because,
    but for a chance that is counted in delta, what S passes on is post-processing of Gaussian noise on the same sums. S
    must be honest.
    """

    batch_users: tuple[int, ...]  # users of one silo in each batch
    coding: Coding

    parts = (Part("mixer"),)
    sends = "counts of ones of one p-sum, through the mixer"
    needs_points = True

    @property
    def tree(self) -> Tree:
        """The encoder, which is a tree."""
        assert isinstance(self.encoder, Tree)
        return self.encoder

    def node(self, k: int) -> Node:
        """The p-sum that the k-th sync completes, k from 1 as in Algorithm 2."""
        level = lowest_set_bit(k)
        users = self.silos * sum(self.batch_users[k - (1 << level) : k])
        return self.coding.node(level, users, self.dim)

    def nodes_of(self, batch: int) -> dict[int, Node]:
        """The p-sums within the horizon that batch number `batch` (from 1) enters: their parameters by level."""
        ends = ((level, -(-batch // (1 << level)) << level) for level in range(self.tree.levels))
        return {i: self.node(k) for i, k in ends if k <= self.encoder.size and lowest_set_bit(k) == i}

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        return Stream(0, (np.zeros((*lead, self.tree.levels, self.width), dtype=np.int64),))

    def collect(self, state: Stream, points: Integers, noise: NoiseSource) -> Integers:
        """R_1D without its noise: all coordinates of all users, rounded for each p-sum ahead, (..., levels, width)."""
        counts = np.zeros((*points.shape[:-2], self.tree.levels, self.width), dtype=np.int64)
        shifted = points * 2.0**-self.bits + BOUND
        for level, node in self.nodes_of(state.done + 1).items():
            counts[..., level, :] = noise.rounded_total(np.asarray(shifted / node.units(self.dim), dtype=np.float64))
        return counts

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        """The counts of the p-sum that this sync completes, plus Bin(b, 1/4) for each of the silo's points in it."""
        k = state.done + 1
        node = self.node(k)
        sums = state.memory[0] + batch
        ones = sums[..., node.level, :]
        trials = node.noise_bits * (node.users // self.silos)
        counts = ones + noise.binomial(trials, ONES, ones.shape)
        left = sums.copy()
        left[..., : node.level + 1, :] = 0
        return Stream(k, (left,)), (counts,)

    def without(self, state: Stream) -> Stream:
        """An empty batch has its planned number of users, each with zeros, which are ones too once they are shifted."""
        k = state.done + 1
        left = state.memory[0].astype(np.int64)
        for level, node in self.nodes_of(k).items():
            left[..., level, :] += np.rint(self.batch_users[k - 1] * BOUND / node.units(self.dim)).astype(np.int64)
        left[..., : self.node(k).level + 1, :] = 0
        return Stream(k, (left,))

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """S: to shuffle the bits of a coordinate is to add its counts."""
        (counts,) = held
        return (counts.sum(axis=SILOS, keepdims=True),)

    def decode(self, state: Stream, held: Message) -> tuple[Stream, Floats]:
        return self.encoder.decode_step(state, self.node(state.done + 1).decoded(self.total(held), self.dim))

    def cost(self, sync: int) -> Binomial:
        """What the release of a sync costs."""
        node = self.node(sync + 1)
        return Binomial(node.noise_bits, node.users)

    def adversaries(self) -> tuple[Adversary, ...]:
        """The analyzer behind the mixer. With exact calibration the counts are as good as Gaussian, and the analyzer
        together with another silo is an adversary, too."""
        if not isinstance(self.coding, ExactCoding):
            return (SeesCounts(),)
        colluders = (SeesCounts(bound="gdp", colluding=1),) if self.silos > 1 else ()
        return (SeesCounts(bound="gdp"), *colluders)

    def pooled(self) -> Self:
        """The same for one silo with everybody's users: sums of independent binomials with one p are binomial."""
        users = tuple(self.silos * users for users in self.batch_users)
        return replace(self, silos=1, batch_users=users, scales=self.scales.times(math.sqrt(self.silos)))


@dataclass(frozen=True)
class SeesCounts:
    """Sees the counts of ones, which are all that is left of shuffled bits: binomials, scored by their mean and
    variance. `colluding` silos, the last ones, tell it what they sent."""

    bound: Bound = "dp"
    colluding: int = 0
    remembers: bool = False

    @property
    def name(self) -> str:
        return f"the analyzer behind the mixer{' with 1 colluding silo' if self.colluding else ''}"

    def score(self, protocol: Protocol, moment: Moment) -> Floats | float:
        assert isinstance(protocol, VectorSumProtocol)
        centred, (low, high), deviation = self._centred(protocol, moment)
        return gaussian_score(centred, (low, high), deviation)

    def residuals(self, claimed: Protocol, moment: Moment, world: int) -> tuple[Residual, ...]:
        """The noise of the counts, of all silos together and of each, which have many bits; what rounding adds to the
        variance is too little to see."""
        assert isinstance(claimed, VectorSumProtocol)
        if self.colluding:
            return ()
        total = self._centred(claimed, moment)
        each = _centred_counts(claimed, moment.sync, 1, moment.sent[-1][0], moment.expected)
        return tuple(
            residual
            for name, (counts, pair, deviation) in (
                ("noise of the counts", total),
                ("noise of each silo's counts", each),
            )
            for residual in gaussian_residuals(name, counts, pair[world], deviation)
        )

    def _centred(self, protocol: VectorSumProtocol, moment: Moment) -> _Centred:
        """The counts of the silos that do not tell what they sent."""
        honest = protocol.silos - self.colluding
        told = moment.sent[-1][0][..., honest:, :].sum(axis=SILOS, keepdims=True)
        low, high = (expected[..., :honest, :] for expected in moment.expected)
        return _centred_counts(protocol, moment.sync, honest, moment.held[0] - told, summed((low, high)))


_Centred = tuple[Floats, tuple[Floats, Floats], Floats]


def _centred_counts(
    protocol: VectorSumProtocol, sync: int, silos: int, counts: Integers, expected: tuple[Integers, Integers]
) -> _Centred:
    """Counts of as many `silos` each, less what noise and shift add on average; what they would be in both worlds;
    their standard deviation."""
    node = protocol.node(sync + 1)
    users = node.users // protocol.silos * silos
    trials, units = users * node.noise_bits, node.units(protocol.dim)
    low, high = (np.asarray(e * (2.0**-protocol.bits / units), dtype=np.float64) for e in expected)
    centred = counts - trials * ONES - users / units  # every number is shifted by L = 1
    return centred, (low, high), np.full(protocol.width, np.sqrt(trials * ONES * (1 - ONES)))


def _build(request: Request) -> Built:
    """P_vec with its parameters for every p-sum: the fewest bits ("exact"), the theorem's ("paper"), or the published
    simulation's ("published")."""
    privacy = request.asked
    _check_reach(request)
    if request.calibration == "exact":
        return _build_exactly(request)
    if request.calibration == "published":
        published = PublishedCoding(privacy.epsilon, privacy.delta)
        protocol = _protocol(request, published)
        assumed = published.assumed_std(published_levels(request.encoder.size), request.dim)
        return Built(protocol, nothing(PUBLISHED), _no_bound, assumed)
    share = advanced_composition_share(privacy.epsilon / 2, privacy.delta / 2, request.encoder.touches)
    coding = TheoremCoding(*share)
    protocol = _protocol(request, coding)
    guarantee = _guarantee(request, protocol, coding)
    return Built(protocol, guarantee, protocol.cost if guarantee.promised else _no_bound)


def _no_bound(sync: int) -> Clear:
    """What a release costs where the theorem promises nothing: no number bounds it."""
    return Clear("mixer")


def _build_exactly(request: Request) -> Built:
    """The Gaussian noise that would be needed, at all of delta but the part for tails, and counts that are worth it."""
    gaussian = gaussian_noise(_without_tails(request), joint_silos=True)
    coding = ExactCoding(gaussian.scales, _log_moved(request, request.asked.epsilon), request.silos)
    protocol = _protocol(request, coding)
    return Built(protocol, _exact_guarantee(request, protocol, coding, gaussian.steps), protocol.cost)


def _without_tails(request: Request) -> Request:
    """The same request without the share TAILS of delta, and with few digits in what is left."""
    privacy, short = request.asked, Context(prec=3, rounding=ROUND_FLOOR)
    kept = float(short.create_decimal(Decimal(privacy.delta * (1 - TAILS))))
    return replace(request, privacy=replace(privacy, delta=kept))


def _log_moved(request: Request, epsilon: float) -> float:
    """The logarithm of what may be moved in each count: (1 + e^epsilon) times all of it is the share TAILS of delta.
    Whoever sees silos one by one sees as many counts of a user as the user visits silos."""
    counts = request.encoder.size * width(request.dim) * request.asked.silos_per_user
    return math.log(TAILS * request.asked.delta / counts) - float(np.logaddexp(0.0, epsilon))


def _check_reach(request: Request) -> None:
    """Refuse what P_vec cannot encode, and what its theorem does not cover."""
    privacy = request.asked
    if not isinstance(request.encoder, Tree):
        raise ArgumentError("mechanism", "must be 'tree' for trust 'vector-sum': it encodes p-sums of data points")
    if request.calibration != "exact" and (privacy.participations > 1 or privacy.silos_per_user > 1):
        raise ArgumentError(
            "participations",
            "must be 1 for trust 'vector-sum' unless calibration is 'exact': P_vec has one data point per user",
        )
    if request.adaptive or not request.counted:
        how = "be public" if request.adaptive else "count rounds, not time,"
        raise ArgumentError(
            "schedule", f"must {how} for trust 'vector-sum': P_vec must know beforehand how many points it adds"
        )
    limit = _largest_epsilon(request)
    if request.calibration == "paper" and privacy.epsilon > limit:
        raise ArgumentError(
            "epsilon",
            f"must be at most {limit:.4g} for trust 'vector-sum' (Theorem SDP-vec), got {exactly(privacy.epsilon)}",
        )


def _largest_epsilon(request: Request) -> float:
    """The largest epsilon that Theorem SDP-vec covers."""
    assert isinstance(request.encoder, Tree)
    return 60 * math.sqrt(2 * request.encoder.levels * math.log(2 / request.asked.delta))


def _protocol(request: Request, coding: Coding) -> VectorSumProtocol:
    """P_vec with these parameters; its noise has nearly the same standard deviation in every p-sum.

    Where the bits are few, what rounding adds to their noise counts, too.
    """
    bare = VectorSumProtocol(
        request.encoder,
        Scales.flat(0.0),
        request.dim,
        request.bits,
        request.silos,
        batch_users=tuple(int(users) for users in np.diff((0, *request.times))),
        coding=coding,
    )
    nodes = {bare.node(k) for k in range(1, request.encoder.size + 1)}
    largest = max(nodes, key=lambda node: node.trials + node.users * node.grid)
    if largest.trials + largest.users * largest.grid > 2**62:
        raise ArgumentError(
            "epsilon",
            f"must be larger for trust 'vector-sum': {largest.noise_bits:.2g} noise bits for each of "
            f"{largest.users} users overflow 64-bit counts",
        )
    if isinstance(coding, ExactCoding):
        std = max(node.std * node.most_rounding for node in nodes)
        return replace(bare, scales=largest.finer.times(std / math.sqrt(request.silos)))
    per_silo = max(bare.node(k).std for k in (1, request.encoder.size)) / math.sqrt(request.silos)
    return replace(bare, scales=Scales.flat(per_silo))


def _exact_guarantee(
    request: Request, protocol: VectorSumProtocol, coding: ExactCoding, before: tuple[str, ...]
) -> Guarantee:
    """The promise against the analyzer together with one other silo, and what is left against the mixer."""
    privacy, first, left = request.asked, protocol.node(1), coding.counted_on
    alone = _epsilon_of_one_silo(request, protocol)
    one_silo = f"the promise is {request.pair_of(alone)}" if alone < math.inf else "nothing is promised"
    against = "the analyzer" if request.silos == 1 else "the analyzer together with any one other silo"
    moved = at_most(TAILS * privacy.delta, 2)
    return request.promise(
        f"What the mixer passes on is {privacy.pair}-differentially private for each user of any silo "
        f"({privacy.adjacency}), against {against}. Against the mixer, which sees each silo's counts, {one_silo}.",
        against=against,
        steps=(
            *before,
            f"Instead of that Gaussian noise, noise bits are counted: a p-sum of n = {first.users:,} users has g = "
            f"{first.grid:,} steps and b = {first.noise_bits:,} noise bits per user in each number, and each bit is a "
            f"one with probability 1/4. A step is {first.unit:.4g} long on the diagonal, "
            f"{first.unit * first.finer.off_diagonal:.4g} off it and "
            f"{first.unit * first.finer.bias:.4g} on the bias.",
            f"The bits of {counted(left, 'silo')} of {request.silos}, {first.trials // request.silos * left:,} in "
            f"each number, are worth Gaussian noise of {coding.worth(first, left):.5g} on the diagonal: the counts, "
            "with their random rounding, are post-processing of sums with that noise (privacy/binomial_noise.py). The "
            "same is true of every p-sum.",
            f"This leaves out the tails of the binomials, e^{coding.log_moved:.1f} in each of "
            f"{request.encoder.size * protocol.width:,} counts. Their total times (1 + e^epsilon) is at most "
            f"{moved}, which was kept back from delta.",
            f"After decoding, the noise of a p-sum has standard deviation {first.std:.5g} on the diagonal, and at most "
            f"{at_most(first.std * first.most_rounding, 5)} including what rounding adds.",
            f"The mixer sees each silo's counts, with {first.trials // request.silos:,} noise bits in each number. "
            f"Computed in the same way, {one_silo}.",
        ),
        assumes=(
            *COMMON_ASSUMPTIONS,
            "the mixer, which sees each silo's noisy counts, shows nobody more than their totals",
            "all silos take part in every sync",
        ),
        collusion=f"against all of them together, the mixer included, {one_silo}: the mixer sees each silo's counts",
        missing="the sync is skipped for all silos: the protocol needs every silo",
    )


def _epsilon_of_one_silo(request: Request, protocol: VectorSumProtocol) -> float:
    """The epsilon that a silo's own noise bits give, at all of delta; infinity where that is not worth stating.

    The larger epsilon is, the less may be moved, and the less the bits are worth.
    """
    nodes = {protocol.node(k) for k in range(1, request.encoder.size + 1)}
    coding = protocol.coding
    assert isinstance(coding, ExactCoding)
    kept = _without_tails(request)

    def excess(epsilon: float) -> float:
        stricter = replace(coding, log_moved=_log_moved(request, epsilon))
        sigma = min(stricter.worth(node, 1) for node in nodes)
        return kept.exact_epsilon(sigma, joint_silos=False) - epsilon if sigma else math.inf

    below, epsilon = 0.0, request.asked.epsilon
    while excess(epsilon) > 0:
        if epsilon >= LARGEST:
            return math.inf
        below, epsilon = epsilon, min(2 * epsilon, LARGEST)
    return falling_root(excess, below, epsilon, PRECISION) if below else epsilon


def _guarantee(request: Request, protocol: VectorSumProtocol, coding: TheoremCoding) -> Guarantee:
    if request.acting == "eager":
        return nothing(FLIP)
    privacy, first = request.asked, protocol.node(1)
    return request.promise(
        f"What the mixer passes on is {privacy.pair}-differentially private for each user of "
        f"any silo ({privacy.adjacency}), against the analyzer alone.{_against_a_silo(request)}",
        against="the analyzer alone",
        steps=(
            f"Each stream gets half of the budget, shared over {counted(protocol.tree.levels, 'p-sum')} by advanced "
            f"composition: each run of P_vec must be ({coding.epsilon:.4g}, {coding.delta:.4g})-SDP.",
            f"P_vec achieves this with g = max(2 sqrt n, d, 4), p = 1/4 and b = 24e4 g^2 log(4 (d^2 + 1) / delta)^2 / "
            f"(epsilon^2 n): for n = {first.users} users, g = {first.grid} and b = {first.noise_bits}.",
            f"The noise of a p-sum then has standard deviation {first.std:.5g} in each coordinate, whatever n is.",
            *_subtracting_step(request),
        ),
        assumes=(
            *COMMON_ASSUMPTIONS,
            "the mixer, which sees each silo's noisy counts, shows nobody more than their totals",
            "no silo tells the analyzer its own noise (for the first statement)",
            "all silos take part in every sync",
        ),
        collusion=f"{_colluding_silo(request)}; nothing is promised against the mixer, alone or with others",
        missing="the sync is skipped for all silos: the protocol needs every silo",
    )


def _epsilon_against_a_silo(request: Request) -> float | None:
    """The epsilon left when one other silo subtracts its own noise; None where the theorem does not reach so far."""
    privacy = request.asked
    epsilon = privacy.epsilon * math.sqrt(request.silos / (request.silos - 1))
    try:
        advanced_composition_share(epsilon / 2, privacy.delta / 2, request.encoder.touches)
    except ArgumentError:
        return None
    return epsilon if epsilon <= _largest_epsilon(request) else None


def _against_a_silo(request: Request) -> str:
    """The statement about other silos, if there are any."""
    if request.silos == 1:
        return ""
    epsilon = _epsilon_against_a_silo(request)
    if epsilon is None:
        return " Nothing is promised against another silo, which knows its own noise."
    return f" Against any one other silo, which knows its own noise, it is {request.pair_of(epsilon)}."


def _subtracting_step(request: Request) -> tuple[str, ...]:
    if request.silos == 1 or (epsilon := _epsilon_against_a_silo(request)) is None:
        return ()
    left, silos = request.silos - 1, request.silos
    return (
        "Every silo sees the models and may subtract its own noise bits. The bits of "
        f"{left} of {silos} silos are then left, which is what the theorem asks for at an epsilon sqrt({silos}/{left}) "
        f"times as large: {request.pair_of(epsilon)}.",
    )


def _colluding_silo(request: Request) -> str:
    if request.silos == 1:
        return "there is no other silo"
    epsilon = _epsilon_against_a_silo(request)
    said = "nothing is promised" if epsilon is None else f"epsilon = {at_most(epsilon)}"
    return f"any one other silo, with the analyzer or without it: {said}"


TRUST = Trust(
    name="vector-sum",
    build=_build,
    faith=Faith.TWO_WHO_DO_NOT_COLLUDE,
    who="Users trust their own silo, and the mixer not to collude with the analyzer. Another silo knows its own noise.",
    whole=True,
    calibrations=("paper", "published", "exact"),
    mechanism="tree",
    audit=AuditSize(honest=2, rounds=4, batch=2, trials=20_000),  # P_vec rounds every user anew for every p-sum
)
