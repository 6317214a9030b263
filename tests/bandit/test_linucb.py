"""Deciding and fitting: against plain inverses, on ties, on sets of any size, and on matrices that noise has broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit import _validate
from fedbandit.bandit.linucb import Model, decide, fit, upper_bounds
from fedbandit.bandit.statistics import contributions, width
from fedbandit.paper.reference import play

DIM = 4


def prefix_of(users: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(users, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(contributions(x, rng.random(users), 40).sum(axis=0) * 2.0**-40)


def packed(bias: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.concatenate([bias, matrix[np.triu_indices(len(bias))]])


def matrix_of(prefix: np.ndarray, dim: int = DIM) -> np.ndarray:
    upper = np.zeros((dim, dim))
    upper[np.triu_indices(dim)] = prefix[dim:]
    return upper + np.triu(upper, 1).T


def actions(arms: int, seed: int = 1, dim: int = DIM) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(arms, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def test_fit_equals_the_direct_inverse() -> None:
    prefixes = np.stack([prefix_of(n, n) for n in (1, 3, 50, 400)]).reshape(2, 2, -1)
    model, repaired = fit(prefixes, DIM, 1.5, 0.75, [[0.1, 0.2], [0.3, 0.4]])
    assert repaired == 0
    assert model.radius.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    for index in np.ndindex(2, 2):
        inverse = np.linalg.inv(1.5 * np.eye(DIM) + matrix_of(prefixes[index]))
        np.testing.assert_allclose(model.root[index] @ model.root[index].T, inverse, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(model.theta[index], inverse @ prefixes[index][:DIM], rtol=1e-11, atol=1e-13)
        np.testing.assert_array_equal(model.root[index], np.triu(model.root[index]))


@pytest.mark.parametrize("arms", [1, 2, 17, 1000])
def test_decisions_are_those_of_the_reference(arms: int) -> None:
    prefix = prefix_of(30)
    model = fit(prefix, DIM, 1.0, 0.5, 0.7).model
    inverse = np.linalg.inv(np.eye(DIM) + matrix_of(prefix))
    features = actions(arms)
    assert decide(features, model) == play(features, inverse @ prefix[:DIM], inverse, 0.7)
    scores = features @ model.theta + 0.7 * np.sqrt(np.einsum("ad,de,ae->a", features, inverse, features))
    np.testing.assert_allclose(upper_bounds(features, model), scores, rtol=1e-12)


def test_one_model_decides_on_sets_of_different_sizes_and_a_prefix_of_a_set_agrees() -> None:
    model = fit(prefix_of(30), DIM, 1.0, 0.5, 0.7).model
    features = actions(60)
    for arms in (60, 59, 8, 1):
        best = decide(features[:arms], model)
        assert 0 <= best < arms
        assert upper_bounds(features[:arms], model)[best] == upper_bounds(features[:arms], model).max()


def test_ties_go_to_the_lowest_index() -> None:
    model = fit(prefix_of(30), DIM, 1.0, 0.5, 0.7).model
    features = actions(5)
    best = decide(features, model)
    doubled = np.concatenate([features, features])
    assert decide(doubled, model) == best
    assert decide(np.repeat(features[:1], 6, axis=0), model) == 0
    nothing_known = Model(np.zeros(DIM), np.eye(DIM), np.array(0.0))
    assert decide(features, nothing_known) == 0


def test_all_silos_at_once_score_like_one_by_one() -> None:
    prefixes = np.stack([prefix_of(n, n) for n in (5, 50, 500)])
    model = fit(prefixes, DIM, 1.0, 0.5, 0.3).model
    features = np.stack([actions(9, seed) for seed in range(3)])
    together = upper_bounds(features, model)
    for i in range(3):
        alone = Model(model.theta[i], model.root[i], model.radius[i])
        np.testing.assert_allclose(together[i], upper_bounds(features[i], alone), rtol=1e-14)


def test_an_indefinite_matrix_is_raised_to_the_floor_and_counted() -> None:
    rng = np.random.default_rng(4)
    rotation, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    broken = rotation @ np.diag([-9.0, -2.0, 0.5, 20.0]) @ rotation.T
    sound = 3 * np.eye(DIM)
    prefixes = np.stack([packed(rng.normal(size=DIM), matrix) for matrix in (broken, sound, broken)])
    model, repaired = fit(prefixes, DIM, regulariser=2.0, floor=0.5, radius=1.0)
    assert repaired == 2
    raised = rotation @ np.diag([0.5, 0.5, 2.5, 22.0]) @ rotation.T  # V = 2 I + W, eigenvalues below 1/2 lifted
    for i in (0, 2):
        np.testing.assert_allclose(np.linalg.inv(model.root[i] @ model.root[i].T), raised, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.root[1] @ model.root[1].T, np.eye(DIM) / 5, rtol=1e-12, atol=1e-15)
    alone = fit(prefixes[1], DIM, 2.0, 0.5, 1.0)
    np.testing.assert_array_equal(model.theta[1], alone.model.theta)  # a neighbour's repair changes nothing here
    assert alone.repaired == 0


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e9, 1e15])
def test_never_a_nan_whatever_the_noise(scale: float) -> None:
    noise = np.random.default_rng(9).normal(size=(200, width(DIM))) * scale
    model, repaired = fit(noise, DIM, regulariser=1.0, floor=0.5, radius=2.0)
    for field in model:
        assert np.isfinite(field).all()
    inverse = model.root @ np.swapaxes(model.root, -1, -2)
    assert np.linalg.eigvalsh(inverse).max() <= 2.0 * (1 + 1e-6)
    assert (repaired > 0) == (scale >= 1)
    assert np.isfinite(upper_bounds(np.broadcast_to(actions(5), (200, 5, DIM)), model)).all()


def test_actions_from_outside_are_checked() -> None:
    model = fit(prefix_of(30), DIM, 1.0, 0.5, 0.7).model
    features = actions(3)
    assert decide(_validate.features("actions", features.tolist(), DIM), model) == decide(features, model)
    refused: list[tuple[Any, str]] = [
        (np.zeros((0, DIM)), "^actions must hold at least one action, got an empty set$"),
        (np.zeros((3, DIM + 1)), r"^actions must have shape \(arms, 4\), got \(3, 5\)$"),
        (np.zeros(DIM), r"^actions must have shape \(arms, 4\), got \(4,\)$"),
        (features * np.nan, "^actions must be finite, got NaN or infinity$"),
        (features * np.inf, "^actions must be finite, got NaN or infinity$"),
        (features * 1.01, "^actions must have rows of norm at most 1, got 1.01$"),
        ([["a"] * DIM], "^actions must be an array of numbers"),
        ([[0.1] * DIM, [0.1]], "^actions must be an array of numbers"),
    ]
    for bad, message in refused:
        with pytest.raises(ValueError, match=message) as error:
            _validate.features("actions", bad, DIM)
        assert "\n" not in str(error.value)


def test_features_longer_than_one_by_rounding_are_taken_at_norm_one() -> None:
    longer = actions(50) * (1 + 5e-7)
    assert np.linalg.norm(_validate.features("actions", longer, DIM), axis=1).max() <= 1 + 1e-15
    shorter = actions(50) * 0.5
    np.testing.assert_array_equal(_validate.features("actions", shorter, DIM), shorter)
