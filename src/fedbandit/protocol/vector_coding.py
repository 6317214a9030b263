"""P_1D's parameters for a p-sum: the appendix's, the published simulation's, and those of exact accounting.

P_1D turns a number into x_hat + Bin(b, 1/4) ones, where x_hat is the number times g / (2L), rounded at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol as Abstract

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.binomial_noise import HAIR, ONES, deviations_of_chance, fewest_trials, gaussian_std

__all__ = ["BOUND", "Coding", "ExactCoding", "Node", "PublishedCoding", "TheoremCoding"]

BOUND = 1.0  # L: every coordinate of a bias vector or a covariance matrix lies in [-L, L]
THEOREM_CONSTANT = 24e4
LOST = 0.01  # by roughly this share, binomial noise is wider than Gaussian noise that hides as much
ROUNDED = 0.01  # the share of the variance that rounding at random adds, at most
ALIKE = Scales.flat(1.0)


@dataclass(frozen=True)
class Node:
    """One p-sum: its level, and P_1D's parameters for all the users of the federation in it."""

    level: int
    users: int  # n, over all silos
    grid: float  # g
    noise_bits: int  # b, per data point and coordinate
    subtracted: float  # the value of b that the analyzer subtracts
    span: float  # the length of the interval that g steps cover
    finer: Scales = ALIKE  # the length of a step for each kind of number, in units of the one on the diagonal

    @property
    def unit(self) -> float:
        """What one counted bit stands for."""
        return self.span / self.grid

    @property
    def std(self) -> float:
        """The standard deviation of the noise in one coordinate of the decoded p-sum."""
        return self.unit * math.sqrt(self.trials * ONES * (1 - ONES))

    @property
    def trials(self) -> int:
        """The noise bits of all users together."""
        return self.users * self.noise_bits

    @property
    def most_rounding(self) -> float:
        """The factor by which rounding at random multiplies the standard deviation, at most: midway between two steps
        it has variance 1/4."""
        return math.sqrt(1 + 1 / (4 * self.noise_bits * ONES * (1 - ONES)))

    def units(self, dim: int) -> Floats:
        """What one counted bit stands for in each number (width,)."""
        return self.unit * self.finer.packed(dim)

    def decoded(self, counts: Integers, dim: int) -> Floats:
        """The p-sum behind these counts: A_1D and the re-centring of A_vec."""
        ones = ONES * self.subtracted * self.users
        return np.asarray((counts - ones) * self.units(dim) - self.users * BOUND)


class Coding(Abstract):
    """Gives every p-sum P_1D's parameters."""

    def node(self, level: int, users: int, dim: int) -> Node:
        """The parameters for a p-sum of `users` users over all silos."""
        ...


@dataclass(frozen=True)
class TheoremCoding:
    """The appendix's g and b, rounded up, on the range 2L."""

    epsilon: float  # of one run of P_vec on one stream
    delta: float
    constant: float = THEOREM_CONSTANT  # in b, the number of noise bits

    def node(self, level: int, users: int, dim: int) -> Node:
        grid = math.ceil(_grid(users, dim))
        log = math.log(4 * (dim**2 + 1) / self.delta)
        bits = math.ceil(self.constant * (grid * log / self.epsilon) ** 2 / users)
        return Node(level, users, grid, bits, subtracted=bits, span=2 * BOUND)


@dataclass(frozen=True)
class PublishedCoding:
    """The published simulation's g and b: b has constant 1 and another logarithm, and every p-sum takes the whole
    budget.

    It samples b cut to a whole number but subtracts b uncut, which shifts every decoded number a little. It also
    encodes [0, 2L] as if it were [0, L], at half the noise.
    """

    epsilon: float  # of the whole run
    delta: float

    def node(self, level: int, users: int, dim: int) -> Node:
        grid = _grid(users, dim)
        bits = (grid * math.log(dim**2 / self.delta) / self.epsilon) ** 2 / users
        return Node(level, users, grid, int(bits), subtracted=bits, span=BOUND)

    def assumed_std(self, levels: int, dim: int) -> float:
        """The noise of a p-sum that its lambda is made for; the p-sum does not have that noise."""
        return math.sqrt(levels * math.log(1 / self.delta)) * math.log(levels * dim**2 / self.delta) / self.epsilon


def _grid(users: int, dim: int) -> float:
    """The appendix's g."""
    return max(2 * math.sqrt(users), dim, 4)


@dataclass(frozen=True)
class ExactCoding:
    """The g and b at which counts hide as much as Gaussians of these standard deviations (`privacy.binomial_noise`).

    Formal guarantee: in every number of every p-sum, the noise bits of all silos but one are worth a Gaussian of at
    least the standard deviation in `scales`, where e^log_moved of total variation is left out.

    g is so large that the noise is many steps wide. Then binomial noise is hardly wider than the Gaussian that it is
    worth, and rounding at random adds hardly anything to it. Off the diagonal a step is shorter by a factor of the
    square root of 2, as Gaussian noise is smaller there by that factor: so one b serves all numbers.
    """

    scales: Scales  # of the Gaussians, in the p-sum of all silos, in natural units
    log_moved: float  # for each count
    silos: int

    def node(self, level: int, users: int, dim: int) -> Node:
        return _exact_node(self, level, users)

    def worth(self, node: Node, silos: int) -> float:
        """The standard deviation, on the diagonal, of the Gaussians that the noise bits of `silos` silos are worth."""
        return node.unit * gaussian_std(node.trials // self.silos * silos, self.log_moved) / (1 + HAIR)

    @property
    def counted_on(self) -> int:
        """The number of silos whose bits must be enough: another silo knows its own."""
        return max(1, self.silos - 1)


@lru_cache(maxsize=4096)
def _exact_node(coding: ExactCoding, level: int, users: int) -> Node:
    sigma = coding.scales.diagonal
    accurate = 1.25 * deviations_of_chance(coding.log_moved) / LOST  # see the slope of `privacy.binomial_noise`
    steps = max(accurate, math.sqrt(users / (4 * ROUNDED)))
    grid = math.ceil(2 * BOUND * steps / sigma)
    wanted = fewest_trials(sigma * grid / (2 * BOUND) * (1 + 2 * HAIR), coding.log_moved)
    honest = users // coding.silos * coding.counted_on
    finer = coding.scales.times(1 / sigma)
    bits = -(-wanted // honest)
    while coding.worth(node := Node(level, users, grid, bits, bits, 2 * BOUND, finer), coding.counted_on) < sigma:
        bits += 1
    return node
