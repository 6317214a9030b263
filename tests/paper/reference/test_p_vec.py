"""P_1D, P_vec and P_vec^T: exact on the grid, unbiased off it, with the binomial variance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.paper.reference import VectorSum
from fedbandit.paper.reference.p_vec import Parameters, a_1d, paper_parameters, r_1d, r_vec


def one_dimensional_estimates(values, upper, parameters, trials, analyzed_with=None):
    generator = np.random.default_rng(11)
    return np.array(
        [
            a_1d(
                generator.permutation(np.concatenate([r_1d(x, upper, parameters, generator) for x in values])),
                len(values),
                upper,
                analyzed_with or parameters,
            )
            for _ in range(trials)
        ]
    )


def test_one_dimensional_sum_is_unbiased_with_the_computed_variance():
    values, upper, trials = [0.0, 0.3, 1.1, 1.9, 2.0], 2.0, 4000
    parameters = Parameters(g=4, b=10, p=0.25)
    fractions = np.array([x * 4 / upper % 1 for x in values])
    variance = (upper / 4) ** 2 * (5 * 10 * 0.25 * 0.75 + (fractions * (1 - fractions)).sum())
    estimates = one_dimensional_estimates(values, upper, parameters, trials)
    standard_error = math.sqrt(variance / trials)
    assert abs(estimates.mean() - sum(values)) < 4 * standard_error

    wrong_p = one_dimensional_estimates(values, upper, parameters, trials, parameters._replace(p=0.25 * 1.1))
    assert abs(wrong_p.mean() - sum(values)) > 4 * standard_error

    def accepts(claimed: float) -> bool:
        return bool(abs(estimates.var(ddof=1) - claimed) < 4 * claimed * math.sqrt(2 / (trials - 1)))

    assert accepts(variance)
    assert not accepts(variance * 1.3**2)
    assert not accepts(variance / 1.3**2)


def test_a_value_is_g_plus_b_bits_and_the_range_as_printed_would_overflow():
    generator = np.random.default_rng(0)
    for x in [0.0, 0.7, 2.0]:
        bits = r_1d(x, 2.0, Parameters(g=4, b=6, p=0.25), generator)
        assert bits.shape == (10,)
        assert set(bits) <= {0, 1}
    with pytest.raises(ValueError, match=r"x must lie in \[0, 1.0\], got 1.7"):
        r_1d(1.7, 1.0, Parameters(g=4, b=6, p=0.25), generator)  # 0.7 shifted by L = 1, encoded as if in [0, L]


def test_the_bit_shuffler_keeps_every_bit_and_forgets_every_place():
    generator = np.random.default_rng(4)
    p = VectorSum(1, [1], (2,), 1.0, lambda n: Parameters(8, 8, 0.25), generator)
    messages = [r_vec(np.array([0.0, 0.5]), 1.0, Parameters(8, 8, 0.25), generator)]
    assert messages[0].shape == (2 * 16, 2)
    assert messages[0][0].tolist() == [0, 1]  # the ones come first
    share = messages[0][:, 1].mean()
    shuffles = [p.shuffle(messages) for _ in range(600)]
    assert sorted(map(tuple, shuffles[0])) == sorted(map(tuple, messages[0]))
    standard_error = math.sqrt(share * (1 - share) / 600)
    assert abs(np.mean([rows[0, 1] for rows in shuffles]) - share) < 4 * standard_error
    assert abs(messages[0][0, 1] - share) > 4 * standard_error  # unshuffled, the first bit is always a one


@pytest.mark.parametrize("shape", [(3,), (3, 3)])
def test_vector_sum_without_noise_on_the_grid_gives_exact_prefix_sums(shape):
    batches, silos = [2, 2, 2, 2, 2, 2, 1], 3
    asked = []

    def parameters(n: int) -> Parameters:
        asked.append(n)
        return Parameters(g=4, b=0, p=0.25)

    p = VectorSum(silos, batches, shape, 1.0, parameters, np.random.default_rng(5))
    draws = np.random.default_rng(6)
    total = np.zeros(shape)
    for size in batches:
        points = draws.integers(-2, 3, size=(silos, size, *shape)) / 2  # multiples of 2L/g = 1/2
        if len(shape) == 2:
            points = np.triu(points) + np.triu(points, 1).swapaxes(-1, -2)
        total += points.sum(axis=(0, 1))
        messages = [p.randomize(i, points[i].sum(axis=0), list(points[i])) for i in range(silos)]
        np.testing.assert_array_equal(p.analyze(p.shuffle(messages)), total)
    # asked by each silo and by the analyzer; the paper's example: at k = 6, n = 2 B M
    assert asked[:: silos + 1] == [6, 12, 6, 24, 6, 12, 3]
    with pytest.raises(ValueError, match="points must be 2 in batch 1, got 5"):
        VectorSum(1, [2], shape, 1.0, parameters, draws).randomize(0, np.zeros(shape), [np.zeros(shape)] * 5)


def test_vector_sum_noise_has_the_binomial_variance():
    trials, silos, parameters = 1500, 2, Parameters(g=2, b=6, p=0.25)
    generator = np.random.default_rng(8)
    errors = np.zeros((trials, 2))
    for trial in range(trials):
        p = VectorSum(silos, [1, 1, 1], (2,), 1.0, lambda n: parameters, generator)
        for _ in range(3):  # prefix 3 = p-sum of batches 1 and 2 (n = 4) + p-sum of batch 3 (n = 2)
            messages = [p.randomize(i, np.zeros(2), [np.zeros(2)]) for i in range(silos)]
            errors[trial] = p.analyze(p.shuffle(messages))
    variance = (2 / 2) ** 2 * (4 + 2) * 6 * 0.25 * 0.75  # 0 is on the grid: no rounding
    assert np.all(np.abs(errors.mean(axis=0)) < 4 * math.sqrt(variance / trials))

    def accepts(claimed: float) -> bool:
        return bool(np.all(np.abs(errors.var(axis=0, ddof=1) - claimed) < 4 * claimed * math.sqrt(2 / trials)))

    assert accepts(variance)
    assert not accepts(variance * 1.3**2)
    assert not accepts(variance / 1.3**2)


def test_the_parameters_printed_in_the_appendix():
    # delta such that the logarithm is 1: b = 24e4 g^2 / (epsilon^2 n)
    assert paper_parameters(100, 10, 1.0, 4 * 101 / math.e) == Parameters(20, 960_000, 0.25)
    assert paper_parameters(4, 10, 2.0, 4 * 101 / math.e) == Parameters(10, 1_500_000, 0.25)
    assert paper_parameters(1, 2, 1.0, 4 * 5 / math.e) == Parameters(4, 3_840_000, 0.25)
