"""Every number in a printed proof, computed again by hand, and every sentence that is there only in some cases."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_epsilon, gaussian_sigma
from fedbandit.privacy.amplification import theorem_sdp
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.protocol.vector_coding import TheoremCoding
from fedbandit.schedule import Schedule, adaptive, clock, every, growing

NUMBER = r"(-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?)"


def numbers(text: str, pattern: str) -> list[float]:
    """What stands where the pattern has a #."""
    found = re.search(re.escape(pattern).replace(r"\#", NUMBER), text)
    assert found is not None, f"{pattern!r} is not in {text}"
    return [float(one.replace(",", "")) for one in found.groups()]


def plan(**fields: object) -> Plan:
    shared = {"privacy": Privacy(1.0, 1e-5), "trust": "silo", "schedule": every(5), **fields}
    return Plan(6, 60, 3, **shared)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", ["tree", "toeplitz", "batches", "blt", "optimal"])
@pytest.mark.parametrize(
    ("adjacency", "centre", "ratio", "shift"),
    [
        ("replace-one", 0.0, 1.0, math.sqrt(4.5)),
        ("add-remove", 0.0, 1.0, math.sqrt(2)),
        ("replace-one", 0.5, 1.0, math.sqrt(2 + 0.5 + 1 / 32)),
        ("replace-one", 0.25, 4.0, math.sqrt(4 * 4 * 0.75**2)),
    ],
)
def test_one_round_and_the_noise_that_hides_it(
    mechanism: str, adjacency: str, centre: float, ratio: float, shift: float
) -> None:
    made = plan(mechanism=mechanism, privacy=Privacy(1.0, 1e-5, adjacency), centre=centre, ratio=ratio)  # type: ignore[arg-type]
    text, matrix = str(made.guarantee), made.encoder.coefficients
    column = float(np.linalg.norm(matrix, axis=0).max())
    touches = int(np.count_nonzero(matrix, axis=0).max())
    exact, entering, ratios, rounding, bits = numbers(
        text,
        f"moves a batch sum (bias and covariance together) by at most # ({adjacency}, rewards entering as y - #, "
        "covariance and bias noise in the ratio #:1), and by # more for rounding to 2^-#.",
    )
    assert (entering, ratios, bits) == (centre, math.sqrt(ratio), 20)
    assert exact == pytest.approx(shift, abs=1e-5)
    twice = 2 if adjacency == "replace-one" else 1
    rounded = twice * math.sqrt(ratio * 3 + 9) * 2.0**-21
    if mechanism == "blt":  # its buffers are rounded, too: half a unit of 2^-30, in either world, for each product
        rounded += (2 + matrix[-1, :-1].sum()) * math.sqrt(ratio * 3 + 9) * 2.0**-30 * math.sqrt(touches)
    assert rounding == pytest.approx(rounded, rel=0.05)
    enters, size, weights = numbers(
        text, "A batch enters # of # releases, with squared weights that add up to at most #"
    )
    assert (enters, size) == (touches, 12)
    assert weights == pytest.approx(column**2, abs=1e-4)
    one, norm, sensitivity = numbers(text, f"({mechanism}): sensitivity # x # = #.")
    assert (one, norm) == pytest.approx((shift + rounded, column), abs=1e-4)
    assert sensitivity == pytest.approx(one * norm, rel=1e-4)
    sigma = gaussian_sigma(1.0, 1e-5) * column * (shift + rounded)
    diagonal, off, bias, mu = numbers(
        text,
        "deviation # on the diagonal, # off it and # on the bias makes the transcript mu-GDP with mu = # (Gaussians",
    )
    assert (diagonal, off, bias) == pytest.approx((sigma, sigma / math.sqrt(2), sigma / math.sqrt(ratio)), rel=1e-4)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(1.0, abs=1e-4)
    assert "With that mu it is exactly (1, 1e-05)-DP (analytic Gaussian)." in text
    for absent in (
        "A user takes part",
        "act eagerly",
        "The schedule looks",
        "A user visits",
        "point in partly opposite",
    ):
        assert absent not in text


