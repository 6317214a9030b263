"""The page of a plan with exactly calibrated counts: every number that is printed, and who is told of, worked out from
the plan another way."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta
from fedbandit.privacy.binomial_noise import gaussian_std
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.adversaries import Moment
from fedbandit.protocol.trusts.vector_sum import SeesCounts
from fedbandit.schedule import at, every
from tests.protocol.trusts.test_exact_vector_sum import plan, protocol


def number(made: Plan, pattern: str) -> float:
    """The one number that the page has at this place."""
    found = re.findall(pattern.replace("#", r"([\d.,]+(?:e[+-]?\d+)?)"), str(made.guarantee))
    assert len(found) == 1, (pattern, found)
    return float(found[0].rstrip(".,").replace(",", ""))


LAID_OUT: dict[str, tuple[float, float, int, dict[str, Any]]] = {  # syncs 7: no number of a proof is another by chance
    "plain": (1.0, 1e-5, 3, {"rounds": 14}),
    "a person in two silos": (0.7, 0.01, 4, {"rounds": 14, "ratio": 4.0}),
    "alone": (2.0, 1e-5, 1, {"rounds": 14}),
    "batches that grow": (1.0, 1e-6, 5, {"rounds": 30, "schedule": at(1, 3, 7, 12, 18, 23, 30)}),
    "so many that rounding shows": (1.0, 1e-6, 2, {"rounds": 2_100_000, "schedule": every(300_000)}),
    "a delta of many digits": (1.0, 1.2345e-5, 3, {"rounds": 14}),
    "the first is small": (1.0, 1e-6, 4, {"rounds": 600_001, "schedule": at(1, *range(100_001, 600_002, 100_000))}),
    "the last is small": (
        1.0,
        1e-6,
        4,
        {"rounds": 600_001, "schedule": at(*range(100_000, 600_001, 100_000), 600_001)},
    ),
}


def laid_out(name: str) -> Plan:
    epsilon, delta, silos, fields = LAID_OUT[name]
    made = plan(epsilon, delta, silos, **fields)
    if name != "a person in two silos":
        return made
    return made.changed(privacy=Privacy(epsilon, delta, silos_per_user=2, participations=2))


@pytest.mark.parametrize("name", LAID_OUT)
def test_every_number_of_the_proof_follows_from_the_plan(name: str) -> None:
    """g and b as they are printed, all others computed from them here."""
    made = laid_out(name)
    assert made.privacy is not None
    epsilon, delta, silos = made.privacy.epsilon, made.privacy.delta, made.silos
    users, left = silos * made.times[0], max(1, silos - 1)
    assert number(made, "a p-sum of n = # users") == users
    steps, bits = number(made, "users has g = # steps"), number(made, "steps and b = # noise bits")
    unit = 2 / steps
    assert number(made, "A step is # long") == pytest.approx(unit, rel=5e-4)
    assert number(made, "long on the diagonal, # off it") == pytest.approx(unit * math.sqrt(0.5), rel=5e-4)
    printed = number(made, r"long on the diagonal, \S+ off it and # on the bias")
    assert printed == pytest.approx(unit / math.sqrt(made.ratio), rel=5e-4)
    assert f"The bits of {left} silo{'' if left == 1 else 's'} of {silos}, " in str(made.guarantee)
    assert number(made, f"of {silos}, # in each number, are worth") == bits * users * left // silos
    moved = 1e-3 * delta / (7 * 5 * made.privacy.silos_per_user) / (1 + math.exp(epsilon))
    assert number(made, r"tails of the binomials, e\^-# in each") == pytest.approx(-math.log(moved), abs=0.051)
    assert number(made, "in each of # counts") == 35
    all_moved = number(made, r"Their total times \(1 \+ e\^epsilon\) is at most #")
    assert 1e-3 * delta * (1 - 1e-9) <= all_moved <= 1.1e-3 * delta
    assert all_moved == float(f"{all_moved:.1e}")
    worth = number(made, "are worth Gaussian noise of # on")
    exact = unit * gaussian_std(int(bits * users * left // silos), math.log(moved))
    assert worth == pytest.approx(exact, rel=5e-5)  # five digits
    assert worth >= number(made, "Noise of standard deviation # on the diagonal")
    variance = unit**2 * bits * users * 3 / 16
    decoded = "After decoding, the noise of a p-sum has standard deviation # on"
    assert number(made, decoded) == pytest.approx(math.sqrt(variance), rel=5e-5)
    rounded = number(made, "and at most # including what rounding adds")
    assert rounded == pytest.approx(math.sqrt(variance + unit**2 * users / 4), rel=5e-5)
    assert (rounded > 1.0005 * math.sqrt(variance)) == (made.times[0] > 1_000)
    assert number(made, "each silo's counts, with # noise bits") == bits * users // silos
    kept = number(made, r"With that mu it is exactly \(\S+, #\)-DP")
    assert 0.99 * delta < kept <= (1 - 1e-3) * delta
    digits = f"{kept:e}".split("e")[0].rstrip("0")
    assert len(digits) <= 4  # three digits and a point
    assert made.guarantee.against == ("the analyzer" + " together with any one other silo" * (silos > 1))


@pytest.mark.parametrize("name", LAID_OUT)
def test_the_epsilon_against_the_mixer_is_met_by_the_bits_of_one_silo(name: str) -> None:
    """The epsilon that is printed, and none that is smaller by a thousandth: what may be moved goes with it, and what
    the bits are worth with that."""
    made = laid_out(name)
    assert made.privacy is not None
    delta, visited = made.privacy.delta, made.privacy.silos_per_user
    counted = protocol(made)
    nodes = [counted.node(k) for k in range(1, made.encoder.size + 1)]
    shift = made.request.sensitivity * math.sqrt(visited)  # of all releases of one silo; several add up in squares
    kept = number(made, r"With that mu it is exactly \(\S+, #\)-DP")

    def enough(epsilon: float) -> bool:
        log_moved = math.log(1e-3 * delta / (7 * 5 * visited)) - math.log1p(math.exp(epsilon))
        sigma = min(node.unit * gaussian_std(node.trials // made.silos, log_moved) for node in nodes)
        return gaussian_delta(shift / sigma, epsilon) <= kept

    printed = number(made, r"counts, the promise is \(#, ")
    assert enough(printed)
    assert printed == made.privacy.epsilon if made.silos < 3 else not enough(0.999 * printed)
    assert number(made, r"Computed in the same way, the promise is \(#, ") == printed
    assert (
        f"against all of them together, the mixer included, the promise is ({printed:g}, {delta:g}):"
        in dict(made.guarantee.answers)["If parties collude"]
    )


@pytest.mark.parametrize(
    ("asked", "silos", "least"), [(1.0, 300, 45), (100.0, 10, 714), (300.0, 4, 816), (400.0, 4, None), (600.0, 3, None)]
)
def test_against_the_mixer_something_is_said_up_to_an_epsilon_of_1000(
    asked: float, silos: int, least: int | None
) -> None:
    """The two that are left out would be 1,107 and 1,144. The bits of one of 300 silos, too few to be worth anything at
    1,000, where next to nothing may be moved, are enough for far less."""
    said = plan(asked, silos=silos, bits=24).guarantee.statement
    printed = re.search(r"sees each silo's counts, the promise is \((\S+), ", said)
    assert ("sees each silo's counts, nothing is promised." in said) == (printed is None) == (least is None)
    if printed is not None and least is not None:
        assert least < float(printed[1]) < least + 1


def test_more_than_1000_that_was_asked_for_is_said_of_a_mixer_that_sees_no_more() -> None:
    for silos in (1, 2):
        said = plan(3000.0, silos=silos, bits=24).guarantee.statement
        assert "Against the mixer, which sees each silo's counts, the promise is (3000, 1e-05)." in said


def test_so_many_users_that_their_own_steps_overflow_are_refused() -> None:
    """A count has n (b + g) ones at most, over all silos, and g rises with the root of n: b is 134 from the millions
    on, and n g reaches 2^62 with n = (2^62 sigma / 10)^(2/3)."""
    sigma = protocol(plan(silos=1, rounds=4)).coding.scales.diagonal  # type: ignore[attr-defined]
    edge = (2**62 * sigma / 10) ** (2 / 3)
    for factor, fits in ((0.999, True), (1.001, False)):
        batch = int(factor * edge / 2)  # the second p-sum has both batches
        if fits:
            assert plan(silos=1, rounds=2 * batch, schedule=every(batch), bits=16).guarantee.promised
        else:
            with pytest.raises(ArgumentError, match="overflow 64-bit counts"):
                plan(silos=1, rounds=2 * batch, schedule=every(batch), bits=16)


BATCHES = {  # users of one silo: where the p-sum with the most noise, or the least, is the first, the last, or neither
    "first": (250_000, 1, 1, 1, 1, 1, 1),
    "last": (1, 1, 1, 1, 1, 1, 250_000),
    "in between": (1, 1, 1, 250_000, 1, 1, 1),
    "the first is small": (1, *[250_000] * 6),
    "the last is small": (*[250_000] * 6, 1),
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_noise_that_is_stated_is_the_widest_of_all_p_sums(name: str) -> None:
    times = np.cumsum(BATCHES[name]).tolist()
    made = plan(silos=2, rounds=times[-1], schedule=at(*times))
    spans = [(0, 1), (0, 2), (2, 3), (0, 4), (4, 5), (4, 6), (6, 7)]  # the batches of the p-sum of each sync
    deviations = []
    for k, (first, last) in enumerate(spans, 1):
        node = protocol(made).node(k)
        users = 2 * sum(BATCHES[name][first:last])
        assert node.users == users
        deviations.append(node.unit * math.sqrt(users * (node.noise_bits * 3 / 16 + 1 / 4)))
    assert max(deviations) > 1.001 * min(deviations)
    assert made.protocol.scales.diagonal == pytest.approx(max(deviations) / math.sqrt(2), rel=1e-12)


@pytest.mark.parametrize("silos", [1, 2, 3])
def test_another_silo_is_among_the_adversaries_if_there_is_one(silos: int) -> None:
    names = [one.name for one in protocol(plan(silos=silos)).adversaries()]
    behind = "the analyzer behind the mixer"
    assert names == [behind, f"{behind} with 1 colluding silo"][: 1 if silos == 1 else 2]
    told = [0] if silos == 1 else [0, 1]  # silos that tell what they sent
    assert protocol(plan(silos=silos)).adversaries() == tuple(SeesCounts("gdp", number) for number in told)
    theirs = plan(silos=silos, calibration="paper").protocol.adversaries()
    assert [(one.name, one.bound) for one in theirs] == [(behind, "dp")]


@pytest.mark.parametrize("colluding", [0, 1])
def test_an_adversary_scores_the_counts_of_the_silos_that_tell_it_nothing(colluding: int) -> None:
    """By the density of a Gaussian of the binomial's mean and variance, number by number; the last silo, where it
    colludes, is taken out."""
    counted = protocol(plan(ratio=4.0))
    node, honest, generator = counted.node(2), 3 - colluding, np.random.default_rng(0)
    assert node.users == 12
    worlds = generator.integers(-(2**20), 2**20, (2, 1, 3, counted.width))  # two points of each silo, on the grid
    sent = generator.binomial(4 * node.noise_bits, 0.25, (5, 3, counted.width)) + 4 * node.grid // 2
    earlier = (np.zeros_like(sent),)
    moment = Moment(1, 2, (worlds[0], worlds[1]), [earlier, earlier, (sent,)], (sent.sum(axis=1, keepdims=True),))
    trials, units = 4 * honest * node.noise_bits, node.units(2)
    seen = sent[:, :honest].sum(axis=1)
    means = [trials / 4 + (world[0, :honest].sum(axis=0) * 2.0**-counted.bits + 4 * honest) / units for world in worlds]
    low, high = (norm.logpdf(seen, mean, math.sqrt(trials * 3 / 16)) for mean in means)
    adversary = SeesCounts(bound="gdp", colluding=colluding)
    np.testing.assert_allclose(adversary.score(counted, moment), (high - low).sum(axis=-1), rtol=1e-6, atol=1e-9)
    for world in (0, 1):
        residuals = adversary.residuals(counted, moment, world)
        assert bool(residuals) is (colluding == 0)
        if colluding:
            continue
        total, each = residuals
        np.testing.assert_allclose(total.values[:, 0], (seen - means[world]) / math.sqrt(trials * 3 / 16), atol=1e-6)
        alone = trials / 3  # noise bits of one silo, which has 4 of the 12 users
        mean = alone / 4 + (worlds[world, 0] * 2.0**-counted.bits + 4) / units
        np.testing.assert_allclose(each.values, (sent - mean) / math.sqrt(alone * 3 / 16), atol=1e-6)
