"""Contexts have the law that they claim, and every user has their own."""

from __future__ import annotations

import numpy as np

from fedbandit.simulator import kernels as k
from tests.simulator.kernels.cases import SEED, TABLES, set_of, table_of


def test_contexts_are_unit_vectors_with_a_uniform_direction() -> None:
    x = np.concatenate([k.contexts_of(SEED, 0, 0, t, 100, 10) for t in range(300)]).astype(float)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(x[:, -1], np.float32(np.sqrt(0.5)))
    free = x[:, :-1] * np.sqrt(2)  # uniform on the sphere in 9 dimensions: mean 0, covariance I / 9
    assert distance_from_uniform(free) < 4
    assert distance_from_uniform(free * np.where(np.arange(9) == 3, 1.3, 1.0)) > 4
    assert distance_from_uniform(free + 0.02) > 4


def test_a_constant_with_another_share_leaves_actions_where_they_are() -> None:
    usual, light = (k.contexts_of(SEED, 0, 0, 1, 100, 10, share).astype(float) for share in (0.5, 0.1))
    np.testing.assert_array_equal(usual, k.contexts_of(SEED, 0, 0, 1, 100, 10))
    np.testing.assert_allclose(np.linalg.norm(light, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(light[:, -1], np.float32(np.sqrt(0.1)))
    np.testing.assert_allclose(light[:, :-1] / np.sqrt(0.9), usual[:, :-1] / np.sqrt(0.5), rtol=1e-6, atol=1e-7)


def distance_from_uniform(points: np.ndarray) -> float:
    """The largest deviation of first and second moments from those of a uniform direction, in standard errors."""
    count, dim = points.shape
    mean = np.abs(points.mean(axis=0)) / np.sqrt(1 / dim / count)
    squares = np.abs((points**2).mean(axis=0) - 1 / dim) / np.sqrt((3 / (dim * (dim + 2)) - 1 / dim**2) / count)
    products = np.abs((points.T @ points / count)[np.triu_indices(dim, 1)]) / np.sqrt(1 / (dim * (dim + 2)) / count)
    return float(np.concatenate([mean, squares, products]).max())


def test_users_differ_by_run_silo_round_and_seed() -> None:
    base = k.contexts_of(SEED, 0, 0, 1, 4, 6)
    for other in [(SEED, 1, 0, 1), (SEED, 0, 1, 1), (SEED, 0, 0, 2), (SEED + 1, 0, 0, 1)]:
        assert not np.isclose(k.contexts_of(*other, 4, 6)[:, :-1], base[:, :-1]).any()


def test_sets_are_picked_uniformly() -> None:
    table = table_of(TABLES["one silo"])
    picks = np.array([set_of(SEED, 0, 0, t, table) for t in range(7000)])
    counts = np.bincount(picks, minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # chi-square with 6 degrees of freedom exceeds it once in 1000