def test_several_rounds_of_a_user() -> None:
    text = str(plan(privacy=Privacy(1.0, 1e-5, participations=3)).guarantee)
    most, times, one, total = numbers(text, "in at most # rounds of a silo, at worst all in one batch: # x # = #.")
    assert (most, times) == (3, 3)
    assert one == pytest.approx(math.sqrt(4.5), abs=1e-4)
    assert total == pytest.approx(3 * one, abs=1e-4)


@pytest.mark.parametrize(
    ("acting", "said"), [("lazy", "at worst all in one batch: # x # = #."), ("eager", "#: # x # = #.")]
)
def test_on_a_coarse_grid_several_rounds_are_rounded_as_often(acting: str, said: str) -> None:
    """2^-7 for a number of a replaced pair: 0.027 in all, on top of sqrt 4.5 for each round."""
    made = plan(privacy=Privacy(1.0, 1e-5, participations=3), mechanism="tree", bits=7, acting=acting)
    times, one, total = numbers(str(made.guarantee), said)[-3:]
    assert one == pytest.approx(math.sqrt(4.5) + math.sqrt(12) * 2.0**-7, abs=1e-5)
    assert total == pytest.approx(times * one, rel=1e-3 if acting == "eager" else 1e-5)


@pytest.mark.parametrize("visits", [1, 2, 3])
def test_several_silos_of_a_user_are_said_how_they_add_up(visits: int) -> None:
    privacy = Privacy(1.0, 1e-5, silos_per_user=visits)
    apart, together = (str(plan(privacy=privacy, trust=trust).guarantee) for trust in ("silo", "central"))
    for text, how in ((apart, f"compose in squares, to sqrt {visits} times"), (together, f"add up to {visits} times")):
        said = f"A user visits at most {visits} silos; the shifts {how} the sensitivity."
        assert (said in text) == (visits > 1)
        assert ("the shifts" in text) == (visits > 1)


@pytest.mark.parametrize("participations", [1, 3])
@pytest.mark.parametrize(("schedule", "largest"), [(growing(1.5), 19), (every(25), 25), (every(60), 60)], ids=str)
def test_a_whole_batch_that_acts_eagerly(schedule: Schedule, largest: int, participations: int) -> None:
    made = plan(acting="eager", privacy=Privacy(1.0, 1e-5, "add-remove", participations), schedule=schedule)
    assert largest == max(np.diff((0, *made.times)))
    users, most, times, one, total = numbers(
        str(made.guarantee),
        "the actions of all # users of every batch that the user is in. The number of such batches is at most #: "
        "# x # = #.",
    )
    assert (users, most, times) == (largest, participations, participations * largest)
    assert one == pytest.approx(math.sqrt(4.5), abs=1e-4)  # another's action: a replacement
    assert total == pytest.approx(times * one, rel=1e-3)
    assert "A user takes part in at most" not in str(made.guarantee)


def test_the_share_of_a_private_rule() -> None:
    made = plan(mechanism="tree", schedule=adaptive(3.0, private=True))
    assert numbers(str(made.guarantee), "looks at a noisy covariance of its own, which spends #% of mu^2") == [50]


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.2, 0.1)])
def test_theorem_ldp_in_its_own_words(epsilon: float, delta: float) -> None:
    """zCDP of kappa p-sums, at half of delta for each of the two streams."""
    text = str(plan(mechanism="tree", calibration="paper", privacy=Privacy(epsilon, delta)).guarantee)
    size, kappa, stream, half, sigma = numbers(
        text,
        "Theorem LDP: each p-sum is 1/(2 sigma_0^2)-zCDP and a datum enters kappa = 1 + log2 # = # of them, so each of "
        "the two streams is (#, #)-DP at sigma_0 = #.",
    )
    assert (size, half) == (12, delta / 2)
    assert kappa == pytest.approx(1 + math.log2(12), abs=1e-3)
    assert sigma == pytest.approx(math.sqrt(8 * kappa * (math.log(2 / delta) + epsilon)) / epsilon, rel=1e-3)
    rho = kappa / (2 * sigma**2)
    assert stream == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1 / half)), rel=1e-3)
    assert stream <= epsilon / 2
    again, exact, at = numbers(text, "At sigma_0 = # this is exactly (#, #)-DP, within the budget.")
    assert (again, at) == (sigma, delta)
    assert exact == pytest.approx(gaussian_epsilon(math.sqrt(4 * 4.5) / sigma, delta), rel=1e-3)  # 4 levels
    other = str(plan(mechanism="batches", calibration="paper", privacy=Privacy(epsilon, delta)).guarantee)
    assert numbers(other, "The noise is Theorem LDP's for a tree over # releases: sigma_0 = #.") == [12, sigma]


