"""Binomial noise against Gaussian noise: every step of the proof computed another way, and whole transcripts summed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri_exp
from scipy.stats import binom

from fedbandit.privacy.accounting import gaussian_delta
from fedbandit.privacy.binomial_noise import Cut, deviations_of_chance, fewest_trials, gaussian_std

SIZES = (60, 100, 400, 3_000)
MORE = 100  # whole numbers beyond a cut that are looked at
ROOM = 10, 150  # whole numbers below zero and above the trials that a law is kept for


def cuts(trials: int) -> list[Cut]:
    """Near the mean and far out, as long as the proof covers them."""
    std = math.sqrt(trials * 3 / 16)
    found = []
    for away in (0.4, 1, 2, 3.5, 5, 7):
        low, high = trials // 4 - math.ceil(away * std), trials // 4 + 1 + math.ceil(1.5 * away * std)
        found.append(Cut(trials, low, high))
    return [cut for cut in found if cut.sound]


@lru_cache(maxsize=64)
def replaced(cut: Cut) -> tuple[list[mpmath.mpf], float]:
    """The law X' from its definition, in many digits: its probabilities around the cuts, and the exact total variation
    from the binomial."""
    with mpmath.workdps(60):
        point = [mpmath.mpf(0)] * (cut.high + 2)
        point[0] = mpmath.mpf(3) ** cut.trials / mpmath.mpf(4) ** cut.trials
        for m in range(1, cut.high + 2):
            point[m] = point[m - 1] * (cut.trials - m + 1) / (3 * mpmath.mpf(m))
        fall, rise = point[cut.high + 1] / point[cut.high], point[cut.low - 1] / point[cut.low]
        left = [point[cut.low] * rise**i for i in range(MORE, 0, -1)]
        right = [point[cut.high] * fall**i for i in range(1, MORE + 1)]
        weights = [*left, *point[cut.low : cut.high + 1], *right]
        total = (
            mpmath.fsum(point[cut.low : cut.high + 1])
            + point[cut.low] * rise / (1 - rise)
            + point[cut.high] * fall / (1 - fall)
        )
        first = cut.low - MORE
        known = {first + i: weight / total for i, weight in enumerate(weights)}
        lost = [max(mpmath.mpf(0), point[m] - known.get(m, 0)) for m in range(cut.high + 2)]
        above = 1 - mpmath.fsum(point[: cut.high + 2])  # beyond, X' is at least as likely before it is scaled
        return [weight / total for weight in weights], float(mpmath.fsum(lost) + above * (1 - 1 / total))


@pytest.mark.parametrize("trials", SIZES)
def test_what_is_moved_is_counted(trials: int) -> None:
    """Never less than the total variation between the two laws, and near the cost of the geometric tails."""
    for cut in cuts(trials):
        _, exact = replaced(cut)
        assert 0 < exact <= math.exp(cut.log_moved)


@pytest.mark.parametrize("trials", SIZES)
def test_the_law_that_replaces_a_binomial_is_log_concave_and_as_steep_as_is_said_at_most(trials: int) -> None:
    """Phi^-1 of its distribution function, interpolated, has no larger slope anywhere, tails included."""
    for cut in cuts(trials):
        chances, _ = replaced(cut)
        with mpmath.workdps(50):
            steps = [b / a for a, b in pairwise(chances)]
            assert all(later <= earlier * (1 + mpmath.mpf(10) ** -40) for earlier, later in pairwise(steps))
            below = chances[0] / (steps[0] - 1)  # all that lies before, with the same steps
            above, steepest = 1 - below, 0.0
            for chance in chances:
                ends = (min(below, above), min(below + chance, above - chance))
                if min(ends) > mpmath.mpf(10) ** -40:
                    steepest = max(steepest, float(chance) / min(map(_profile, ends)))
                below, above = below + chance, above - chance
        assert steepest <= cut.slope
        assert cut.slope * math.sqrt(trials * 3 / 16) > 1


def _profile(chance: mpmath.mpf) -> float:
    """The density of a Gaussian at the quantile of a chance of at most a half."""
    quantile = float(ndtri_exp(float(mpmath.log(chance))))
    return math.exp(-(quantile**2) / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("trials", [20, 60, 400])
def test_the_bounds_of_zubkov_and_serov(trials: int) -> None:
    with mpmath.workdps(40):
        below, point = mpmath.mpf(0), mpmath.mpf(3) ** trials / mpmath.mpf(4) ** trials
        for m in range(trials - 2):
            below += point
            point = point * (trials - m) / (3 * mpmath.mpf(m + 1))
            if m and 1 - below > mpmath.mpf(10) ** -30:
                assert _normal(m, trials) <= below <= _normal(m + 1, trials)


def _normal(m: int, trials: int) -> mpmath.mpf:
    x = mpmath.mpf(m) / trials
    divergence = x * mpmath.log(4 * x) + (1 - x) * mpmath.log(4 * (1 - x) / 3)
    return mpmath.ncdf(mpmath.sign(x - 0.25) * mpmath.sqrt(2 * trials * divergence))


# -- the formulas, from the functions that the proof names -------------------------------------------------------------

EDGES = [Cut(100, 2, 48), Cut(100, 24, 26), Cut(101, 2, 49), Cut(3_000, 600, 760), Cut(3_000, 700, 1_400)]


def _divergence_at(m: mpmath.mpf, trials: int) -> mpmath.mpf:
    """D(m) = N KL(m / N, 1/4)."""
    x = m / trials
    return trials * (x * mpmath.log(4 * x) + (1 - x) * mpmath.log(4 * (1 - x) / 3))


@pytest.mark.parametrize("cut", EDGES)
def test_the_slope_is_the_larger_of_the_two_of_the_proof(cut: Cut) -> None:
    """sqrt(N / (m (N - m))) times e^-D'(m - 1) at the lower cut, and times e^D'(m + 1) at the upper one; D' by
    differences."""
    with mpmath.workdps(40):
        n = mpmath.mpf(cut.trials)

        def steepness(m: int) -> mpmath.mpf:
            return mpmath.diff(lambda x: _divergence_at(x, cut.trials), mpmath.mpf(m))

        lower = mpmath.sqrt(n / (cut.low * (n - cut.low))) * mpmath.exp(-steepness(cut.low - 1))
        upper = mpmath.sqrt(n / (cut.high * (n - cut.high))) * mpmath.exp(steepness(cut.high + 1))
        exact = max(lower, upper)
        assert cut.sound
        assert exact * (1 + mpmath.mpf("0.9e-9")) < cut.slope < exact * (1 + mpmath.mpf("1.1e-9"))


def test_either_cut_may_have_the_larger_slope() -> None:
    """Of the cases above: so that neither formula goes unlooked at."""
    assert Cut(3_000, 600, 760).slope > 1.2 * Cut(3_000, 749, 760).slope
    assert Cut(3_000, 700, 1_400).slope > 1.2 * Cut(3_000, 700, 760).slope


@pytest.mark.parametrize("cut", EDGES)
def test_what_is_moved_is_a_sum_of_two_geometric_tails(cut: Cut) -> None:
    """P(A) a / (1 - a) + P(B) b / (1 - b), P from Stirling's formula and from two terms of D, each bounded below."""

    def term(u: mpmath.mpf) -> mpmath.mpf:
        bound = u**2 / 2 if u < 0 else u**2 / (2 + 2 * u / 3)
        assert bound <= (1 + u) * mpmath.log(1 + u) - u
        return bound

    with mpmath.workdps(40):
        n, tails = mpmath.mpf(cut.trials), []
        for m, ratio in (
            (cut.low, cut.low / (n - cut.low + 1) * 3),  # P(m - 1) / P(m)
            (cut.high, (n - cut.high) / (cut.high + 1) / 3),  # P(m + 1) / P(m)
        ):
            moved = n / 4 - m
            lowest = n / 4 * term(-moved / (n / 4)) + 3 * n / 4 * term(moved / (3 * n / 4))
            assert lowest <= _divergence_at(mpmath.mpf(m), cut.trials)
            point = mpmath.sqrt(n / (2 * mpmath.pi * m * (n - m))) * mpmath.exp(-lowest)
            tails.append(point * ratio / (1 - ratio))
        assert cut.log_moved == pytest.approx(float(mpmath.log(mpmath.fsum(tails))), rel=1e-12)


