"""Algorithm 2 and P_alt against sums computed another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.paper.reference.algorithm2 import Alt, AltLocalRandomizer, PaperTree, TreeRandomizer
from tests.paper.reference.instance import tree_nodes


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("protocol", [PaperTree, Alt])
def test_without_noise_prefix_sums_are_cumulative_sums(protocol, shape):
    data = np.random.default_rng(0).integers(-9, 10, size=(37, 4, *shape)).astype(float)  # (steps, silos, ...)
    p = protocol(4, lambda k, i: np.zeros(shape))
    for k in range(1, 38):
        messages = [p.randomize(i, data[k - 1, i], [data[k - 1, i]]) for i in range(4)]
        np.testing.assert_array_equal(p.analyze(p.shuffle(messages)), data[:k].sum(axis=(0, 1)))


def test_a_release_is_the_sum_of_the_batches_under_its_node():
    steps = 37
    randomizer = TreeRandomizer(lambda k: np.zeros(steps))
    released = np.array([randomizer(unit) for unit in np.eye(steps)])  # C of the tree, row k - 1
    for k in range(1, steps + 1):
        lowest_bit = k & -k
        expected = [float(k - lowest_bit < j <= k) for j in range(1, steps + 1)]
        np.testing.assert_array_equal(released[k - 1], expected)
    # "each data point gamma_k only affects at most 1 + log K p-sums", the logarithm in base 2
    assert released.sum(axis=0).max() == 1 + math.floor(math.log2(steps))


def test_prefix_k_holds_the_noise_of_popcount_k_releases():
    steps = 37
    noise_terms = np.eye(steps)
    p = PaperTree(1, lambda k, i: noise_terms[k - 1])
    alt = AltLocalRandomizer(lambda k: noise_terms[k - 1])
    for k in range(1, steps + 1):
        prefix = p.analyze(p.shuffle([p.randomize(0, np.zeros(steps), [])]))
        assert prefix.sum() == k.bit_count()
        assert sorted(np.flatnonzero(prefix) + 1) == sorted(tree_nodes(k))
        np.testing.assert_array_equal(alt(np.zeros(steps)), prefix)


def test_shuffling_permutes_the_silos_and_changes_no_sum():
    data = np.random.default_rng(1).integers(0, 99, size=(8, 5, 2)).astype(float)
    plain = PaperTree(5, lambda k, i: np.full(2, 10.0 * k + i))
    mixed = PaperTree(5, lambda k, i: np.full(2, 10.0 * k + i), np.random.default_rng(2))
    moved = 0
    for k in range(8):
        messages = [plain.randomize(i, data[k, i], []) for i in range(5)]
        shuffled = mixed.shuffle([mixed.randomize(i, data[k, i], []) for i in range(5)])
        moved += any((a != b).any() for a, b in zip(messages, shuffled, strict=True))
        np.testing.assert_array_equal(plain.analyze(plain.shuffle(messages)), mixed.analyze(shuffled))
    assert moved > 0
