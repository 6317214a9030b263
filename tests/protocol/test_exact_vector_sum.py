"""P_vec at its best: g and b from exact accounting, held against a distribution of privacy losses that knows none of
it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses
from scipy.stats import binom, norm

from fedbandit._validate import ArgumentError
from fedbandit.audit.calendar_game import CalendarGame
from fedbandit.audit.cases import Case, case
from fedbandit.audit.report import audit
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_delta
from fedbandit.privacy.binomial_noise import gaussian_std
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Binomial
from fedbandit.protocol.adversaries import Moment
from fedbandit.protocol.trusts.vector_sum import SeesCounts, VectorSumProtocol
from fedbandit.protocol.vector_coding import ExactCoding, Node
from fedbandit.schedule import at, every, growing

WORST = (np.array([[1.0, 0.0], [-0.5, math.sqrt(0.75)]]), np.ones(2))  # moves both streams by the square root of 4.5
WIDE = 9.0  # standard deviations of a binomial that are summed
FINE = 3e-5  # grid of privacy losses, on which each is rounded against the promise, or for it


def plan(epsilon: float = 1.0, delta: float = 1e-5, silos: int = 3, **fields: Any) -> Plan:
    given = {"rounds": 8, "dim": 2, "schedule": every(2), **fields}
    return Plan(silos, privacy=Privacy(epsilon, delta), trust="vector-sum", mechanism="tree", **given)


def protocol(made: Plan) -> VectorSumProtocol:
    counted = made.protocol
    assert isinstance(counted, VectorSumProtocol)
    assert isinstance(counted.coding, ExactCoding)
    return counted


def loss(node: Node, pair: np.ndarray, silos: int, pessimistic: bool) -> Any:
    """Privacy losses of one p-sum without one silo's bits, all numbers together: every one a rounded count."""
    trials = node.noise_bits * node.users // silos * max(1, silos - 1)
    mean, std = trials / 4, math.sqrt(trials * 3 / 16)
    counts = np.arange(int(mean - WIDE * std), int(mean + WIDE * std))
    composed: Any = None
    for unit, (one, other) in zip(node.units(2), pair.T, strict=True):
        laws = []
        for value in (one / unit, other / unit):
            whole, rest = math.floor(value), value % 1
            near, next_one = (binom.pmf(counts - shift, trials, 0.25) for shift in (whole, whole + 1))
            laws.append(dict(enumerate(np.log((1 - rest) * near + rest * next_one).tolist())))
        if one == other:
            continue
        one_number = losses.from_two_probability_mass_functions(
            *laws, value_discretization_interval=FINE, pessimistic_estimate=pessimistic
        )
        composed = one_number if composed is None else composed.compose(one_number)
    return composed


def delta_of(made: Plan, change: Any = lambda node: node, pessimistic: bool = False) -> float:
    """The delta of the worst pair in the first batch, over all p-sums that hold it, at the plan's epsilon."""
    assert made.privacy is not None
    counted = protocol(made)
    pair = contributions(*WORST, made.bits) * 2.0**-made.bits
    each = [loss(change(node), pair, made.silos, pessimistic) for node in counted.nodes_of(1).values()]
    composed = reduce(lambda one, other: one.compose(other), each)
    return float(composed.get_delta_for_epsilon(made.privacy.epsilon))


@pytest.mark.parametrize(("epsilon", "delta", "silos"), [(1.0, 0.01, 2), (0.3, 1e-4, 5)])
def test_the_promise_is_met_by_privacy_losses_and_by_hardly_more_than_needed(
    epsilon: float, delta: float, silos: int
) -> None:
    """Rounded in favour of the promise, losses with a third fewer bits, or longer encoded numbers, break it."""
    made = plan(epsilon, delta, silos, rounds=4)  # a tree of two syncs: batch 1 enters two p-sums
    assert 0.8 * delta < delta_of(made, pessimistic=True) <= delta
    assert delta_of(made, lambda node: replace(node, noise_bits=int(node.noise_bits / 1.3))) > delta
    assert delta_of(made, lambda node: replace(node, grid=1.3 * node.grid)) > delta


@pytest.mark.parametrize(("epsilon", "bits"), [(0.2, 4570), (1.0, 1020), (5.0, 156)])
def test_the_noise_is_that_of_a_trusted_analyzer_at_the_papers_size(epsilon: float, bits: int) -> None:
    """Two per cent more, half a per cent of it for a silo that subtracts its own. `bits` would do if binomials were
    Gaussians and steps were L / 100 long; here steps are shorter or longer, and bits go with their square."""
    made = Plan(100, 10_000, 10, Privacy(epsilon, 0.1), "vector-sum", "tree", every(25))
    assert 1.005 < made.noise_std / made.changed(trust="central").noise_std < 1.025
    node = protocol(made).node(1)
    assert node.noise_bits * (0.01 / node.unit) ** -2 == pytest.approx(bits, rel=0.06)
    assert made.noise_std < 1e-3 * made.changed(calibration="paper").noise_std


