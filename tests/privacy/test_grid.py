"""Noise on a grid: the bounds against exact probabilities, and plans whose grid is too coarse for their noise."""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales, width
from fedbandit.federation.exact.exact_noise import ExactNoise
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta, gaussian_epsilon
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.grid import LEAST, SPARE, eta, slack, widened
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import every

DIGITS = 60
Law = dict[int, Decimal]  # exact probabilities, to 60 digits


def discrete(variance: Fraction) -> Law:
    """The discrete Gaussian of this parameter squared, as far out as 60 digits can tell."""
    with localcontext() as context:
        context.prec = DIGITS
        reach = math.ceil(math.sqrt(2 * DIGITS * math.log(10) * float(variance))) + 1
        twice = Decimal(2 * variance.numerator) / Decimal(variance.denominator)
        weights = {k: (-Decimal(k * k) / twice).exp() for k in range(-reach, reach + 1)}
        total = sum(weights.values())
        return {k: weight / total for k, weight in weights.items()}


def added(one: Law, other: Law) -> Law:
    """The law of the sum of two independent draws."""
    with localcontext() as context:
        context.prec = DIGITS
        out: Law = {}
        for i, p in one.items():
            for j, q in other.items():
                out[i + j] = out.get(i + j, Decimal(0)) + p * q
        return out


def many(law: Law, times: int) -> Law:
    total = law
    for _ in range(times - 1):
        total = added(total, law)
    return total


def exact_delta(law: Law, shift: int, epsilon: float) -> float:
    """The smallest delta at which noise of this law hides a move by `shift` whole steps."""
    with localcontext() as context:
        context.prec = DIGITS
        factor = Decimal(epsilon).exp()
        gaps = (p - factor * law.get(k - shift, Decimal(0)) for k, p in law.items())
        return float(sum((gap for gap in gaps if gap > 0), Decimal(0)))


def alike(one: Law, other: Law, limit: float, below: float = 1e-30) -> float:
    """The largest |log ratio| of two laws where either has any mass to speak of, over that of the limit eta."""
    ratios = [abs(math.log(p / other[k])) for k, p in one.items() if p > below and k in other]
    return max(ratios) / math.log((1 + limit) / (1 - limit))


@pytest.mark.parametrize("r", [0.4, 0.5, 0.6, 0.8])
def test_sums_over_a_grid_are_as_close_to_the_integral_as_claimed(r: float) -> None:
    """Poisson summation: the bound holds wherever the centre lies, and is reached at a whole number."""
    grid = np.arange(-60, 61)
    sums = [np.exp(-((grid - m) ** 2) / (2 * r**2)).sum() / (r * math.sqrt(2 * math.pi)) for m in np.linspace(0, 1, 33)]
    assert max(abs(one - 1) for one in sums) <= eta(r) * (1 + 1e-9)
    assert sums[0] - 1 == pytest.approx(eta(r), rel=1e-6)


@pytest.mark.parametrize(("s", "r"), [(0.8, 0.5), (1.0, 0.6), (1.5, 0.7), (3.0, 0.6)])
def test_one_discrete_gaussian_is_a_continuous_one_with_less_variance_rounded(s: float, r: float) -> None:
    """z = N(0, s^2 - r^2), then a discrete Gaussian around z: integrated, it is alike to eta(r)."""
    left = s**2 - r**2
    z = np.arange(-40, 40, 1 / 256)
    weights = np.exp(-(z**2) / (2 * left)) / math.sqrt(2 * math.pi * left) / 256  # trapezoids: exact for these
    grid = np.arange(-60, 61)
    around = np.exp(-((grid[:, None] - z) ** 2) / (2 * r**2))
    rounded = (around / around.sum(axis=0)) @ weights
    wanted = discrete(Fraction(s) ** 2)
    found = max(abs(math.log(rounded[k + 60] / float(wanted[k]))) for k in range(-int(5 * s), int(5 * s) + 1))
    limit = math.log((1 + eta(r)) / (1 - eta(r)))
    assert found <= limit
    assert found > 1e-9  # not zero: the bound is about something that floats can show


@pytest.mark.parametrize("a", [Fraction(1, 2), Fraction(4, 5), Fraction(1)])
@pytest.mark.parametrize("b", [Fraction(1, 2), Fraction(1), Fraction(3, 2)])
def test_the_sum_of_two_is_alike_to_one(a: Fraction, b: Fraction) -> None:
    both = a**2 + b**2
    limit = eta(math.sqrt(a**2 * b**2 / both))
    if limit < 1:
        assert alike(added(discrete(a**2), discrete(b**2)), discrete(both), limit) <= 1
    wider = eta(math.sqrt(2 * a**2 * b**2 / both))  # twice the c^2 would be too good to be true
    assert alike(added(discrete(a**2), discrete(b**2)), discrete(both), wider) > 1