@pytest.mark.parametrize("trials", [200, 801, 1_602])
@pytest.mark.parametrize("log_moved", [-1.0, -3.0, -12.0])
def test_no_cut_is_worth_much_more_than_the_one_that_is_taken(trials: int, log_moved: float) -> None:
    """All pairs of cuts: the best is worth no less, for it is one of them, and hardly more."""
    lows, highs = range(2, trials // 4 + 1), range(trials // 4, trials // 2)
    allowed = (Cut(trials, low, high) for low in lows for high in highs)
    best = max((1 / cut.slope for cut in allowed if cut.sound and cut.log_moved <= log_moved), default=0.0)
    assert 0.97 * best <= gaussian_std(trials, log_moved) <= best


# -- whole transcripts -------------------------------------------------------------------------------------------------


def counted(value: float, trials: int) -> np.ndarray:
    """The law of a count of `value`, rounded at random, with this binomial noise, from -ROOM[0] to trials + ROOM[1]."""
    whole, law = math.floor(value), np.zeros(ROOM[0] + trials + ROOM[1])
    law[ROOM[0] : ROOM[0] + trials + 1] = binom.pmf(np.arange(trials + 1), trials, 0.25)
    return np.asarray((1 - value + whole) * np.roll(law, whole) + (value - whole) * np.roll(law, whole + 1))


def divergence(worlds: Sequence[np.ndarray], epsilon: float) -> float:
    """Hockey-stick, the larger of both directions."""
    factor = math.exp(epsilon)
    return float(max(np.maximum(a - factor * b, 0.0).sum() for a, b in (worlds, worlds[::-1])))


@pytest.mark.parametrize("trials", [200, 900])
@pytest.mark.parametrize(
    "moves", [((0.0, 3.0), (0.0, -2.0)), ((0.3, 3.55), (0.5, -4.2)), ((0.5, 0.9), (0.1, 5.1)), ((0.25, 0.75), (0, 0))]
)
def test_two_counts_hide_no_less_than_gaussians_would(trials: int, moves: tuple[tuple[float, float], ...]) -> None:
    """The joint law of two counts, summed in full, each rounded at random, moved in different directions."""
    laws = [[counted(value, trials) for value in pair] for pair in moves]
    worlds = [np.outer(laws[0][world], laws[1][world]) for world in (0, 1)]
    length = math.hypot(*(b - a for a, b in moves))
    for log_moved in (-4.0, -8.0, -14.0):
        std = gaussian_std(trials, log_moved)
        for epsilon in (0.05, 0.5, 1.0, 2.0) if std else ():
            allowed = 2 * (1 + math.exp(epsilon)) * math.exp(log_moved)
            assert divergence(worlds, epsilon) <= gaussian_delta(length / std, epsilon) + allowed


@pytest.mark.parametrize("shift", [1.0, 2.5, 6.0])
def test_a_gaussian_that_is_wider_by_a_third_would_promise_too_much(shift: float) -> None:
    """A count of very many steps is worth nearly its own deviation, and no more."""
    trials, log_moved = 40_000, -25.0
    one, other = counted(0.4, trials), counted(0.4 + shift * 20, trials)
    std = gaussian_std(trials, log_moved)
    assert std == pytest.approx(math.sqrt(trials * 3 / 16), rel=0.1)
    for epsilon in (0.1, 0.5):
        exact = divergence((one, other), epsilon)
        assert exact <= gaussian_delta(shift * 20 / std, epsilon) + 1e-9
        assert exact > gaussian_delta(shift * 20 / (1.3 * std), epsilon) + 1e-9


def test_counts_that_depend_on_earlier_ones() -> None:
    """The second count of the user is moved one way or the other, or not at all, by what the first one was."""
    trials, log_moved, length = 300, -8.0, 3.0
    std = gaussian_std(trials, log_moved)
    later = {move: (counted(4.0, trials), counted(4.0 + move, trials)) for move in (-length, 0.5, length)}
    first = [counted(0.5, trials), counted(0.5 + length, trials)]
    joint = []
    for world in (0, 1):
        rows = []
        for count, chance in enumerate(first[world]):
            move = length if count % 3 == 0 else -length if count > ROOM[0] + trials / 4 else 0.5
            rows.append(chance * later[move][world])
        joint.append(np.array(rows))
    for epsilon in (0.1, 0.5, 1.0):
        allowed = 2 * (1 + math.exp(epsilon)) * math.exp(log_moved)
        assert divergence(joint, epsilon) <= gaussian_delta(length * math.sqrt(2) / std, epsilon) + allowed


def test_two_numbers_of_one_user_in_one_count_add_up() -> None:
    """Rounded one by one, moved in opposite directions, which is less than a move by both lengths."""
    trials, log_moved = 300, -8.0
    std = gaussian_std(trials, log_moved)
    worlds = []
    for pair in ((0.3, 2.6), (2.55, 1.1)):
        law = counted(pair[0], trials)
        whole, rest = math.floor(pair[1]), pair[1] % 1
        worlds.append((1 - rest) * np.roll(law, whole) + rest * np.roll(law, whole + 1))
    for epsilon in (0.05, 0.3):
        allowed = (1 + math.exp(epsilon)) * math.exp(log_moved)
        assert divergence(worlds, epsilon) <= gaussian_delta((2.25 + 1.5) / std, epsilon) + allowed


# -- how many bits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [3.0, 40.0, 700.0, 1e5, 3e8])
@pytest.mark.parametrize("log_moved", [-10.0, -30.0, -200.0])
def test_enough_bits_and_hardly_more(std: float, log_moved: float) -> None:
    trials = fewest_trials(std, log_moved)
    assert gaussian_std(trials, log_moved) >= std
    if std > 10 * math.sqrt(-2 * log_moved):
        assert gaussian_std(int(trials / 1.3), log_moved) < std
        assert math.sqrt(trials * 3 / 16) < std * (1 + 2 * math.sqrt(-2 * log_moved) / std + 2e-4)


@pytest.mark.parametrize(
    ("std", "log_moved", "trials", "worth"),
    [
        (3.0, -2.0, 143, 3.313499781836526),
        (4.0, -60.0, 1_382, 5.246220152162442),
        (12.5, -9.0, 1_742, 13.702717889496167),
        (40.0, -25.0, 13_111, 41.53446321545941),
        (700.0, -30.0, 2_683_292, 700.1216711580258),
        (2500.0, -18.0, 33_519_616, 2500.0195265240636),
        (100000.0, -45.0, 53_345_551_822, 100000.00131251707),
        (3.0, -200.0, 4_331, 8.579287919976858),
    ],
)
def test_versions_agree_on_the_bits(std: float, log_moved: float, trials: int, worth: float) -> None:
    """Every silo and the analyzer compute b for themselves, from the plan: a version that took another cut, which would
    be as true, would decode the others' counts wrongly."""
    assert fewest_trials(std, log_moved) == trials
    assert gaussian_std(trials, log_moved) == pytest.approx(worth, rel=1e-12)


@pytest.mark.parametrize(
    ("trials", "log_moved", "worth"),
    [(100, -1.2, 3.0548117751076336), (107, -1.3, 3.0624641412765974), (100, -4.7, 1.743837172667789)],
)
def test_versions_agree_on_what_few_bits_are_worth(trials: int, log_moved: float, worth: float) -> None:
    assert gaussian_std(trials, log_moved) == pytest.approx(worth, rel=1e-12)


@pytest.mark.parametrize(
    ("log_chance", "deviations"), [(-2.0, 2.0), (-8.0, 4.0), (-1.1, math.sqrt(2.2)), (0.5, math.sqrt(2))]
)
def test_a_tail_of_so_many_deviations(log_chance: float, deviations: float) -> None:
    """By e^(-z^2 / 2); never fewer than the square root of 2."""
    assert deviations_of_chance(log_chance) == pytest.approx(deviations)


def test_too_few_bits_are_worth_nothing() -> None:
    assert gaussian_std(40, -200.0) == 0.0
    assert gaussian_std(0, -5.0) == 0.0


@pytest.mark.parametrize("cut", [Cut(100, 1, 30), Cut(100, 25, 30), Cut(100, 10, 25), Cut(100, 10, 49)])
def test_cuts_that_the_proof_does_not_cover(cut: Cut) -> None:
    assert not cut.sound
