"""Binomial draws: not sampled but worked out, from the answers that the source of randomness can give."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import mpmath
import pytest

from fedbandit.federation.exact import binomial as module
from fedbandit.federation.exact.binomial import ENVELOPE, SMALL, bernoulli, binomial

SIZES = (SMALL, SMALL + 2, 10**6, 10**9 + 2, 10**12, 2**60)


class Answers:
    """In the place of `secrets`: answers that are given, in order, and what was asked for."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def randbits(self, bits):
        return self._next(2**bits)

    def randbelow(self, end):
        return self._next(end)

    def _next(self, end):
        self.asked.append(end)
        answer = self.answers.pop(0)
        assert 0 <= answer < end
        return answer


@pytest.fixture
def given(monkeypatch):
    """Hand the module its randomness, answer by answer."""

    def give(*answers):
        source = Answers(*answers)
        monkeypatch.setattr(module, "secrets", source)
        return source

    return give


def chance_of(trials, value):
    """P(Bin(trials, 1/2) = trials / 2 + value), exactly."""
    return Fraction(math.comb(trials, trials // 2 + value), 2**trials)


@pytest.mark.parametrize("probability, over", [(0.25, 4), (0.75, 4), (0.625, 8), (1.0, 1), (0.0, 1)])
def test_a_coin_comes_up_for_its_share_of_the_answers(given, probability, over):
    drawn = []
    for answer in range(over):
        source = given(answer)
        drawn.append(bernoulli(probability))
        assert source.asked == [over]
    assert sum(drawn) == probability * over


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_few_fair_trials_are_counted_one_by_one(given, trials):
    counts: Counter[int] = Counter()
    for answer in range(2**trials):
        given(answer)
        counts[binomial(trials, 0.5)] += 1
    assert counts == {k: math.comb(trials, k) for k in range(trials + 1)}


def test_a_quarter_is_half_of_a_half(given):
    source = given(0b1011, 0b101)
    assert (binomial(4, 0.25), source.asked) == (2, [2**4, 2**3])


def test_no_halving_and_no_trial(given):
    given()
    assert binomial(7, 1.0) == 7
    assert binomial(0, 0.5) == 0
    given(*[0] * 5)
    assert binomial(5, 0.0) == 0


def test_another_chance_is_a_coin_per_trial(given):
    source = given(0, 2, 3)
    assert (binomial(3, 0.75), source.asked) == (2, [4, 4, 4])


@pytest.mark.parametrize("odd", [0, 1])
def test_an_odd_number_of_trials_is_an_even_one_and_a_coin(given, monkeypatch, odd):
    asked = []

    def centred(trials):
        asked.append(trials)
        return -5

    monkeypatch.setattr(module, "_centred", centred)
    for coin in range(odd + 1):
        source = given(coin)
        assert binomial(SMALL + odd, 0.5) == SMALL // 2 - 5 + odd * coin
        assert source.asked == [2] * odd
    assert set(asked) == {SMALL}


def test_the_few_are_those_below_the_limit(given, monkeypatch):
    """The limit itself is drawn by rejection: for it and whatever is above, the envelope is shown to hold."""
    monkeypatch.setattr(module, "_centred", lambda trials: 0)
    source = given(1)
    assert (binomial(SMALL - 1, 0.5), source.asked) == (1, [2 ** (SMALL - 1)])
    assert (binomial(SMALL, 0.5), source.asked) == (SMALL // 2, [2 ** (SMALL - 1)])


@pytest.mark.parametrize("trials", SIZES)
def test_blocks_lie_side_by_side_and_the_envelope_is_above_the_law(given, monkeypatch, trials):
    """Proposed with chance 2^-(distance + 2) / block and accepted with p block 2^distance / envelope, each value comes
    with p / (4 envelope), if every value is in one block and no chance to be accepted is above 1."""
    told = []

    def accepts(*arguments):
        told.append(arguments)
        return True

    monkeypatch.setattr(module, "_accepts", accepts)
    spans = []
    for distance in range(6):
        for right in (0, 1):
            source = given(*[1] * distance, 0, right, 0)
            first = module._centred(trials)
            block = source.asked[-1]
            assert source.asked == [2] * (distance + 2) + [block]
            given(*[1] * distance, 0, right, block - 1)
            last = module._centred(trials)
            spans.append((first, last))
            assert told[-2:] == [(trials, first, block, distance), (trials, last, block, distance)]
            nearest = min(abs(first), abs(last))
            gauss = math.exp(-2 * nearest**2 / trials) * math.sqrt(2 / (math.pi * trials))
            assert gauss * block * 2**distance < float(ENVELOPE) * (1 - 1e-3)
    spans.sort()
    assert all(left[1] + 1 == right[0] for left, right in pairwise(spans))
    assert spans[0][0] == -spans[-1][1] - 1


def test_the_envelope_is_above_the_law_for_the_fewest_trials_exactly(given, monkeypatch):
    monkeypatch.setattr(module, "_accepts", lambda *arguments: True)
    source = given(0, 1, 0)
    module._centred(SMALL)
    block = source.asked[-1]
    assert max(chance_of(SMALL, d * block) * block * 2**d for d in range(4)) < ENVELOPE


def test_the_outermost_values_can_be_drawn_and_nothing_beyond(given, monkeypatch):
    monkeypatch.setattr(module, "_accepts", lambda *arguments: True)
    half = SMALL // 2
    source = given(0, 1, 0)
    module._centred(SMALL)
    block = source.asked[-1]
    distance, offset = divmod(half, block)
    given(*[1] * distance, 0, 1, offset)
    assert module._centred(SMALL) == half
    given(*[1] * distance, 0, 1, offset + 1, 0, 1, 7)
    assert module._centred(SMALL) == 7
    distance, offset = divmod(half - 1, block)
    given(*[1] * distance, 0, 0, block - 1 - offset)
    assert module._centred(SMALL) == -half
    distance, offset = divmod(half, block)
    given(*[1] * distance, 0, 0, block - 1 - offset, 0, 1, 7)
    assert module._centred(SMALL) == 7


WORD = 2**128


@pytest.mark.parametrize(
    "value, block, distance", [(0, 363, 0), (-17, 363, 0), (300, 363, 0), (-400, 363, 1), (900, 363, 2)]
)
def test_a_value_is_accepted_with_exactly_its_chance(given, value, block, distance):
    """Uniform numbers that agree with the chance in their first 128, 256 or 384 bits and no further."""
    chance = chance_of(SMALL, value) * block * 2**distance / ENVELOPE
    assert 0 < chance < 1
    words = [int(chance * WORD**k) % WORD for k in (1, 2, 3)]
    for agreeing in (0, 1, 2):
        for last, accepted in ((words[agreeing] // 2, True), (words[agreeing] + (WORD - words[agreeing]) // 2, False)):
            source = given(*words[:agreeing], last)
            assert module._accepts(SMALL, value, block, distance) is accepted
            assert source.asked == [WORD] * (agreeing + 1)


@pytest.mark.parametrize("side", [-1, 1])
def test_a_chance_that_is_known_to_its_digits_alone_decides_right(given, monkeypatch, side):
    """`_probability` may be off by 10^-digits: what lies between it and the truth is told apart all the same."""
    value, block, known = 100, 363, chance_of(SMALL, 100)
    monkeypatch.setattr(
        module, "_probability", lambda trials, value, digits: known * (1 + side * Fraction(99, 10 ** (digits + 2)))
    )
    chance = known * block / ENVELOPE
    between = int(chance * (1 + side * Fraction(1, 2 * 10**20)) * WORD)
    given(between, 0)
    assert module._accepts(SMALL, value, block, 0) is (side < 0)


def test_neighbours_of_a_chance_are_told_apart_by_more_digits(given):
    """A uniform number next to the chance, in its first 128 bits, decides nothing until more bits are drawn."""
    value, block, distance = 100, 363, 0
    chance = chance_of(SMALL, value) * block * 2**distance / ENVELOPE
    first = int(chance * WORD)
    for off, accepted in ((-(2**40), True), (-1, True), (1, False), (2**40, False)):
        source = given(first + off, WORD // 2)
        assert module._accepts(SMALL, value, block, distance) is accepted
        assert len(source.asked) == 2


@pytest.mark.parametrize("digits", [20, 60, 100])
@pytest.mark.parametrize("trials, value", [
    (SMALL, 0), (SMALL, 181), (SMALL, -2000), (SMALL, 32_767), (SMALL, -32_768), (SMALL, 32_760), (70_000, 9), (2, 1),
])  # fmt: skip
def test_probabilities_are_right_to_the_digits_asked_for(trials, value, digits):
    relative = module._probability(trials, value, digits) / chance_of(trials, value) - 1
    assert abs(relative) < Fraction(1, 10**digits)


@pytest.mark.parametrize("digits", [20, 60])
@pytest.mark.parametrize("trials, value", [(10**12, 0), (10**12, -700_001), (2**60, 10**9), (10**30, 3 * 10**15)])
def test_probabilities_among_very_many_trials_are_as_right(trials, value, digits):
    with mpmath.workdps(200):
        half = mpmath.mpf(trials // 2)
        counts = (half * 2, -half - value, -half + value)
        log = sum(mpmath.sign(n) * mpmath.loggamma(abs(n) + 1) for n in counts) - trials * mpmath.log(2)
        found = module._probability(trials, value, digits)
        relative = mpmath.mpf(found.numerator) / found.denominator / mpmath.exp(log) - 1
        assert abs(relative) < mpmath.mpf(10) ** -digits


def test_the_coefficients_of_stirlings_series():
    """As they are printed: DLMF 5.11.1."""
    printed = ("1/12", "-1/360", "1/1260", "-1/1680", "1/1188", "-691/360360", "1/156", "-3617/122400")
    assert module._stirling(8) == tuple(map(Fraction, printed))


@pytest.mark.parametrize("digits", [20, 60, 100])
@pytest.mark.parametrize("number", [0, 1, 2, 10, 1000, 32_768])
def test_logarithms_of_factorials_are_right_to_three_digits_more(number, digits):
    with localcontext(prec=digits + 40):
        exact = Decimal(math.factorial(number)).ln()
        assert abs(module._log_factorial(number, digits) - exact) < Decimal(10) ** -(digits + 3)