@pytest.mark.parametrize("silos", [2, 3, 6])
def test_adding_up_one_by_one_costs_one_factor_each(silos: int) -> None:
    s = Fraction(1)
    limit = eta(math.sqrt(1 / 2))
    together = alike(many(discrete(s), silos), discrete(silos * s), limit)
    assert together <= silos - 1


@pytest.mark.parametrize("silos", [1, 2, 3])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_the_narrowest_noise_allowed_keeps_the_promise_of_the_continuous_one(silos: int, shift: int) -> None:
    """Exactly, at every epsilon: what is drawn is no worse than the Gaussian that was accounted for."""
    law = many(discrete(Fraction(LEAST) ** 2 + Fraction(SPARE)), silos)
    assert widened(LEAST, 1.0) ** 2 == pytest.approx(LEAST**2 + SPARE)
    mu = shift / (LEAST * math.sqrt(silos))
    for epsilon in (0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0):
        delta = gaussian_delta(mu, epsilon)
        assert exact_delta(law, shift, epsilon) <= delta * (1 + 1e-12)
        if epsilon <= 0.1:  # and not much better either
            assert exact_delta(law, shift, epsilon) > 0.3 * delta


def test_what_is_left_over_is_counted_and_nothing() -> None:
    assert eta(math.sqrt(SPARE)) < 1e-67
    assert eta(math.sqrt(SPARE)) == pytest.approx(2 * math.exp(-2 * math.pi**2 * SPARE), rel=1e-12, abs=0.0)
    assert slack(100, 3) == pytest.approx(2 * 100 * 4 * 3 * eta(math.sqrt(SPARE)), rel=1e-12, abs=0.0)
    often = plan(20, "local", "batches", privacy=Privacy(1.0, 1e-5, participations=50)).guarantee.steps[-1]
    assert f"adds at most {_above(slack(50 * width(2), 1000))} to epsilon" in often  # more visits than releases
    factor = math.log1p(2 * 0.1 / (1 - 0.1))  # (1 + eta) / (1 - eta) at eta = 0.1: 3 eta is enough
    assert factor <= 3 * 0.1


def _above(number: float) -> str:
    """One digit, rounded up: what is said to be the most must not be less."""
    exponent = math.floor(math.log10(number))
    return f"{math.ceil(number / 10.0**exponent) * 10.0**exponent:.0e}"


def test_what_silos_release_to_themselves_is_counted_too() -> None:
    alone = Plan(4, 30, 2, Privacy(1.0, 1e-5), schedule=every(5))
    for made, numbers in ((alone, 6 * width(2)), (alone.changed(personal=(0,)), 2 * 6 * width(2))):
        assert f"adds at most {_above(slack(numbers, 4))} to epsilon" in made.guarantee.steps[-1]


def test_a_fifth_of_a_step_breaks_the_promise() -> None:
    """One alone: at delta = 1e-6 its epsilon is above the continuous Gaussian's. A thousand together: ten times it."""
    law = discrete(Fraction(1, 25))
    claimed = gaussian_epsilon(5.0, 1e-6)
    assert exact_delta(law, 1, claimed) > 3e-6
    total = law
    cut = {k: p for k, p in law.items() if abs(k) <= 3}  # the rest is below 1e-40
    for _ in range(999):
        total = {k: p for k, p in added(total, cut).items() if abs(k) <= 12}
    claimed = gaussian_epsilon(1 / (0.2 * math.sqrt(1000)), 1e-5)
    assert claimed == pytest.approx(0.57, abs=0.01)
    assert float(total[0]) > 0.99  # the data, in the clear
    assert exact_delta(total, 1, 5.0) > 0.4


# -- plans ------------------------------------------------------------------------------------------------------------


def plan(bits: int, trust: str = "secure-sum", mechanism: str = "tree", silos: int = 1000, **fields: object) -> Plan:
    budget = {"privacy": Privacy(1.0, 1e-5), "schedule": every(5), **fields}
    return Plan(silos, 20, 2, trust=trust, mechanism=mechanism, bits=bits, **budget)  # type: ignore[arg-type]