@pytest.mark.parametrize("schedule", [every(1), growing(1.3), at(1, 2, 50, 64)])
@pytest.mark.parametrize("silos", [1, 2, 40])
def test_every_p_sum_has_noise_for_all_silos_but_one(schedule: Any, silos: int) -> None:
    made = plan(silos=silos, rounds=64, schedule=schedule)
    counted = protocol(made)
    coding = counted.coding
    assert isinstance(coding, ExactCoding)
    wanted = 2.1213 * math.sqrt(counted.tree.levels) * 3.73  # what (1, 1e-5) takes, by the analytic Gaussian
    for k in range(1, made.encoder.size + 1):
        node = counted.node(k)
        honest = node.trials * (1 - 1 / silos) if silos > 1 else node.trials
        assert wanted * 0.99 < node.unit * math.sqrt(honest * 3 / 16) < wanted * 1.03
        assert coding.worth(node, max(1, silos - 1)) >= coding.scales.diagonal
        assert node.most_rounding < 1.006
        assert node.std * node.most_rounding <= counted.scales.diagonal * math.sqrt(silos) * (1 + 1e-12)


def test_numbers_off_the_diagonal_and_of_the_bias_have_their_share() -> None:
    made = plan(ratio=4.0)
    unit = protocol(made).node(1).unit
    np.testing.assert_allclose(protocol(made).node(1).units(2), unit * np.array([0.5, 0.5, 1, math.sqrt(0.5), 1]))
    assert made.protocol.scales.bias == pytest.approx(made.protocol.scales.diagonal / 2)


def test_several_visits_and_silos_add_up() -> None:
    """As shifts of a Gaussian do; some syncs apart they need less."""
    budgets = [Privacy(1.0, 1e-5), Privacy(1.0, 1e-5, participations=3), Privacy(1.0, 1e-5, silos_per_user=2)]
    once, often, wide = (plan(rounds=32).changed(privacy=budget).noise_std for budget in budgets)
    assert often / once == pytest.approx(3, rel=0.01)
    assert wide / once == pytest.approx(2, rel=0.01)
    apart = plan(rounds=32).changed(privacy=Privacy(1.0, 1e-5, participations=3, apart=5))
    assert once < apart.noise_std < 0.9 * often


def test_a_release_spends_the_term_at_once() -> None:
    made = plan()
    node = protocol(made).node(1)
    release = made.release("silo-1", 1, 0)
    assert release is not None
    assert release.cost == Binomial(node.noise_bits, node.users)


@pytest.mark.parametrize("silos", [2, 30])
def test_what_the_mixer_can_tell_is_said(silos: int) -> None:
    """Each silo has its own bits: 1/M of all, where M - 1 of M are enough for the budget."""
    made = plan(silos=silos)
    said = re.search(r"Against the mixer, which sees each silo's counts, it is \((\S+), 1e-05\)", str(made.guarantee))
    assert said is not None
    sigma = made.changed(trust="central").protocol.scales.diagonal / math.sqrt(silos - 1)
    expected = made.request.exact_epsilon(sigma, joint_silos=False)
    assert expected * 0.99 < float(said[1]) < expected * 1.3  # few bits are worth less
    assert said[1] in dict(made.guarantee.answers)["If parties collude"]


@pytest.mark.parametrize(
    ("asked", "silos", "least"), [(1.0, 300, 45), (100.0, 10, 714), (300.0, 4, 816), (400.0, 4, None), (600.0, 3, None)]
)
def test_against_the_mixer_something_is_said_up_to_an_epsilon_of_1000(
    asked: float, silos: int, least: int | None
) -> None:
    """The two that are left out would be 1,107 and 1,144. The bits of one of 300 silos, too few to be worth anything at
    1,000, where next to nothing may be moved, are enough for far less."""
    said = plan(asked, silos=silos, bits=24).guarantee.statement
    printed = re.search(r"sees each silo's counts, it is \((\S+), ", said)
    assert ("sees each silo's counts, nothing is promised." in said) == (printed is None) == (least is None)
    if printed is not None and least is not None:
        assert least < float(printed[1]) < least + 1


def test_more_than_1000_that_was_asked_for_is_said_of_a_mixer_that_sees_no_more() -> None:
    for silos in (1, 2):
        said = plan(3000.0, silos=silos, bits=24).guarantee.statement
        assert "Against the mixer, which sees each silo's counts, it is (3000, 1e-05)." in said


