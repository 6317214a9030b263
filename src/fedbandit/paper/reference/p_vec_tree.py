"""P_vec^T: the tree of Algorithm 2, whose p-sums P_vec computes from their data points."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbandit.paper.reference.algorithm2 import first_one, ones
from fedbandit.paper.reference.common import Array, add
from fedbandit.paper.reference.p_vec import Bits, Parameters, a_vec, r_vec

__all__ = ["VectorSum"]


def flatten(point: Array) -> Array:
    """A vector unchanged, or the upper triangle of a symmetric matrix (Assumption subG: independent entries)."""
    return point if point.ndim == 1 else point[np.triu_indices(len(point))]


def unflatten(vector: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `flatten`."""
    if len(shape) == 1:
        return vector
    matrix = np.zeros(shape)
    matrix[np.triu_indices(shape[0])] = vector
    return np.triu(matrix) + np.triu(matrix, 1).T


class VectorSum:
    """P_vec^T over all silos, for data points of `shape` whose entries lie in [-L, L].

    `batches[k - 1]` is the number of users of one silo in batch k, which is public because the schedule is.
    `parameters(n)` is called for each p-sum, with n the number of data points of all silos in it.
    """

    def __init__(
        self,
        silos: int,
        batches: Sequence[int],
        shape: tuple[int, ...],
        L: float,
        parameters: Callable[[int], Parameters],
        generator: np.random.Generator,
    ) -> None:
        self.silos, self.batches, self.shape, self.L = silos, list(batches), shape, L
        self.parameters, self.generator = parameters, generator
        self.released = [0] * silos  # k at each silo
        self.alpha_points: list[dict[int, list[Array]]] = [{} for _ in range(silos)]
        self.k = 0
        self.alpha_tilde: dict[int, Array] = {}

    def users(self, k: int) -> int:
        """n, the number of data points of all silos in the k-th p-sum, which covers batches k - 2^{i_k} + 1 to k."""
        return self.silos * sum(self.batches[k - 2 ** first_one(k) : k])

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Bits:
        # 3: for k = 1, ..., K do
        self.released[i] = k = self.released[i] + 1
        if len(points) != self.batches[k - 1]:
            raise ValueError(f"points must be {self.batches[k - 1]} in batch {k}, got {len(points)}")
        # 4, 5: Express k in binary form, find index of first one i_k
        i_k = first_one(k)
        # 6: Let D_k be the set of all data points that contribute to
        #    alpha_{i_k} = sum_{j < i_k} alpha_j + gamma_k
        D_k = [point for j in range(i_k) for point in self.alpha_points[i][j]] + list(points)
        self.alpha_points[i][i_k] = D_k
        # 7: Output y_k = R_vec(D_k), R_vec applied to each data point
        parameters = self.parameters(self.users(k))
        return np.concatenate([r_vec(flatten(point), self.L, parameters, self.generator) for point in D_k])

    def shuffle(self, messages: Sequence[Bits]) -> Bits:
        """All labelled bits of all data points of all silos, in a uniformly random order."""
        return self.generator.permutation(np.concatenate(messages), axis=0)

    def analyze(self, messages: Bits) -> Array:
        # 11: for k = 1, ..., K do
        self.k = k = self.k + 1
        # 12: Express k in binary and find index of first one i_k
        i_k = first_one(k)
        # 13: Add all messages from M agents: tilde-alpha_{i_k} = A_vec(bar-y_k)
        n = self.users(k)
        dim = len(flatten(np.zeros(self.shape)))
        self.alpha_tilde[i_k] = a_vec(messages, n, dim, self.L, self.parameters(n))
        # 14: Output tilde-s_k = sum_{j: Bin_j(k) = 1} tilde-alpha_j
        return unflatten(add(*(self.alpha_tilde[j] for j in ones(k))), self.shape)