CASES: dict[str, dict[str, object]] = {
    "tree": {},
    "batches": {"mechanism": "batches"},
    "toeplitz, many more silos": {"mechanism": "toeplitz", "silos": 10**9},
    "wide": {"schedule": every(20), "silos": 100_000},
    "add-remove": {"privacy": Privacy(1.0, 1e-5, "add-remove")},
    "weighted": {"ratio": 16.0, "privacy": Privacy(4.0, 1e-3)},
    "silo": {"trust": "silo", "privacy": Privacy(30.0, 0.1)},
    "central": {"trust": "central", "privacy": Privacy(30.0, 0.1)},
    "local": {"trust": "local", "mechanism": "batches", "privacy": Privacy(30.0, 0.1, participations=3)},
    "silo, theorem": {"trust": "silo", "calibration": "paper", "privacy": Privacy(200.0, 0.1)},
    "silo, published": {"trust": "silo", "calibration": "published", "privacy": Privacy(200.0, 0.1)},
    "shuffle, published": {"trust": "shuffle", "calibration": "published", "privacy": Privacy(5.0, 0.1)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_grid_too_coarse_is_refused_and_the_bits_that_would_do_are_named(name: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        plan(1, **CASES[name])  # type: ignore[arg-type]
    assert refused.value.field == "bits"
    named = re.match(
        r"bits must be at least (\d+) here, got 1: noise of \S+ must be at least 4 grid steps", str(refused.value)
    )
    assert named is not None
    bits = int(named[1])
    if bits > 2:  # one fewer will not do
        with pytest.raises(ArgumentError, match=rf"^bits must be at least {bits} here"):
            plan(bits - 1, **CASES[name])  # type: ignore[arg-type]
    made = plan(bits, **CASES[name])  # type: ignore[arg-type]
    drawn = made.protocol.drawn_scales.min()
    assert math.sqrt(LEAST**2 + SPARE) <= drawn < math.sqrt((2.01 * LEAST) ** 2 + SPARE)


@pytest.mark.parametrize("mechanism", ["tree", "toeplitz"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_every_number_is_drawn_with_the_spare_variance_on_top(mechanism: str, calibration: Calibration) -> None:
    """What the accounting asks for is what is left when the spare steps are taken off; the guarantee says so."""
    coarse, fine = (plan(b, "silo", mechanism, privacy=Privacy(6.0, 1e-3), calibration=calibration) for b in (5, 36))
    step = 2.0**-coarse.protocol.release_bits
    rounding = coarse.request.shift.total / fine.request.shift.total if calibration == "exact" else 1.0
    left = np.sqrt(np.array(coarse.protocol.scales) ** 2 - SPARE * step**2)
    np.testing.assert_allclose(left, np.array(fine.protocol.scales) * rounding, rtol=1e-9)
    said = coarse.guarantee.steps[-1] if coarse.guarantee.promised else ""
    if said:
        bits, wide, cost = re.search(
            r"grid 2\^-(\d+), .* least (\S+) steps wide .* at most (\S+) to eps", said
        ).groups()  # type: ignore[union-attr]
        assert int(bits) == coarse.protocol.release_bits
        assert float(wide) == pytest.approx(coarse.protocol.drawn_scales.min(), rel=0.01)
        assert float(cost) == pytest.approx(slack(4 * width(2), 1000), rel=0.5, abs=0.0)


def test_live_noise_at_the_narrowest_grid_has_its_deviation_and_never_vanishes() -> None:
    made = plan(4)
    scales = made.protocol.drawn_scales
    assert scales.min() < 6
    draws = ExactNoise().gaussian(scales, (4_000,))
    ratio = draws.std(axis=0) / scales
    assert np.abs(ratio - 1).max() < 6 / math.sqrt(2 * 4_000)  # six standard errors
    assert (draws == 0).mean() < 0.12


def test_four_steps_are_wide_enough_and_no_more_bits_are_asked_for_than_it_takes() -> None:
    """Noise that a theorem fixes: it does not shrink on a finer grid, so twice as fine is enough for half as wide."""
    request = plan(10, "silo", calibration="published").request
    step = 2.0 ** -(10 + request.encoder.fraction_bits)
    assert request.on_grid(Scales.flat(4 * step)).bias == pytest.approx(math.sqrt(16 + SPARE) * step, rel=1e-12)
    for steps, bits in ((3.999, 11), (2.0, 11), (1.999, 12), (1.7, 12), (1.0, 12), (0.999, 13)):
        with pytest.raises(ArgumentError, match=rf"^bits must be at least {bits} here, got 10"):
            request.on_grid(Scales.flat(steps * step))