def test_against_the_mixer_of_very_many_silos_nothing_is_promised() -> None:
    made = plan(silos=200_000)
    assert "Against the mixer, which sees each silo's counts, nothing is promised." in made.guarantee.statement


def test_counts_that_could_wrap_around_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^epsilon must be larger for trust 'vector-sum': .* overflow 64-bit"):
        plan(1e-9, 1e-12, bits=8)
    assert plan(1e-6, bits=8).guarantee.promised


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


@pytest.mark.parametrize("epsilon", [1e-4, 50.0, 3000.0])
def test_any_epsilon_is_covered(epsilon: float) -> None:
    made = plan(epsilon, rounds=4, bits=16)
    assert made.guarantee.promised
    assert made.noise_std < 1.1 * made.changed(trust="secure-sum", bits=30).noise_std


# -- what is printed ---------------------------------------------------------------------------------------------------


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
    assert number(made, r"tails of binomials, e\^-# in each") == pytest.approx(-math.log(moved), abs=0.051)
    assert number(made, "in each of # counts") == 35
    all_moved = number(made, "times all of them is at most #")
    assert 1e-3 * delta * (1 - 1e-9) <= all_moved <= 1.1e-3 * delta
    assert all_moved == float(f"{all_moved:.1e}")
    worth = number(made, "are worth Gaussian noise of # on")
    exact = unit * gaussian_std(int(bits * users * left // silos), math.log(moved))
    assert worth == pytest.approx(exact, abs=1e-4)
    assert worth >= number(made, "Noise of standard deviation # on the diagonal")
    variance = unit**2 * bits * users * 3 / 16
    decoded = "Decoded, the noise of a p-sum has standard deviation # on"
    assert number(made, decoded) == pytest.approx(math.sqrt(variance), rel=5e-5)
    rounded = number(made, "and at most # with what rounding adds")
    assert rounded == pytest.approx(math.sqrt(variance + unit**2 * users / 4), rel=5e-5)
    assert (rounded > 1.0005 * math.sqrt(variance)) == (made.times[0] > 1_000)
    assert number(made, "each silo's counts, with # noise bits") == bits * users // silos
    kept = number(made, r"That mu is exactly \(\S+, #\)-DP")
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
    kept = number(made, r"That mu is exactly \(\S+, #\)-DP")

    def enough(epsilon: float) -> bool:
        log_moved = math.log(1e-3 * delta / (7 * 5 * visited)) - math.log1p(math.exp(epsilon))
        sigma = min(node.unit * gaussian_std(node.trials // made.silos, log_moved) for node in nodes)
        return gaussian_delta(shift / sigma, epsilon) <= kept

    printed = number(made, r"counts, it is \(#, ")
    assert enough(printed)
    assert printed == made.privacy.epsilon if made.silos < 3 else not enough(0.999 * printed)
    assert number(made, r"computed in the same way, it is \(#, ") == printed
    assert (
        f"sees each silo's counts: it is ({printed:g}, {delta:g})" in dict(made.guarantee.answers)["If parties collude"]
    )


# -- attacked ----------------------------------------------------------------------------------------------------------


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
        for one in residuals:
            np.testing.assert_allclose(one.values[:, 0], (seen - means[world]) / math.sqrt(trials * 3 / 16), atol=1e-6)


def with_bits(audited: Case, share: float) -> Case:
    """The same case with fewer bits than it claims."""
    (game,) = audited.games
    assert isinstance(game, CalendarGame)
    counted = game.protocol
    assert isinstance(counted, VectorSumProtocol)
    assert isinstance(counted.coding, ExactCoding)
    fewer = replace(counted, coding=Fewer(counted.coding.scales, counted.coding.log_moved, counted.silos, share=share))
    return replace(audited, games=(replace(game, protocol=fewer),))


class Fewer(ExactCoding):
    """A share of the bits."""

    def __init__(self, *fields: Any, share: float) -> None:
        super().__init__(*fields)
        object.__setattr__(self, "share", share)

    def node(self, level: int, users: int, dim: int) -> Node:
        node = super().node(level, users, dim)
        bits = int(node.noise_bits * self.share)  # type: ignore[attr-defined]
        return replace(node, noise_bits=bits, subtracted=bits)


def test_its_audit_comes_near_the_promise_and_not_beyond() -> None:
    audited = case("vector-sum", 1.0, 1e-5)
    report = audit(audited, 6_000, seed=0)
    assert report.verdict == "holds"
    assert 0.6 < report.epsilon_lower <= 1.0
    assert [one.adversary for one in report.findings] == [
        "the analyzer behind the mixer",
        "the analyzer behind the mixer with 1 colluding silo",
    ]
    assert audit(with_bits(audited, 0.3), 6_000, seed=0).verdict == "broken"
