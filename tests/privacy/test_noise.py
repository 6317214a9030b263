"""The simulated source of noise: every draw has the law it is asked for, and the same seed gives the same draws."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.privacy.rounding import rounded_totals
from tests.statistical import assert_std, mean_verdict, same_counts_verdict

SAMPLES = 4000


def source(seed: int = 0) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def test_gaussians_have_the_scales_asked_for_and_are_whole_numbers() -> None:
    scales = np.array([1000.0, 5.0e6, 3.0e12])
    draws = source().gaussian(scales, (SAMPLES,))
    assert draws.shape == (SAMPLES, 3)
    assert draws.dtype == np.int64
    assert_std(draws.astype(float), scales)
    assert mean_verdict(draws.astype(float), 0.0, scales).accepted
    assert source().gaussian(scales).shape == (3,)


def test_binomials_have_their_law() -> None:
    samples = 5 * SAMPLES  # enough to tell 20 bits from 21
    draws = source().binomial(20, 0.25, (samples,))
    assert draws.dtype == np.int64
    counted = (np.random.default_rng(99).random((samples, 20)) < 0.25).sum(axis=1)
    assert same_counts_verdict(draws, counted).accepted
    assert not same_counts_verdict(source().binomial(21, 0.25, (samples,)), counted).accepted


def test_random_rounding_is_without_bias_and_independent_from_number_to_number() -> None:
    values = np.array([[0.2, 3.0, -1.5], [0.7, 0.0, 2.25]])  # (users, width)
    totals = source().rounded_total(np.broadcast_to(values, (SAMPLES, 2, 3)))
    assert totals.shape == (SAMPLES, 3)
    fractions = values - np.floor(values)
    deviation = np.sqrt((fractions * (1 - fractions)).sum(axis=0))
    assert (totals[:, 1] == 3).all()  # whole numbers stay
    for column in (0, 2):
        errors = totals[:, column] - values[:, column].sum()
        assert_std(errors[:, None], deviation[column])
        assert mean_verdict(errors[:, None], 0.0, deviation[column]).accepted
    assert abs(np.corrcoef(totals[:, 0], totals[:, 2])[0, 1]) < 6 / math.sqrt(SAMPLES)


def test_rounding_keeps_leading_axes_and_depends_on_the_seed_alone() -> None:
    values = np.random.default_rng(1).uniform(-3, 3, (2, 3, 4, 5))
    totals = source(4).rounded_total(values)
    assert totals.shape == (2, 3, 5)
    assert np.abs(totals - values.sum(axis=-2)).max() < 4
    np.testing.assert_array_equal(totals, source(4).rounded_total(values))
    assert (totals != source(5).rounded_total(values)).any()


def test_compiled_rounding_is_what_is_written() -> None:
    values = np.random.default_rng(2).uniform(-3, 3, (3, 4, 5))
    compiled: Any = rounded_totals
    with np.errstate(over="ignore"):  # the hash wraps around, as it must
        written = compiled.py_func(values, np.uint64(2**63 + 12345))
    np.testing.assert_array_equal(rounded_totals(values, np.uint64(2**63 + 12345)), written)


def test_words_use_all_their_bits_equally() -> None:
    words = source().words((SAMPLES,))
    assert words.dtype == np.uint64
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
    assert bits.shape == (64,)
    assert np.abs(bits - 0.5).max() < 6 * 0.5 / math.sqrt(SAMPLES)


def test_permutations_are_uniform() -> None:
    drawn = source()
    orders = Counter(tuple(drawn.permutation(3).tolist()) for _ in range(6000))
    assert len(orders) == 6
    assert max(abs(count - 1000) for count in orders.values()) < 6 * math.sqrt(6000 / 6 * 5 / 6)


@pytest.mark.parametrize("draw", ["gaussian", "binomial", "words", "permutation"])
def test_one_seed_one_sequence(draw: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "gaussian": (np.full(9, 1e6),),
        "binomial": (1000, 0.3, (9,)),
        "words": ((9,),),
        "permutation": (9,),
    }
    first, second, other = (getattr(source(seed), draw)(*arguments[draw]) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_small_noise_is_rounded_to_the_nearest_whole_number() -> None:
    """Of a standard Gaussian, 38.3 % lie within half a unit of 0; 68.3 % would be cut to 0."""
    zeros = np.count_nonzero(source(5).gaussian(np.ones(SAMPLES)) == 0)
    chance = math.erf(0.5 / math.sqrt(2))
    assert abs(zeros - SAMPLES * chance) < 5 * math.sqrt(SAMPLES * chance * (1 - chance))
