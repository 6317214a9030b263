"""The live source of noise: exact laws, no seed, nothing else will do."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from fedbandit.federation.exact import exact_noise
from fedbandit.federation.exact.binomial import _probability, binomial
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.federation.silo import releasing
from fedbandit.privacy.noise import SimulatedNoise
from tests.federation.small import small_plan
from tests.statistical import ALPHA, assert_std, mean_verdict


def test_rounding_looks_beyond_53_bits_where_they_decide_nothing(monkeypatch):
    """A number whose first 53 bits come up is rounded up with the chance of what lies behind them, and no other."""
    probability, asked = 2.0**-10 + 2.0**-54, []

    def up(chance):
        asked.append(chance)
        return 1

    monkeypatch.setattr(exact_noise, "bernoulli", up)
    first = 2**43
    for bits, drawn in ((first - 1, 1), (first, 1), (first + 1, 0)):
        monkeypatch.setattr(ExactNoise, "words", lambda self, shape, bits=bits: np.full(shape, bits << 11, np.uint64))
        assert ExactNoise().rounded_total(np.array([[probability]])).tolist() == [drawn]
    assert asked == [0.5]


def test_it_takes_no_seed_and_no_generator():
    assert list(inspect.signature(ExactNoise).parameters) == []
    with pytest.raises(TypeError):
        ExactNoise(7)  # type: ignore[call-arg]


def test_a_release_takes_no_other_source():
    plan = small_plan()
    seeded = SimulatedNoise(np.random.default_rng(0))
    with pytest.raises(TypeError, match="ExactNoise"):
        releasing.draw(plan, plan.protocol.init(), [], seeded)  # type: ignore[arg-type]

    class Seeded(ExactNoise):
        pass

    with pytest.raises(TypeError, match="ExactNoise"):
        releasing.draw(plan, plan.protocol.init(), [], Seeded())


def test_gaussians_have_the_scale_asked_for_in_every_column():
    scales = np.array([3.0, 1e9, 3.0, 2.0**40])
    draws = ExactNoise().gaussian(scales, (2500,))
    assert draws.dtype == np.int64
    assert_std(draws.astype(float), scales)
    assert mean_verdict(draws.astype(float), 0.0, scales).accepted


def test_noise_narrower_than_a_step_is_drawn_too():
    scales = np.array([1.0, 0.75, 0.0])
    draws = ExactNoise().gaussian(scales, (4000,))
    assert_std(draws[:, :2].astype(float), scales[:2])
    assert mean_verdict(draws[:, :2].astype(float), 0.0, scales[:2]).accepted
    assert not draws[:, 2].any()


def test_no_scale_no_noise():
    assert not ExactNoise().gaussian(np.zeros(5), (3,)).any()


def test_a_prepared_draw_is_handed_out_once():
    noise, scales = ExactNoise(), np.array([1e12, 1e12])
    noise.prepare(scales)
    noise.prepare(scales)
    first, second = noise.gaussian(scales), noise.gaussian(scales)
    assert (first != second).all()


def test_one_draw_is_prepared_at_a_time_and_taken_before_another_is_made(monkeypatch):
    made = []

    def draw(scales, lead):
        made.append((scales.tolist(), lead))
        return np.full((*lead, len(scales)), len(made))

    monkeypatch.setattr(exact_noise, "_gaussian", draw)
    noise, scales = ExactNoise(), np.array([5.0, 7.0])
    noise.prepare(scales, (3,))
    noise.prepare(scales, (3,))
    assert made == [([5.0, 7.0], (3,))]
    assert [noise.gaussian(scales, (3,))[0, 0] for _ in range(2)] == [1, 2]
    noise.prepare(scales, (3,))
    other = np.array([5.0, 8.0])  # a draw is for the scales and the shape that it was prepared for
    assert (noise.gaussian(other, (3,))[0, 0], noise.gaussian(scales, (2,))[0, 0]) == (
        4,
        5,
    )
    assert noise.gaussian(scales, (3,))[0, 0] == 3


def test_two_sources_never_agree():
    scales = np.full(4, 1e12)
    assert (ExactNoise().gaussian(scales) != ExactNoise().gaussian(scales)).all()


def test_random_rounding_is_unbiased_and_exact_at_the_ends():
    values = np.array([0.0, 3.0, 2.25, -1.5 + 2.0**-40, 5.0 + 2.0**-60])
    totals = ExactNoise().rounded_total(np.broadcast_to(values, (4000, 1, 5)))
    assert totals.shape == (4000, 5)
    assert (totals[:, [0, 1, 4]] == [0, 3, 5]).all()
    assert set(totals[:, 2]) == {2, 3}
    assert set(totals[:, 3]) == {-2, -1}
    for column, chance in ((2, 0.25), (3, 0.5)):
        up = totals[:, column] - np.floor(values[column])
        assert abs(up.mean() - chance) < 5.5 * math.sqrt(chance * (1 - chance) / 4000)


def test_permutations_are_uniform():
    counts = np.zeros((3, 3, 3))
    for _ in range(3000):
        counts[tuple(ExactNoise().permutation(3))] += 1
    observed = counts[counts > 0]
    assert len(observed) == 6
    assert chisquare(observed).pvalue > ALPHA


def test_words_are_uniform_bits():
    words = ExactNoise().words((500, 4))
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5.5 * 0.5 / math.sqrt(len(bits))


@pytest.mark.parametrize("trials, value", [(1000, 0), (1000, 31), (70_000, 3), (70_000, -700)])
def test_binomial_probabilities_are_right_to_forty_digits(trials, value):
    exact = Fraction(math.comb(trials, trials // 2 + value), 2**trials)
    assert abs(_probability(trials, value, 40) - exact) < Fraction(1, 10**40)


@pytest.mark.parametrize("trials, chance, draws", [
    (0, 0.25, 5), (1, 0.25, 4000), (50, 0.3, 1000), (9_999, 0.5, 1500), (200_001, 0.25, 200), (10**12, 0.25, 200),
])  # fmt: skip
def test_binomial_mean_and_spread(trials, chance, draws):
    sample = ExactNoise().binomial(trials, chance, (draws,)).astype(float)
    if trials == 0:
        assert not sample.any()
        return
    std = math.sqrt(trials * chance * (1 - chance))
    assert abs(sample.mean() - trials * chance) < 5.5 * std / math.sqrt(draws)
    kurtosis = 2 + (1 - 6 * chance * (1 - chance)) / (trials * chance * (1 - chance))
    assert abs(sample.var() / std**2 - 1) < 5.5 * math.sqrt(kurtosis / draws)


def test_large_binomials_follow_their_law_cell_by_cell():
    trials, draws = 2**16, 2000
    sample = np.array([binomial(trials, 0.5) for _ in range(draws)]) - trials // 2
    edges = np.array([-(10**9), -200, -130, -80, -40, 0, 40, 80, 130, 200, 10**9])
    chances = np.diff(binom.cdf(edges - 1 + trials // 2, trials, 0.5))
    observed = np.histogram(sample, edges)[0]
    assert chisquare(observed, draws * chances / chances.sum()).pvalue > ALPHA
