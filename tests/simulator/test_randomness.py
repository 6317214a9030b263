"""The random numbers of simulated users have the laws they claim, and the tests would notice if they had not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from fedbandit._arrays import Floats
from fedbandit._splitmix import GOLDEN, mixed
from fedbandit.simulator.randomness import CONTEXT, REWARD, fill_normals, integer_below, normal, uniform, user_key

Sample = Floats
SIGNIFICANCE = 1e-4


def normals(key: int, count: int) -> Sample:
    out = np.empty(count, dtype=np.float32)
    fill_normals(np.uint64(key), out)
    return out.astype(np.float64)


def keys(rounds: int, run: int = 0, silo: int = 0, purpose: int = CONTEXT) -> list[np.uint64]:
    return [np.uint64(user_key(np.uint64(5), run, silo, t, purpose)) for t in range(1, rounds + 1)]


def many_users(rounds: int, each: int) -> Sample:
    """Normals of neighbouring users: (rounds, each)."""
    return np.stack([normals(int(key), each) for key in keys(rounds)])


def kolmogorov(sample: Sample) -> float:
    return float(stats.kstest(sample, "norm").pvalue)


def tails(sample: Sample) -> float:
    """Chi-square of the counts between quantiles that reach far into both tails."""
    edges = np.asarray(stats.norm.ppf([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999]))
    counts = np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1)
    shares = np.diff(np.concatenate([[0], stats.norm.cdf(edges), [1]]))
    return float(stats.chisquare(counts, shares * len(sample)).pvalue)


def moments(sample: Sample) -> float:
    """The least likely of the first four moments: standard errors are sqrt(1, 2, 15, 96) / sqrt n."""
    deviations = np.abs([(sample**k).mean() - m for k, m in [(1, 0), (2, 1), (3, 0), (4, 3)]])
    return float(2 * stats.norm.sf(deviations / np.sqrt(np.array([1, 2, 15, 96]) / len(sample))).min())


@pytest.mark.parametrize("check", [kolmogorov, tails, moments])
def test_one_long_stream_is_standard_normal(check: Callable[[Sample], float]) -> None:
    sample = normals(77, 2_000_001)
    assert check(sample) > SIGNIFICANCE
    assert check(sample * 1.3) < SIGNIFICANCE
    assert check(sample / 1.3) < SIGNIFICANCE
    assert check(sample + 0.01) < SIGNIFICANCE


@pytest.mark.parametrize("check", [kolmogorov, tails, moments])
def test_short_streams_of_neighbouring_users_are_standard_normal(check: Callable[[Sample], float]) -> None:
    sample = many_users(2000, 250).ravel()
    assert check(sample) > SIGNIFICANCE
    assert check(sample * 1.3) < SIGNIFICANCE


def largest_correlation(first: Sample, second: Sample) -> float:
    """The largest |correlation| of columns of two samples, in standard errors."""
    return float(np.abs((first * second).mean(axis=0)).max() * np.sqrt(len(first)))


def test_neighbours_are_uncorrelated_in_value_and_in_size() -> None:
    """Between positions of one user (also the two of a Box-Muller pair), and between users of successive rounds."""
    users = many_users(4000, 128)
    for sample in (users, (users**2 - 1) / np.sqrt(2)):
        for lag in (1, 2, 8, 16, 32, 64):
            assert largest_correlation(sample[:, lag:], sample[:, :-lag]) < 5
        assert largest_correlation(sample[1:], sample[:-1]) < 5
    coupled = users.copy()
    coupled[:, 64:] += 0.2 * users[:, :64]
    assert largest_correlation(coupled[:, 64:], coupled[:, :-64]) > 5


def test_the_plane_is_covered_evenly_by_pairs() -> None:
    """Angles and radii of Box-Muller pairs: independent, the angle uniform, the squared radius exponential."""
    sample = normals(3, 1_000_000)
    first, second = sample[:500_000], sample[500_000:]
    turn = np.arctan2(second, first) / (2 * np.pi) + 0.5
    height = np.exp(-(first**2 + second**2) / 2)
    cells = np.bincount((turn * 40).astype(int) * 40 + np.minimum((height * 40).astype(int), 39), minlength=1600)
    assert stats.chisquare(cells).pvalue > SIGNIFICANCE
    skewed = np.bincount((turn**1.1 * 40).astype(int) * 40 + np.minimum((height * 40).astype(int), 39), minlength=1600)
    assert stats.chisquare(skewed).pvalue < SIGNIFICANCE


def test_a_prefix_does_not_reach_into_other_users() -> None:
    """Numbers depend on the key and the length alone; odd lengths are filled to the end."""
    assert np.isfinite(normals(9, 7)).all()
    np.testing.assert_array_equal(normals(9, 7), normals(9, 7))
    assert not np.isin(normals(9, 500), normals(10, 500)).any()


def test_known_answers() -> None:
    """The same numbers on every machine: they are made of exactly rounded operations only."""
    key = np.uint64(user_key(np.uint64(1), 2, 3, 4, REWARD))
    out = np.empty(5, dtype=np.float32)
    fill_normals(key, out)
    assert int(key) == 2041119799513868740
    assert [hex(bits) for bits in out.view(np.uint32)] == [
        "0xbe74a80b",
        "0xbfc45c39",
        "0x3fd54fcb",
        "0xbccc4053",
        "0xbf1c3733",
    ]
    assert uniform(key) == 0.05737001781575457


def hashed(counter: int, key: int) -> int:
    """The triple32 hash in plain integers, keyed with the mixed key."""
    key = int(mixed(np.uint64(key) + GOLDEN))
    word = (counter + key) % 2**32
    word = (word ^ word >> 17) * 0xED5AD4BB % 2**32
    word ^= key >> 32
    word = (word ^ word >> 11) * 0xAC4C1B51 % 2**32
    word = (word ^ word >> 15) * 0x31848BAB % 2**32
    return word ^ word >> 14


def test_normals_are_the_box_muller_transform_to_six_digits() -> None:
    key, count = 0x1234_5678_9ABC_DEF0, 4000
    got = normals(key, 2 * count)
    share = np.array([((hashed(i, key) >> 1) | 1) / 2**31 for i in range(count)])
    words = np.array([hashed(count + i, key) for i in range(count)])
    angle = np.pi / 2 * (words - 2**32 * (words >= 2**31)) / 2**31 + np.pi * (words % 2)
    radius = np.sqrt(-2 * np.log(share))
    assert np.abs(got[:count] - radius * np.cos(angle)).max() < 2e-6
    assert np.abs(got[count:] - radius * np.sin(angle)).max() < 2e-6


def test_keys_of_different_users_and_purposes_differ() -> None:
    found = [
        int(user_key(np.uint64(seed), run, silo, round_, purpose))
        for seed in range(3)
        for run in range(6)
        for silo in range(12)
        for round_ in range(12)
        for purpose in (CONTEXT, REWARD)
    ]
    assert len(set(found)) == len(found)


def test_every_bit_of_a_key_flips_half_the_time() -> None:
    """When round, silo, run or seed changes by one bit, each of the 64 key bits flips with probability 1/2."""
    base = [0, 0, 0, 0]
    for position in range(4):
        flips = np.zeros(64)
        for start in range(2000):
            base[position] = 2 * start
            first = int(user_key(np.uint64(base[3]), base[2], base[1], base[0], CONTEXT))
            base[position] = 2 * start + 1
            second = int(user_key(np.uint64(base[3]), base[2], base[1], base[0], CONTEXT))
            flips += [(first ^ second) >> bit & 1 for bit in range(64)]
        base[position] = 0
        assert np.abs(flips - 1000).max() < 4.5 * np.sqrt(500)


def test_single_numbers_have_their_laws() -> None:
    some = keys(20_000, purpose=REWARD)
    shares = np.array([uniform(key) for key in some])
    assert (shares >= 0).all()
    assert (shares < 1).all()
    assert stats.kstest(shares, "uniform").pvalue > SIGNIFICANCE
    assert stats.kstest(shares**1.3, "uniform").pvalue < SIGNIFICANCE
    gauss = np.array([normal(key) for key in some])
    assert kolmogorov(gauss) > SIGNIFICANCE
    assert kolmogorov(gauss * 1.3) < SIGNIFICANCE
    assert abs(np.corrcoef(shares[1:], shares[:-1])[0, 1]) < 4.5 / np.sqrt(len(some))


@pytest.mark.parametrize("bound", [2, 7, 1000, 2**32 - 1])
def test_integers_below_a_bound_are_uniform(bound: int) -> None:
    draws = np.array([integer_below(key, bound) for key in keys(20_000)], dtype=np.float64)
    assert draws.min() >= 0
    assert draws.max() < bound
    cells = min(bound, 20)
    counts = np.bincount((draws * cells / bound).astype(int), minlength=cells)
    shares = np.diff(np.ceil(np.arange(cells + 1) * bound / cells)) / bound
    assert stats.chisquare(counts, shares * len(draws)).pvalue > SIGNIFICANCE
    assert integer_below(np.uint64(bound), 1) == 0
