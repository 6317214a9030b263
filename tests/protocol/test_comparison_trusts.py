"""Trusts and noise that others have published, held here by hand: rewards alone, and P_vec as it was simulated."""

from __future__ import annotations

import math

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most
from fedbandit.privacy.grid import widened
from fedbandit.privacy.ledger import Gaussian
from fedbandit.protocol.guarantee import Calibration
from fedbandit.protocol.trusts.public_contexts import reward_sigma
from fedbandit.protocol.trusts.shuffle import Hidden, SeesShuffled
from fedbandit.protocol.vector_coding import Node, PublishedCoding
from fedbandit.schedule import every


@pytest.mark.parametrize("participations", [1, 3])
@pytest.mark.parametrize("silos", [1, 4])
def test_noise_that_hides_rewards_alone(participations: int, silos: int) -> None:
    """A reward moves x y by 1 and its rounding; visits to a silo add up, silos compose in squares."""
    budget = Privacy(2.0, 1e-3, participations=participations, silos_per_user=silos)
    plan = Plan(4, 16, 3, budget, "public-contexts", "tree", every(2), bits=7)
    rounding = 2 * math.sqrt(3 + 9) * 2.0**-8
    moved = (1 + rounding) * participations * math.sqrt(silos)
    sigma = gaussian_sigma(2.0, 1e-3) * moved * 2  # a batch enters four of the eight releases
    assert reward_sigma(plan.request) == pytest.approx(sigma)
    assert plan.protocol.scales == pytest.approx((widened(sigma, 2.0**-7), 0.0, 0.0))


def test_p_vec_as_it_was_simulated() -> None:
    """b = (g log(d^2 / delta) / epsilon)^2 / n, cut to a whole number; g = max(2 sqrt n, d, 4)."""
    node = PublishedCoding(0.5, 0.1).node(2, 64, 3)
    bits = (16 * math.log(90) / 0.5) ** 2 / 64
    assert node == Node(2, 64, 16, int(bits), bits, 1.0)


def test_clones_hide_sums_and_nothing_that_is_weighted() -> None:
    """A release of `toeplitz` is no sum of points, from its second row on."""
    shared = {"silos": 50, "rounds": 8, "dim": 2, "privacy": Privacy(1.0, 1e-3), "trust": "shuffle"}
    for mechanism, hides in (("tree", True), ("batches", True), ("toeplitz", False), ("blt", False)):
        plan = Plan(**shared, mechanism=mechanism, schedule=every(2))  # type: ignore[arg-type]
        assert (Hidden.of(plan.request) is not None) == hides


def test_a_mixer_that_is_needed_a_little_is_needed() -> None:
    """Among 300 silos the noise alone would give 1.44, and 1 is promised."""
    plan = Plan(300, 2, 2, Privacy(1.0, 1e-3), "shuffle", "batches", every(1))
    alone = plan.request.exact_epsilon(plan.protocol.scales.diagonal, joint_silos=False)
    assert 1.3 < alone < 1.6
    assert f"against the analyzer. Without the mixer it is ({at_most(alone)}, 0.001)." in plan.guarantee.statement
    assert "holds without the mixer" not in str(plan.guarantee)
    assert any("the mixer does not collude" in one for one in plan.guarantee.assumes)
    assert [one.name for one in plan.protocol.adversaries()] == [SeesShuffled().name]


@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_a_silo_that_trusts_nobody_is_left_with_all_of_its_noise(calibration: Calibration) -> None:
    plan = Plan(3, 8, 2, Privacy(1.0, 1e-3), "silo", "tree", every(2), calibration=calibration)
    event = plan.release("north", 1, 0)
    assert event is not None
    assert isinstance(event.cost, Gaussian)
    assert event.cost.sigma == event.cost.own_sigma == pytest.approx(plan.protocol.scales.diagonal, rel=1e-9)


def test_the_lemma_hides_what_one_silo_sends() -> None:
    privacy = Privacy(1e-3, 1e-4, silos_per_user=2)
    with pytest.raises(ArgumentError, match=r"^silos_per_user must be 1"):
        Plan(50, 8, 2, privacy, "shuffle", "tree", every(2), calibration="paper")
