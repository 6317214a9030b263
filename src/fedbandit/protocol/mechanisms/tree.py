"""The tree mechanism (Algorithm 2): release k is the p-sum [k - 2^i + 1, k], where i is the lowest set bit of k.

Each datum enters at most 1 + floor(log2 K) p-sums; prefix k adds up as many p-sums as k has ones in binary. Encoder and
decoder remember one p-sum per level: O(log K) memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.protocol.encoder import Encoder, Stream

__all__ = ["Tree", "encoder", "lowest_set_bit"]


def lowest_set_bit(k: int) -> int:
    """The index i_k of the lowest one in k's binary form."""
    return (k & -k).bit_length() - 1


@dataclass(frozen=True)
class Tree(Encoder):
    """Row k of C is the indicator of the p-sum that release k completes."""

    def row(self, k: int) -> Floats:
        row = np.zeros(k + 1)
        row[k + 1 - (1 << lowest_set_bit(k + 1)) :] = 1.0
        return row

    def decoder_row(self, k: int) -> Floats:
        """The p-sums that make up [1, k + 1]: drop the lowest set bit until nothing is left."""
        row = np.zeros(k + 1)
        node = k + 1
        while node:
            row[node - 1] = 1.0
            node &= node - 1
        return row

    @property
    def levels(self) -> int:
        """The number of levels of the tree: 1 + floor(log2 K)."""
        return self.size.bit_length()

    @cached_property
    def touches(self) -> int:
        """Batch 1 enters the p-sum [1, 2^i] of every level, and no batch enters two p-sums of one level."""
        return self.levels

    @cached_property
    def column_norm(self) -> float:
        return math.sqrt(self.levels)

    @cached_property
    def has_negative(self) -> bool:
        return False

    @cached_property
    def prefix_norms(self) -> Floats:
        return np.asarray(np.sqrt([float(k.bit_count()) for k in range(1, self.size + 1)]))

    def init(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, tuple(np.zeros(shape, dtype=np.int64) for _ in range(self.levels)))

    def step(self, state: Stream, sums: Integers) -> tuple[Stream, Integers]:
        self._check_horizon(state)
        k = state.done + 1
        i = lowest_set_bit(k)
        psum: Integers = sums + sum(state.memory[:i])  # alpha_i = sum_{j < i} alpha_j + gamma_k
        empty = np.zeros_like(sums)
        return Stream(k, (empty,) * i + (psum,) + state.memory[i + 1 :]), psum

    def init_decoder(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, tuple(np.zeros(shape) for _ in range(self.levels)))

    def decode_step(self, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        self._check_horizon(state)
        k = state.done + 1
        i = lowest_set_bit(k)
        nodes = (*state.memory[:i], released.astype(np.float64), *state.memory[i + 1 :])
        prefix = np.sum([node for j, node in enumerate(nodes) if k >> j & 1], axis=0)
        return Stream(k, nodes), np.asarray(prefix)


def encoder(size: int) -> Encoder:
    """The tree of Algorithm 2 over `size` releases."""
    return Tree(size)
