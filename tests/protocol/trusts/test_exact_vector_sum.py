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
from scipy.stats import binom

from fedbandit._validate import ArgumentError
from fedbandit.audit.calendar_game import CalendarGame
from fedbandit.audit.cases import Case, case
from fedbandit.audit.report import audit
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.ledger import Binomial
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
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
    said = re.search(
        r"Against the mixer, which sees each silo's counts, the promise is \((\S+), 1e-05\)", str(made.guarantee)
    )
    assert said is not None
    sigma = made.changed(trust="central").protocol.scales.diagonal / math.sqrt(silos - 1)
    expected = made.request.exact_epsilon(sigma, joint_silos=False)
    assert expected * 0.99 < float(said[1]) < expected * 1.3  # few bits are worth less
    assert said[1] in dict(made.guarantee.answers)["If parties collude"]


def test_against_the_mixer_of_very_many_silos_nothing_is_promised() -> None:
    made = plan(silos=200_000)
    assert "Against the mixer, which sees each silo's counts, nothing is promised." in made.guarantee.statement


def test_counts_that_could_wrap_around_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^epsilon must be larger for trust 'vector-sum': .* overflow 64-bit"):
        plan(1e-9, 1e-12, bits=8)
    assert plan(1e-6, bits=8).guarantee.promised


@pytest.mark.parametrize("epsilon", [1e-4, 50.0, 3000.0])
def test_any_epsilon_is_covered(epsilon: float) -> None:
    made = plan(epsilon, rounds=4, bits=16)
    assert made.guarantee.promised
    assert made.noise_std < 1.1 * made.changed(trust="secure-sum", bits=30).noise_std


# -- attacked ----------------------------------------------------------------------------------------------------------


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


def test_what_rounding_adds_is_printed_as_no_less_than_it_is() -> None:
    """With many people and few noise bits for each, rounding at random shows in the noise."""
    plan = Plan(2, 10**6, 1, Privacy(5.0, 0.01), "vector-sum", "tree", every(10**6), calibration="exact")
    protocol = plan.protocol
    assert isinstance(protocol, VectorSumProtocol)
    node = protocol.node(1)
    most = node.std * math.sqrt(1 + 4 / (3 * node.noise_bits))  # a count is rounded with variance 1/4 at most
    assert most > 1.001 * node.std
    found = re.search(r"and at most (\S+) including what rounding adds", str(plan.guarantee))
    assert found is not None
    assert most * (1 - 1e-9) <= float(found[1]) <= most * 1.0002