def test_theorem_sdp_in_its_own_words() -> None:
    made = Plan(2000, 20, 2, Privacy(1e-3, 1e-4), "shuffle", "tree", every(5), calibration="paper")
    text, local = str(made.guarantee), theorem_sdp(1e-3, 1e-4, 2000, 20, 3)
    log = math.log(2 / 5e-5)  # half of the budget for each stream, half of that delta for the composition
    assert local.epsilon == pytest.approx(5e-4 / (2 * math.sqrt(2 * 3 * log)))
    assert local.delta == pytest.approx(5e-5 / (2 * 3))
    over, epsilon, delta = numbers(
        text, "shared over # releases by advanced composition: each shuffled release must be (#, #)-DP."
    )
    assert over == 3
    assert (epsilon, delta) == pytest.approx((local.epsilon, local.delta), rel=0.01)
    silos, points, local_epsilon, local_delta, sigma = numbers(
        text, "with # silos of # points allows a local epsilon of # at delta_0 = #: sigma_0 = #."
    )
    assert (silos, points) == (2000, 20)
    assert (local_epsilon, local_delta) == pytest.approx((local.local_epsilon, local.local_delta), rel=0.01)
    assert sigma == pytest.approx(made.protocol.scales.bias, rel=1e-4)
    alone, at = numbers(text, "Without a mixer, a silo's transcript is (#, #)-DP, computed exactly.")
    assert at == 1e-4
    assert alone == pytest.approx(gaussian_epsilon(math.sqrt(3 * 4.5) / sigma, 1e-4), rel=0.01)
    assert "Live noise is drawn on the grid 2^-20" in text


@pytest.mark.parametrize(("batch", "said"), [(20, "1 release"), (10, "2 releases"), (5, "3 releases")])
def test_the_releases_that_share_a_budget_are_counted(batch: int, said: str) -> None:
    shuffled = Plan(2000, 20, 2, Privacy(1e-3, 1e-4), "shuffle", "tree", every(batch), calibration="paper")
    assert f"shared over {said} by advanced composition" in str(shuffled.guarantee)
    counted = Plan(10, 20, 2, Privacy(1.0, 1e-5), "vector-sum", "tree", every(batch), calibration="paper")
    assert f"shared over {said.replace('release', 'p-sum')} by advanced composition" in str(counted.guarantee)


