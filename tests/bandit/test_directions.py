"""How well the best of several random directions is aligned: against draws."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.bandit.directions import best_of


@pytest.mark.parametrize(("arms", "axes"), [(1, 3), (4, 19), (50, 4), (3, 1), (7, 2)])
def test_the_best_of_drawn_directions(arms: int, axes: int) -> None:
    rng, draws = np.random.default_rng(arms), 20_000
    directions = rng.standard_normal((draws, arms, axes))
    best = (directions[..., 0] / np.linalg.norm(directions, axis=-1)).max(axis=1)
    computed = best_of(arms, axes)
    for drawn, expected in ((best, computed.cosine), (best**2, computed.square)):
        error = 5 * drawn.std() / np.sqrt(draws) + 1e-6
        assert abs(drawn.mean() - expected) < error
        assert abs(drawn.mean() - expected - 0.05) > error
