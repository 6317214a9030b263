"""A set that comes again is scored as if it were scored afresh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedbandit._arrays import Floats
from fedbandit.simulator.kernels import Local
from fedbandit.simulator.kernels.deciding import learn, survey
from fedbandit.simulator.kernels.remembering import REFRESH, enter_memory, open_memory, recall, remember
from fedbandit.simulator.kernels.scoring import MEANS, ROWS, WIDTHS

DIM, HEIGHT, ARMS = 22, 24, 40  # five packs of float32 actions, an odd number; up to 22 // 3 users are made up for
WITHIN = {np.float32: 2e-5, np.float64: 1e-12}


class World:
    """One model of a silo, with all its room to work."""

    def __init__(self, dtype: Any, sets: int) -> None:
        self.rng = np.random.default_rng(5)
        factor = self.rng.normal(size=(DIM, DIM))
        self.inverse: Floats = np.asarray(np.linalg.inv(factor @ factor.T + np.eye(DIM)), dtype=np.float64)
        self.bias = self.rng.normal(size=DIM)
        self.theta = self.inverse @ self.bias
        local = Local(self.inverse[None, None, None], self.bias[None, None, None], np.ones((1, 1, 1), dtype))
        self.weights, self.folded = np.zeros((1, HEIGHT), dtype), np.zeros((1, DIM, HEIGHT), dtype)
        self.board = np.zeros((ROWS, ARMS), dtype)
        self.memory = open_memory(local, 1, sets, HEIGHT, ARMS)
        enter_memory(self.memory)
        self.sets = np.zeros((sets + 1, HEIGHT, ARMS), dtype=np.float32)
        self.sets[:, :DIM] = self.rng.normal(size=(sets + 1, DIM, ARMS)) / np.sqrt(DIM)

    def learn(self, users: int) -> None:
        feature, direction = np.empty(DIM), np.empty(DIM)
        for _ in range(users):
            x, arm = self.sets[self.rng.integers(len(self.sets))], int(self.rng.integers(ARMS))
            gain, step = learn(x, arm, 0.7, self.inverse, self.bias, self.theta, feature, direction)
            remember(direction, gain, step, 0, self.memory)

    def recalled(self, index: int) -> np.ndarray:
        return recall(
            self.sets[index], np.int64(index), 0, self.inverse, self.theta, self.weights, self.folded, self.memory
        )

    def surveyed(self, index: int) -> np.ndarray:
        survey(self.sets[index], self.inverse, self.theta, self.weights, self.folded, self.board)
        return self.board


def assert_recalled(world: World, index: int, within: float) -> None:
    got, wanted = world.recalled(index), world.surveyed(index)
    for row in (MEANS, WIDTHS):
        np.testing.assert_allclose(got[row], wanted[row], rtol=within, atol=within)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whatever_was_learnt_meanwhile(dtype: Any) -> None:
    """No user, some in fours and some alone, more than are made up for; and users before the one who is forgotten."""
    world = World(dtype, sets=2)
    world.recalled(1)
    for users in (0, 1, 2, 3, 4, 5, 6, 7, 8, 30, 7, 7, 1, 6):
        world.learn(users)
        assert_recalled(world, 0, WITHIN[dtype])
    assert_recalled(world, 1, WITHIN[dtype])


def test_a_set_in_the_place_of_another_is_not_taken_for_it() -> None:
    world = World(np.float64, sets=2)
    assert_recalled(world, 0, 1e-12)
    assert_recalled(world, 2, 1e-12)
    world.learn(2)
    assert_recalled(world, 0, 1e-12)


def test_another_silo_remembers_nothing() -> None:
    world = World(np.float64, sets=2)
    world.recalled(0)
    world.inverse *= 2.0
    enter_memory(world.memory)
    assert_recalled(world, 0, 1e-12)


def test_rounding_does_not_add_up_for_ever() -> None:
    """An error on a board is carried along, until the set is scored afresh."""
    world = World(np.float64, sets=1)
    world.recalled(0)[MEANS, 0] += 1.0
    for _ in range(REFRESH - 1):
        world.learn(1)
        world.recalled(0)
    assert world.recalled(0)[MEANS, 0] == pytest.approx(world.surveyed(0)[MEANS, 0] + 1.0)
    world.learn(1)
    assert_recalled(world, 0, 1e-12)