@pytest.mark.parametrize(
    ("silos", "said"),
    [
        (200, r"epsilon must be at most about \S+ for trust 'shuffle' with 200 silos, 50 rounds and delta = 0\.0001"),
        (2, "silos must be more than 2 for trust 'shuffle': no epsilon is in reach with 50 rounds and delta = 0.0001"),
    ],
)
def test_how_far_the_lemma_reaches_is_said_with_what_it_depends_on(silos: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{said}"):
        Plan(silos, 50, 3, Privacy(1.0, 1e-4), "shuffle", "tree", every(50), calibration="paper")


def test_on_a_clock_the_lemma_is_not_what_the_promise_rests_on() -> None:
    """How many people a period brings is unknown: the lemma's number of points would be made up."""
    rounds, periods = (
        Plan(2000, 20, 2, Privacy(1e-3, 1e-4), "shuffle", "tree", schedule, calibration="paper").guarantee
        for schedule in (every(1), clock(60.0))
    )
    assert rounds.promised
    assert periods.promised
    assert "the lemma proves nothing here" in str(periods)
    assert "the lemma proves nothing here" not in str(rounds)


def test_theorem_sdp_vec_in_its_own_words() -> None:
    made = Plan(10, 20, 2, Privacy(1.0, 1e-5), "vector-sum", "tree", every(5), calibration="paper")
    text, protocol = str(made.guarantee), made.protocol
    assert isinstance(protocol, VectorSumProtocol)
    assert isinstance(protocol.coding, TheoremCoding)
    over, epsilon, delta = numbers(text, "over # p-sums by advanced composition: each run of P_vec must be (#, #)-SDP.")
    assert over == 3
    assert epsilon == pytest.approx(0.5 / (2 * math.sqrt(2 * 3 * math.log(2 / 5e-6))), rel=1e-3)
    assert delta == pytest.approx(5e-6 / (2 * 3), rel=1e-3)
    users, grid, bits = numbers(text, "for n = # users, g = # and b = #.")
    assert (users, grid) == (50, math.ceil(2 * math.sqrt(50)))
    wanted = 24e4 * (grid * math.log(4 * 5 / protocol.coding.delta) / protocol.coding.epsilon) ** 2 / users
    assert bits == math.ceil(wanted)
    (std,) = numbers(text, "standard deviation # in each coordinate")
    assert std == pytest.approx(2 / grid * math.sqrt(users * bits * 3 / 16), rel=1e-4)


def test_a_theorem_that_does_not_reach_says_by_how_much() -> None:
    made = plan(mechanism="tree", calibration="paper", privacy=Privacy(1.0, 1e-5, participations=4))
    assert not made.guarantee.promised
    (exact,) = numbers(made.guarantee.statement, "the theorem's noise gives an exact epsilon of # here")
    sigma = math.sqrt(8 * (1 + math.log2(12)) * (math.log(2e5) + 1))
    assert exact == pytest.approx(gaussian_epsilon(4 * math.sqrt(4 * 4.5) / sigma, 1e-5), rel=1e-3)
    assert exact > 1


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_a_release_that_is_rounded_itself_counts_that_in_every_release_a_batch_enters(
    adjacency: str, ratio: float
) -> None:
    """Half a unit of 2^-30 in each number, in either world, for each product that is rounded on its way into a release,
    in each of 12 releases: these are orthogonal."""
    blt, toeplitz = (
        plan(mechanism=name, ratio=ratio, privacy=Privacy(1.0, 1e-5, adjacency)).request.shift.rounding  # type: ignore[arg-type]
        for name in ("blt", "toeplitz")
    )
    products = 2 + sum(mechanisms.encoder("blt", 12).row(11)[:-1])  # two buffers, weighted; and as they decay
    units = products * math.sqrt(12)
    assert blt - toeplitz == pytest.approx(math.sqrt(ratio * 3 + 9) * 2.0**-30 * units, rel=1e-6, abs=0.0)


@pytest.mark.parametrize(("batch", "levels"), [(20, 1), (10, 2), (5, 3)])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_theorem_sdp_vec_is_not_used_beyond_its_range(batch: int, levels: int, delta: float) -> None:
    """epsilon <= 60 sqrt(2 kappa log(2 / delta)); advanced composition gives up before, and says so by itself."""
    limit = 60 * math.sqrt(2 * levels * math.log(2 / delta))
    for epsilon in (1.001 * limit, 0.999 * limit):
        with pytest.raises(ArgumentError) as refused:
            Plan(10, 20, 2, Privacy(epsilon, delta), "vector-sum", "tree", every(batch), calibration="paper")
        assert refused.value.field == "epsilon"
        if epsilon > limit:
            said = numbers(str(refused.value), "must be at most # for trust 'vector-sum'")
            assert said == [pytest.approx(limit, rel=1e-3)]
        else:
            assert "must be small enough for advanced composition" in str(refused.value)
    free = Plan(10, 20, 2, Privacy(1.001 * limit, delta), "vector-sum", "tree", every(batch), calibration="published")
    assert not free.guarantee.promised  # and so it may ask for anything
