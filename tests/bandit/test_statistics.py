"""What a silo keeps of its users: packing, rounding, and sums that do not depend on their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.bandit.statistics import Scales, contributions, is_diagonal, summed, symmetric, unpack, width


def users(count: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, dim))
    return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True)), rng.random(count)


@pytest.mark.parametrize(("dim", "numbers"), [(1, 2), (2, 5), (10, 65), (57, 1710)])
def test_width(dim: int, numbers: int) -> None:
    assert width(dim) == numbers
    assert len(is_diagonal(dim)) == numbers
    assert is_diagonal(dim).sum() == dim


def test_a_contribution_is_the_bias_then_the_upper_triangle_row_by_row() -> None:
    packed = contributions([0.5, 0.25, -0.5], 0.5, bits=4)
    assert packed.dtype == np.int64
    bias = [4, 2, -4]  # x y, in sixteenths
    triangle = [4, 2, -4, 1, -2, 4]  # (0,0) (0,1) (0,2) (1,1) (1,2) (2,2)
    assert packed.tolist() == bias + triangle
    assert is_diagonal(3).tolist() == [False, False, False, True, False, False, True, False, True]


def test_rewards_enter_centred() -> None:
    assert contributions([1.0, 0.0], 0.25, bits=4, centre=0.5)[:2].tolist() == [-4, 0]
    assert contributions([1.0, 0.0], 0.25, bits=4, centre=0.5)[2:].tolist() == [16, 0, 0]


@pytest.mark.parametrize("dim", [1, 2, 5, 13])
def test_unpacking_gives_back_bias_and_symmetric_matrix(dim: int) -> None:
    x, y = users(6, dim)
    bias, covariance = unpack(np.asarray(contributions(x, y, 40) * 2.0**-40, dtype=np.float64), dim)
    np.testing.assert_allclose(bias, x * y[:, None], rtol=0, atol=2.0**-41)
    np.testing.assert_allclose(covariance, x[:, :, None] * x[:, None, :], rtol=0, atol=2.0**-41)
    np.testing.assert_array_equal(covariance, np.swapaxes(covariance, 1, 2))


@given(st.permutations(range(30)), st.integers(1, 29))
def test_sums_do_not_depend_on_order_or_grouping(order: list[int], cut: int) -> None:
    x, y = users(30, 4)
    once = contributions(x, y, 20).sum(axis=0)
    shuffled = contributions(x[order], y[order], 20)
    np.testing.assert_array_equal(shuffled[:cut].sum(axis=0) + shuffled[cut:].sum(axis=0), once)


def test_rounding_is_to_the_nearest_and_leading_axes_are_free() -> None:
    x, y = users(24, 3)
    flat = contributions(x, y, 12)
    np.testing.assert_array_equal(contributions(x.reshape(2, 3, 4, 3), y.reshape(2, 3, 4), 12).reshape(24, -1), flat)
    exact = np.concatenate([x * y[:, None], (x[:, :, None] * x[:, None, :])[:, *np.triu_indices(3)]], axis=1)
    assert np.abs(flat * 2.0**-12 - exact).max() <= 2.0**-13


def test_scales_are_laid_out_like_a_contribution() -> None:
    scales = Scales(bias=1.0, diagonal=2.0, off_diagonal=3.0)
    assert scales.packed(3).tolist() == [1, 1, 1, 2, 3, 3, 2, 3, 2]
    assert scales.packed(1).tolist() == [1, 2]  # there is nothing off the diagonal
    for dim in (1, 2, 5, 13):
        bias, matrix = unpack(scales.packed(dim), dim)
        assert (bias == 1).all()
        np.testing.assert_array_equal(matrix, np.where(np.eye(dim) == 1, 2.0, 3.0))
        np.testing.assert_array_equal(symmetric(scales.packed(dim)[dim:], dim), matrix)


def test_scales_multiply_and_are_plain_numbers() -> None:
    assert Scales.flat(2.5) == Scales(2.5, 2.5, 2.5)
    half = Scales(1.0, 2.0, 4.0).times(np.float64(0.5))
    assert half == Scales(0.5, 1.0, 2.0)
    assert all(type(number) is float for number in half)  # they are hashed, pickled and written down


def test_unpacking_copies() -> None:
    packed = np.arange(5.0)
    bias, covariance = unpack(packed, 2)
    bias[:], covariance[:] = 0, 0
    assert packed.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("users", [0, 1, 31, 252, 253, 1000])
@pytest.mark.parametrize("dim", [1, 10, 57])
def test_the_sum_is_that_of_all_contributions_however_many_are_taken_at_a_time(users: int, dim: int) -> None:
    generator = np.random.default_rng(users)
    x, y = generator.uniform(-0.1, 0.1, (users, dim)), generator.uniform(0, 1, users)
    np.testing.assert_array_equal(summed(x, y, 20, 0.5), contributions(x, y, 20, 0.5).sum(axis=0))
