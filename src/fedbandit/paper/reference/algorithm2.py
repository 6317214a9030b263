"""Algorithm 2, the protocol P, and P_alt: partial sums over a binary tree, for stream data of any shape.

One call of a randomizer or an analyzer is one pass of its loop over k. The caller passes in the normal noise
N(0, sigma_0^2 I) of the pseudo-code, so that another implementation can be given the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbandit.paper.reference.common import Array, Noise, add, at_silo

__all__ = ["Alt", "AltLocalRandomizer", "PaperTree", "TreeAnalyzer", "TreeRandomizer", "first_one", "ones"]


def binary(k: int) -> list[int]:
    """Bin_0(k), Bin_1(k), ... with k = sum_j Bin_j(k) 2^j."""
    return [(k >> j) & 1 for j in range(k.bit_length())]


def first_one(k: int) -> int:
    """i_k = min{j: Bin_j(k) = 1}."""
    return min(j for j, bit in enumerate(binary(k)) if bit == 1)


def ones(k: int) -> list[int]:
    """{j: Bin_j(k) = 1}."""
    return [j for j, bit in enumerate(binary(k)) if bit == 1]


class TreeRandomizer:
    """Algorithm 2, lines 1 to 8: the p-sums of one agent, each with its own noise."""

    def __init__(self, noise: Callable[[int], Array]) -> None:
        self.noise = noise
        self.k = 0
        self.alpha: dict[int, Array] = {}

    def __call__(self, gamma_k: Array) -> Array:
        # 3: for k = 1, ..., K do
        self.k = k = self.k + 1
        # 4: Express k in binary form: k = sum_j Bin_j(k) 2^j
        # 5: Find index of first one i_k = min{j: Bin_j(k) = 1}
        i_k = first_one(k)
        # 6: Compute p-sum alpha_{i_k} = sum_{j < i_k} alpha_j + gamma_k
        self.alpha[i_k] = add(*(self.alpha[j] for j in range(i_k)), gamma_k)
        # 7: Output hat-alpha_k = alpha_{i_k} + N(0, sigma_0^2 I)
        return self.alpha[i_k] + self.noise(k)


class TreeAnalyzer:
    """Algorithm 2, lines 9 to 15: prefix sums from the p-sums of all agents."""

    def __init__(self) -> None:
        self.k = 0
        self.alpha_tilde: dict[int, Array] = {}

    def __call__(self, hat_alphas: Sequence[Array]) -> Array:
        # 11: for k = 1, ..., K do
        self.k = k = self.k + 1
        # 12: Express k in binary and find index of first one i_k
        i_k = first_one(k)
        # 13: Add noisy p-sums of all agents: tilde-alpha_{i_k} = sum_i hat-alpha_{k,i}
        self.alpha_tilde[i_k] = add(*hat_alphas)
        # 14: Output tilde-s_k = sum_{j: Bin_j(k) = 1} tilde-alpha_j
        return add(*(self.alpha_tilde[j] for j in ones(k)))


class AltLocalRandomizer:
    """P_alt, lines 1 to 10: the standard tree mechanism, in which the agent releases private prefix sums.

    Line 6 of the paper prints "sum_{j < i}", where i means i_k.
    """

    def __init__(self, noise: Callable[[int], Array]) -> None:
        self.noise = noise
        self.k = 0
        self.alpha: dict[int, Array] = {}
        self.hat_alpha: dict[int, Array] = {}

    def __call__(self, gamma_k: Array) -> Array:
        # 3: for k = 1, ..., K do
        self.k = k = self.k + 1
        # 4: Express k in binary form: k = sum_j Bin_j(k) 2^j
        # 5: Find the index of first one i_k = min{j: Bin_j(k) = 1}
        i_k = first_one(k)
        # 6: Compute p-sum alpha_{i_k} = sum_{j < i_k} alpha_j + gamma_k
        self.alpha[i_k] = add(*(self.alpha[j] for j in range(i_k)), gamma_k)
        # 7: Add noise to p-sum hat-alpha_{i_k} = alpha_{i_k} + N(0, sigma_0^2 I)
        self.hat_alpha[i_k] = self.alpha[i_k] + self.noise(k)
        # 8: Output private prefix sum tilde-s_k = sum_{j: Bin_j(k) = 1} hat-alpha_j
        return add(*(self.hat_alpha[j] for j in ones(k)))


class PaperTree:
    """P = (R, S, A) over all silos. S is the identity (silo-level LDP) or a permutation drawn by `generator` (SDP)."""

    def __init__(self, silos: int, noise: Noise, generator: np.random.Generator | None = None) -> None:
        self.randomizers = [TreeRandomizer(at_silo(noise, i)) for i in range(silos)]
        self.analyzer = TreeAnalyzer()
        self.generator = generator

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Array:
        return self.randomizers[i](gamma)

    def shuffle(self, messages: Sequence[Array]) -> Sequence[Array]:
        if self.generator is None:
            return messages
        return [messages[i] for i in self.generator.permutation(len(messages))]

    def analyze(self, messages: Sequence[Array]) -> Array:
        return self.analyzer(messages)


class Alt:
    """P_alt over all silos: there is no shuffler, and the analyzer (lines 11 to 14) adds up."""

    def __init__(self, silos: int, noise: Noise) -> None:
        self.randomizers = [AltLocalRandomizer(at_silo(noise, i)) for i in range(silos)]

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Array:
        return self.randomizers[i](gamma)

    def shuffle(self, messages: Sequence[Array]) -> Sequence[Array]:
        return messages

    def analyze(self, messages: Sequence[Array]) -> Array:
        # 13: Output tilde-y = sum_i y_i
        return add(*messages)
