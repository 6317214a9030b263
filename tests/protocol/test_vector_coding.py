"""The parameters of one p-sum, each by a number that was worked out by hand or from the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.bandit.statistics import Scales
from fedbandit.privacy.binomial_noise import gaussian_std
from fedbandit.protocol.vector_coding import ExactCoding, Node, PublishedCoding, TheoremCoding

SCALES = Scales(6.0, 12.0, 12.0 * math.sqrt(0.5))  # of the bias, on the diagonal and off it


def test_a_p_sum_by_hand() -> None:
    """Three users, 16 bits each, steps of a quarter: 48 bits have variance 9."""
    node = Node(0, 3, 8, 16, 16, 2.0)
    assert (node.unit, node.trials, node.std) == (0.25, 48, 0.75)
    assert node.most_rounding == pytest.approx(math.sqrt((3 + 1 / 4) / 3))  # a user's bits: 3, at the middle: 1/4
    np.testing.assert_array_equal(node.units(2), [0.25] * 5)
    counts = np.array([24, 12, 36, 0, 14])  # 12 ones are noise, 12 are three times L
    np.testing.assert_array_equal(node.decoded(counts, 2), [0.0, -3.0, 3.0, -6.0, -2.5])


def test_kinds_of_numbers_have_steps_of_their_own() -> None:
    node = Node(0, 3, 8, 16, 16, 2.0, Scales(2.0, 1.0, 0.5))
    np.testing.assert_array_equal(node.units(2), [0.5, 0.5, 0.25, 0.125, 0.25])
    np.testing.assert_array_equal(node.decoded(np.full(5, 14), 2), [-2.0, -2.0, -2.5, -2.75, -2.5])


def test_the_published_parameters() -> None:
    """b = (g log(d^2 / delta) / epsilon)^2 / n with g = max(2 sqrt n, d, 4), neither rounded."""
    node = PublishedCoding(0.5, 0.01).node(1, 50, 3)
    grid = 2 * math.sqrt(50)
    assert (node.level, node.users, node.grid, node.span) == (1, 50, grid, 1.0)
    assert node.subtracted == pytest.approx((grid * math.log(900) / 0.5) ** 2 / 50)
    assert node.noise_bits == math.floor(node.subtracted)
    assumed = PublishedCoding(0.5, 0.01).assumed_std(7, 3)
    assert assumed == pytest.approx(math.sqrt(7 * math.log(100)) * math.log(6300) / 0.5)


def test_the_parameters_of_the_theorem() -> None:
    """b = 24e4 g^2 log(4 (d^2 + 1) / delta)^2 / (epsilon^2 n), rounded up."""
    node = TheoremCoding(0.5, 0.01).node(1, 50, 3)
    assert (node.level, node.users, node.grid, node.span) == (1, 50, 15, 2.0)
    assert node.noise_bits == node.subtracted == math.ceil(24e4 * 225 * math.log(4000) ** 2 / (0.25 * 50))


@pytest.mark.parametrize(
    ("log_moved", "silos", "users", "grid", "bits"),
    [
        (-20.0, 1, 7, 132, 486_924),
        (-20.0, 2, 8, 132, 852_117),
        (-33.5, 3, 12, 171, 715_335),
        (-60.0, 10, 100, 229, 114_077),
        (-12.0, 3, 30_000, 145, 205),
        (-18.0, 4, 40_000_000, 5_271, 178),
    ],
)
def test_the_parameters_of_exact_accounting(log_moved: float, silos: int, users: int, grid: int, bits: int) -> None:
    """Noise is 125 z steps wide, z = sqrt(-2 log_moved), or 5 sqrt n, whichever is more. All parties compute b for
    themselves, so its digits count: these are numbers that were once computed, and found to be the fewest."""
    coding = ExactCoding(SCALES, log_moved, silos)
    node, others = coding.node(3, users, 2), max(1, silos - 1)
    steps = max(125 * math.sqrt(-2 * log_moved), 5 * math.sqrt(users))
    assert node.grid == grid == math.ceil(2 * steps / 12)
    assert (node.level, node.users, node.span) == (3, users, 2.0)
    assert (node.noise_bits, node.subtracted) == (bits, bits)
    np.testing.assert_allclose(node.units(2), 2 / grid * np.array([0.5, 0.5, 1, math.sqrt(0.5), 1]), rtol=1e-14)
    known, fewer = users // silos * others, min(bits - 1, int(0.9998 * bits))
    assert 2 / grid * gaussian_std(known * bits, log_moved) >= 12.0
    assert 2 / grid * gaussian_std(known * fewer, log_moved) < 12.0


@pytest.mark.parametrize(("silos", "counted"), [(1, 1), (2, 1), (3, 2), (40, 39)])
def test_one_silo_knows_its_own_bits(silos: int, counted: int) -> None:
    assert ExactCoding(SCALES, -20.0, silos).counted_on == counted


@pytest.mark.parametrize("of", [1, 2, 5])
def test_what_the_bits_of_some_silos_are_worth(of: int) -> None:
    """A hair less than the binomial itself: numbers are scaled in floating point before they are rounded."""
    coding = ExactCoding(SCALES, -20.0, 5)
    by_hand = Node(0, 30, 100, 5_000, 5_000, 2.0)
    exact = 0.02 * gaussian_std(of * 30_000, -20.0)
    assert exact * (1 - 1.1e-9) < coding.worth(by_hand, of) < exact * (1 - 0.9e-9)
    assert (coding.worth(coding.node(0, 30, 2), of) >= 12.0) == (of >= 4)


def test_rounding_adds_a_hundredth_to_the_variance_at_most() -> None:
    """Where users are very many, steps are as short as that takes, and not much shorter."""
    for users in (2_000_000, 50_000_000):
        node = ExactCoding(SCALES, -20.0, 2).node(0, users, 2)
        own_bits = node.noise_bits * 3 / 16
        assert 0.0045 < 0.25 / own_bits <= 0.01  # all silos' bits: twice as many as those of all but one
