"""The amplification lemma: transcribed again, its conditions, and what it certifies."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from fedbandit.plan import Plan
from fedbandit.privacy.accounting import advanced_composition_share, gaussian_delta, theorem_ldp_sigma
from fedbandit.privacy.amplification import (
    Amplified,
    _for_slack,
    largest_epsilon,
    local_budget,
    published_sdp_sigma,
    shuffled_epsilon,
    theorem_sdp,
    theorem_sdp_constants_one,
)
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import every

SILOS, ROUNDS, LEVELS = 100, 10_000, 9  # the paper's synthetic instance, K = 400


def lemma(e0: float, d0: float, N: int, n: int, slack: float, maths: Any = math) -> tuple[float, float]:
    """epsilon^r and delta^r, as printed."""
    tilt = (maths.exp(e0) - 1) / (maths.exp(e0) + 1)
    bracket = 8 * maths.sqrt(maths.exp(n * e0) * maths.log(4 / slack)) / maths.sqrt(N) + 8 * maths.exp(n * e0) / N
    epsilon = maths.log(1 + tilt * bracket)
    return epsilon, tilt * slack + N * (maths.exp(epsilon) + 1) * (1 + maths.exp(-e0) / 2) * d0


def precisely(e0: float, d0: float, N: int, n: int, slack: float) -> tuple[float, float]:
    """The lemma, with so many digits that nothing is lost to rounding."""
    with mpmath.workdps(40):
        epsilon, delta = lemma(mpmath.mpf(e0), mpmath.mpf(d0), N, n, mpmath.mpf(slack), mpmath)
        return float(epsilon), float(delta)


@pytest.mark.parametrize("silos", [50, 100, 5000])
@pytest.mark.parametrize("points", [1, 20])
@pytest.mark.parametrize("share", [0.05, 0.7, 1.0])
def test_shuffled_epsilon_is_the_lemmas(silos: int, points: int, share: float) -> None:
    slack = 0.2
    top = math.log(silos / (16 * math.log(2 / slack))) / points
    local = top * share
    assert shuffled_epsilon(local, silos, points, slack) == pytest.approx(lemma(local, 0.0, silos, points, slack)[0])


def test_outside_its_condition_the_lemma_says_nothing() -> None:
    with pytest.raises(ValueError, match=r"^silos must satisfy local epsilon <= ln\(silos / \(16 ln\(2/slack\)\)\)"):
        shuffled_epsilon(0.5, 100, 10, 0.2)
    with pytest.raises(ValueError, match=r"^silos must satisfy"):
        shuffled_epsilon(1e-9, 10, 1, 0.2)  # too few silos for any local epsilon


def test_more_silos_hide_better() -> None:
    shuffled = [shuffled_epsilon(0.01, silos, 10, 0.1) for silos in (100, 400, 1600, 6400)]
    ratios = np.array(shuffled[:-1]) / shuffled[1:]
    assert (ratios > 1.9).all()  # 1 / sqrt(silos), and a little more while 8/N matters
    assert (ratios < 2.6).all()


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-5, 1e-6), (1e-4, 1e-5), (3e-5, 1e-3)])
def test_the_local_budget_meets_the_lemma_and_is_nearly_the_best(epsilon: float, delta: float) -> None:
    budget = local_budget(epsilon, delta, SILOS, 1000)
    assert 0 < budget.local_epsilon <= 1 / 1000
    slacks = [slack for slack in np.geomspace(1e-9, 1, 4000) if 16 * math.log(2 / slack) < SILOS]
    kept = []
    for slack in slacks:
        try:
            shuffled = shuffled_epsilon(budget.local_epsilon, SILOS, 1000, slack)
        except ValueError:
            continue
        certified = lemma(budget.local_epsilon, budget.local_delta, SILOS, 1000, slack)
        assert shuffled == pytest.approx(certified[0])
        kept.append(certified[0] <= epsilon * 1.002 and certified[1] <= delta * 1.002)
    assert any(kept)
    generous = budget._replace(local_epsilon=budget.local_epsilon * 1.02)
    for slack in slacks:  # two per cent more local epsilon at the same delta_0: no slack certifies it
        if generous.local_epsilon <= math.log(SILOS / (16 * math.log(2 / slack))) / 1000:
            certified = lemma(generous.local_epsilon, generous.local_delta, SILOS, 1000, slack)
            assert certified[0] > epsilon or certified[1] > delta


@pytest.mark.parametrize("points", [1, 30])
@pytest.mark.parametrize("silos", [40, 100, 3000])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
@pytest.mark.parametrize("slack", [1e-3, 0.2, 1.0])
def test_at_each_slack_the_lemma_is_used_up_and_never_exceeded(
    points: int, silos: int, share: float, slack: float
) -> None:
    reach = math.log(silos / (16 * math.log(2 / slack))) if silos > 16 * math.log(2 / slack) else 0.0
    top = min(1.0, reach) / points
    if top <= 0:
        assert _for_slack(1e-3, 0.1, silos, points, slack) is None
        return
    local = share * top
    epsilon, least = precisely(local, 0.0, silos, points, slack)
    for delta in (1.0001 * least, 3 * least):
        budget = _for_slack(epsilon, delta, silos, points, slack)
        assert budget is not None
        assert (budget.epsilon, budget.delta) == (epsilon, delta)
        assert local * (1 - 1e-11) <= budget.local_epsilon <= local
        certified = precisely(budget.local_epsilon, budget.local_delta, silos, points, slack)
        assert epsilon * (1 - 1e-10) <= certified[0] <= epsilon  # in doubt, below
        assert certified[1] == pytest.approx(delta, rel=1e-10)
    assert _for_slack(epsilon, 0.9999 * least, silos, points, slack) is None  # the slack alone is above delta
    beyond = precisely(top, 0.0, silos, points, slack)[0] * (1 + 1e-9)
    assert _for_slack(beyond, 0.5, silos, points, slack) is None  # nor does it say anything beyond its condition


@pytest.mark.parametrize("epsilon", [1e-12, 1e-16, 1e-20])
@pytest.mark.parametrize(("silos", "points", "slack"), [(3000, 30, 0.2), (40, 1, 1.0), (10**9, 1, 1e-6)])
def test_next_to_no_epsilon_has_its_local_mechanism_too(epsilon: float, silos: int, points: int, slack: float) -> None:
    """However few digits of the largest local epsilon that the lemma speaks of are left."""
    budget = _for_slack(epsilon, 0.1, silos, points, slack)
    assert budget is not None
    certified = precisely(budget.local_epsilon, budget.local_delta, silos, points, slack)
    assert epsilon * (1 - 1e-10) <= certified[0] <= epsilon
    assert certified[1] == pytest.approx(0.1, rel=1e-10)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-5, 1e-6), (1e-4, 1e-5)])
def test_of_all_slacks_the_one_with_the_least_noise_is_taken(epsilon: float, delta: float) -> None:
    found = [_for_slack(epsilon, delta, SILOS, 1000, float(slack)) for slack in np.geomspace(1e-12, 1, 400)]
    least = min(one.sigma for one in found if one is not None)
    assert local_budget(epsilon, delta, SILOS, 1000).sigma == pytest.approx(least, rel=1e-12)


def test_the_noise_of_a_local_mechanism_is_the_classic_one() -> None:
    assert Amplified(1.0, 0.1, 0.25, 1e-6).sigma == pytest.approx(math.sqrt(2 * math.log(1.25e6)) / 0.25, rel=1e-14)


@pytest.mark.parametrize(
    ("silos", "rounds", "levels", "delta"),
    [(100, 10_000, 9, 1e-4), (40, 30, 4, 0.1), (7, 2, 3, 0.5), (9, 1_000, 2, 0.5)],
)
def test_the_formulas_without_a_proof_are_as_they_are_printed(
    silos: int, rounds: int, levels: int, delta: float
) -> None:
    for epsilon in (0.3, 2.0):
        read = math.sqrt(2 * levels * math.log(1 / delta) * math.log(silos * levels / delta) / silos) / epsilon
        expected = read * math.sqrt(abs(math.log(levels / (delta * rounds))))
        assert theorem_sdp_constants_one(epsilon, delta, silos, rounds, levels) == pytest.approx(expected, rel=1e-13)
        expected = read / math.sqrt(2) * math.sqrt(math.log(1 + levels / (delta * rounds)))
        assert published_sdp_sigma(epsilon, delta, silos, rounds, levels) == pytest.approx(expected, rel=1e-13)


def test_the_local_mechanism_is_as_private_as_the_lemma_needs() -> None:
    budget = theorem_sdp(1e-3, 1e-4, SILOS, ROUNDS, LEVELS)
    assert gaussian_delta(1 / budget.sigma, budget.local_epsilon) <= budget.local_delta
    # the lemma's step: n times the shift is n times epsilon at the same delta
    assert gaussian_delta(ROUNDS / budget.sigma, ROUNDS * budget.local_epsilon) <= budget.local_delta
    share = advanced_composition_share(1e-3 / 2, 1e-4 / 2, LEVELS)
    assert (budget.epsilon, budget.delta) == pytest.approx(share)


def test_the_numbers_at_the_papers_instance() -> None:
    epsilon, delta = 1e-3, 1e-4
    assert theorem_sdp(epsilon, delta, SILOS, ROUNDS, LEVELS).sigma == pytest.approx(290_000, rel=0.01)
    assert theorem_sdp_constants_one(epsilon, delta, SILOS, ROUNDS, 1 + math.log2(400)) == pytest.approx(
        8_044, rel=0.001
    )
    assert theorem_ldp_sigma(epsilon, delta, 1 + math.log2(400)) == pytest.approx(27_600, rel=0.005)
    privacy = Privacy(epsilon, delta, "add-remove")
    silo = Plan(SILOS, ROUNDS, 10, privacy, "silo", "tree", every(25), bits=16)
    assert silo.protocol.scales.bias == pytest.approx(3_978, rel=0.001)
    together = silo.changed(trust="secure-sum", colluding=0)
    assert together.protocol.scales.bias == pytest.approx(398, rel=0.001)
    against_any_silo = together.changed(colluding=None).protocol.scales.bias
    assert against_any_silo == pytest.approx(together.protocol.scales.bias * math.sqrt(100 / 99))


def test_the_largest_epsilon_it_certifies() -> None:
    limit = largest_epsilon(1e-4, SILOS, ROUNDS, LEVELS)
    best = 0.0  # by brute force: the largest epsilon of one release within its share of delta, with no local delta
    for slack in np.geomspace(1e-4, 1, 400):
        top = min(1.0, math.log(max(1.0, SILOS / (16 * math.log(2 / slack))))) / ROUNDS
        for local in np.linspace(0, top, 50)[1:]:
            epsilon, delta = lemma(local, 0.0, SILOS, ROUNDS, slack)
            best = max(best, epsilon if delta < 1e-4 / 2 / (2 * LEVELS) else 0.0)
    composed = 2 * best * 2 * math.sqrt(2 * LEVELS * math.log(2 / (1e-4 / 2)))
    assert 0.87 * composed < limit <= composed * 1.01  # found on a grid of 12 per cent
    assert 3e-3 < limit < 4.5e-3
    theorem_sdp(limit, 1e-4, SILOS, ROUNDS, LEVELS)
    with pytest.raises(ValueError, match=r"^epsilon must be smaller for amplification by shuffling"):
        theorem_sdp(limit * 1.3, 1e-4, SILOS, ROUNDS, LEVELS)
    assert largest_epsilon(1e-4, 10, ROUNDS, LEVELS) == 0.0  # ten silos hide nothing


def test_a_plan_outside_the_theorem_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match=r"^epsilon must be at most about 0\.00\d+ for trust 'shuffle'") as error:
        Plan(SILOS, ROUNDS, 10, Privacy(1.0, 1e-4), "shuffle", "tree", every(25), calibration="paper")
    assert "\n" not in str(error.value)
    refused: list[tuple[dict[str, object], str]] = [
        ({"privacy": Privacy(1e-3, 1e-4, participations=2)}, "participations must be 1 for trust 'shuffle'"),
        ({"privacy": Privacy(1e-3, 1e-4, silos_per_user=2)}, "silos_per_user must be 1 for trust 'shuffle'"),
        ({"silos": 10}, "silos must be more than 10 for trust 'shuffle': no epsilon is in reach"),
    ]
    good = Plan(SILOS, ROUNDS, 10, Privacy(1e-3, 1e-4), "shuffle", "tree", every(25), calibration="paper", bits=16)
    for fields, message in refused:
        with pytest.raises(ValueError, match=f"^{message}"):
            good.changed(**fields)
