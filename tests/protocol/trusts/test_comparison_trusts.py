"""Trusts and noise that others have published, held here by hand: rewards alone, and P_vec as it was simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions
from fedbandit.plan import Plan
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy, at_most
from fedbandit.privacy.grid import widened
from fedbandit.privacy.ledger import GENESIS, Binomial, Gaussian, append
from fedbandit.privacy.sensitivity import rounding_shift
from fedbandit.privacy.spending import spent
from fedbandit.protocol import mechanisms
from fedbandit.protocol.guarantee import Acting, Calibration
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


def test_rewards_alone_are_hidden_where_releases_are_rounded() -> None:
    """Buffers of `blt` are rounded at every sync: at 2^-1 and 2^-10 that moves a release by more than a reward does."""
    plan = Plan(4, 64, 3, Privacy(1.0, 1e-5), "public-contexts", "blt", every(1), bits=1)
    encoder, protocol, x = plan.encoder, plan.protocol, np.array([0.6, 0.0, 0.8])
    furthest = 0.0
    for seed in range(20):
        others = np.random.default_rng(seed).integers(-40, 40, (64, protocol.width))
        states, squared = [encoder.init((protocol.width,))] * 2, 0.0
        for sync in range(64):
            moved = []
            for world, reward in enumerate((0.0, 1.0)):
                one = contributions(x, reward, 1) if sync == 0 else 0
                states[world], encoded = encoder.step(states[world], others[sync] + one)
                moved.append(encoded[:3])
            squared += float(np.sum((moved[0] - moved[1]) ** 2)) * 4.0**-protocol.release_bits
        furthest = max(furthest, math.sqrt(squared))
    mu = 1 / gaussian_sigma(1.0, 1e-5)
    rounding = plan.request.release_rounding
    units = encoder.rounding_units
    assert rounding == pytest.approx(units * math.sqrt(3 + 9) * 2.0**-11 * math.sqrt(64), rel=1e-12)
    assert rounding > 0.01
    assert furthest / reward_sigma(plan.request) <= mu
    counted = (1 + rounding_shift("replace-one", 3, 1) + rounding) * encoder.column_norm
    assert reward_sigma(plan.request) * mu == pytest.approx(counted, rel=1e-9)


def test_rounding_of_releases_counts_in_full_where_columns_are_short() -> None:
    """It is added to a shift that is multiplied by the column norm, below 1 in some mechanism of your own."""
    plan = Plan(4, 64, 3, Privacy(1.0, 1e-5), "silo", "blt", every(1), bits=6)
    long, encoder = plan.request.release_rounding, plan.encoder
    assert encoder.column_norm > 1
    object.__setattr__(encoder, "column_norm", 0.25)  # as of a column four times as short
    try:
        assert plan.request.release_rounding == pytest.approx(4 * long)
    finally:
        del encoder.__dict__["column_norm"]


@pytest.mark.parametrize(("calibration", "acting"), [("published", "lazy"), ("paper", "eager")])
def test_counts_that_promise_nothing_spend_without_a_bound(calibration: Calibration, acting: Acting) -> None:
    """The theorem's noise costs the budget only where the theorem holds."""
    plan = Plan(3, 8, 2, Privacy(1.0, 1e-5), "vector-sum", "tree", every(4), acting=acting, calibration=calibration)
    assert not plan.guarantee.promised
    event = plan.release("a", 1, 0)
    assert event is not None
    assert spent([append(GENESIS, event)], mechanisms.encoder).epsilon == math.inf
    kept = plan.changed(calibration="paper", acting="lazy").release("a", 1, 0)
    assert kept is not None
    assert isinstance(kept.cost, Binomial)


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
