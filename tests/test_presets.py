"""The paper's algorithms as plans: as proven, and as the published simulation ran them."""

from __future__ import annotations

import math

import pytest

import fedbandit as fb
from fedbandit import paper
from fedbandit.plan import Plan
from fedbandit.presets import NAMES, OURS, PAPER, TRUST_OF, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol
from fedbandit.schedule import Adaptive, every, growing

BASE = Plan(100, 10_000, 10, Privacy(0.2, 0.1), exploration=0.7, reward_noise=0.5)
TINY = Plan(100, 10_000, 10, Privacy(1e-3, 1e-4), bits=16)
PRESETS = {
    "fed_lin_ucb": paper.fed_lin_ucb,
    "ldp": paper.ldp,
    "ldp_alt": paper.ldp_alt,
    "ldp_eager": paper.ldp_eager,
    "sdp_vector_sum": paper.sdp_vector_sum,
    "dubey": paper.dubey,
    "private_adaptive": paper.private_adaptive,
    "super_agent": paper.super_agent,
}
KAPPA = 1 + math.log2(400)


def test_every_row_of_the_paper_has_a_preset() -> None:
    names = {"fed_lin_ucb", "ldp", "ldp_alt", "sdp_amplified", "sdp_vector_sum", "lazy", "dubey", "private_adaptive"}
    assert names | {"super_agent", "ldp_eager"} <= set(paper.__all__)
    assert fb.paper.lazy is fb.paper.ldp  # the lazy variant is what its guarantee holds for
    assert set(NAMES) == {
        *("fed-lin-ucb", "ldp", "ldp-eager", "ldp-alt", "sdp-amplified", "sdp-vector-sum", "dubey", "private-adaptive"),
        *("super-agent", "silo", "secure-sum", "central", "local", "isolated"),
    }
    with pytest.raises(ValueError, match=r"^protocol must be one of fed-lin-ucb, ldp,"):
        plan_for("nonsense", BASE)


@pytest.mark.parametrize("name", PRESETS)
def test_as_proven(name: str) -> None:
    made = PRESETS[name](BASE)
    assert (made.silos, made.rounds, made.dim) == (100, 10_000, 10)
    assert made.mechanism == "tree"
    assert made.confidence == "theory"
    assert made.acting == ("eager" if name in ("ldp_eager", "dubey") else "lazy")
    assert made.calibration == ("exact" if name == "private_adaptive" else "paper")
    if name in ("dubey", "private_adaptive"):
        assert isinstance(made.schedule, Adaptive)
        assert made.schedule.private == (name == "private_adaptive")
        assert made.schedule.threshold == pytest.approx(10_000 * math.log(1e6 + 1) / 1000)
    else:
        assert made.schedule == (every(1) if name == "super_agent" else every(25))
    assert (made.privacy is None) == (name == "fed_lin_ucb")


def test_trusts() -> None:
    trusts = {name: preset(BASE).trust for name, preset in PRESETS.items()}
    assert trusts == {
        "fed_lin_ucb": "none",
        "ldp": "silo",
        "ldp_alt": "silo",
        "ldp_eager": "silo",
        "sdp_vector_sum": "vector-sum",
        "dubey": "silo",
        "private_adaptive": "silo",
        "super_agent": "central",
    }
    assert paper.sdp_amplified(TINY).trust == "shuffle"
    assert tuple(TRUST_OF) == NAMES
    within_reach = {name: TINY if name == "sdp-amplified" else BASE for name in NAMES}
    assert {name: plan_for(name, base).trust for name, base in within_reach.items()} == TRUST_OF
    assert paper.ldp_alt(BASE).decode_at == "silo"
    assert paper.dubey(BASE).decode_at == "silo"  # prefix sums from the standard tree


@pytest.mark.parametrize("name", ["fed_lin_ucb", "ldp", "ldp_alt", "sdp_vector_sum"])
def test_as_simulated_acts_eagerly_and_promises_nothing(name: str) -> None:
    made = PRESETS[name](BASE, "as_simulated")
    assert (made.acting, made.calibration, made.confidence) == ("eager", "published", "published")
    assert (made.exploration, made.reward_noise) == (0.7, 0.5)
    assert not made.guarantee.promised


def test_published_noise() -> None:
    epsilon, delta = 0.2, 0.1
    ldp = paper.ldp(BASE, "as_simulated")
    assert ldp.protocol.scales.bias**2 == pytest.approx(KAPPA * (math.log(1 / delta) + epsilon) / epsilon**2)
    proven = paper.ldp(BASE).protocol.scales.bias ** 2
    assert 8.6 <= proven / ldp.protocol.scales.bias**2 <= 10.25
    amplified = paper.sdp_amplified(TINY, "as_simulated")
    assert amplified.protocol.scales.bias == pytest.approx(8_044, rel=0.001)
    assert not amplified.guarantee.promised
    vectors = paper.sdp_vector_sum(BASE, "as_simulated").protocol
    assert isinstance(vectors, VectorSumProtocol)
    node = vectors.node(1)  # b with constant 1, nothing shared over levels or streams
    assert node.noise_bits == math.ceil((node.grid * math.log(4 * 101 / delta) / epsilon) ** 2 / node.users)


def test_published_regulariser_and_radius() -> None:
    made = paper.ldp(BASE, "as_simulated")
    sigma, alpha, dim = made.protocol.scales.bias, 0.01, 10
    regulariser = math.sqrt(100 * KAPPA) * sigma * (math.sqrt(KAPPA + math.log(1 / alpha)) + math.sqrt(dim))
    assert made.regulariser == pytest.approx(regulariser)
    growth = dim * math.log(1 + 100 * 500 / (dim * regulariser)) + math.log(1 / alpha)
    assert made.radius(500) == pytest.approx(0.7 * (math.sqrt(regulariser * dim) + 0.5 * math.sqrt(growth)))
    assert paper.fed_lin_ucb(BASE, "as_simulated").regulariser == pytest.approx(10.0)  # sqrt(M)


def test_proven_noise_of_theorem_ldp() -> None:
    made = paper.ldp(BASE)
    assert made.protocol.scales.packed(10) == pytest.approx([78.5101044] * 65)
    assert made.noise_law.off_diagonal[-1] == made.noise_law.diagonal[-1]  # the paper's layout is flat


def test_a_schedule_of_ones_own_and_a_short_horizon() -> None:
    assert paper.ldp(BASE, schedule=growing(1.5)).schedule == growing(1.5)
    assert paper.ldp(Plan(5, 10, 3, Privacy(1.0, 0.1))).schedule == every(10)
    for name in PAPER:
        if name not in ("dubey", "private-adaptive", "sdp-amplified"):
            assert plan_for(name, BASE, every(50)).schedule == every(50)


def test_ours() -> None:
    chosen = {name: plan_for(name, BASE) for name in OURS}
    assert {name: made.trust for name, made in chosen.items()} == {
        "silo": "silo",
        "secure-sum": "secure-sum",
        "central": "central",
        "local": "local",
        "isolated": "none",
    }
    for name in ("silo", "secure-sum", "central"):
        assert (chosen[name].mechanism, chosen[name].schedule) == ("toeplitz", growing(1.1))
    isolated = chosen["isolated"]  # acts on its own data and never synchronises
    assert (isolated.acting, isolated.syncs, isolated.privacy) == ("eager", 1, None)
    assert plan_for("isolated", BASE, every(50)).syncs == 1


def test_compared_plans_keep_their_numbers_alike() -> None:
    coarse = BASE.changed(bits=18, alpha=0.05, confidence="proof")
    for name in NAMES:
        if name != "sdp-amplified":
            made = plan_for(name, coarse)
            assert (made.bits, made.alpha, made.confidence) == (18, 0.05, "proof")


def test_presets_without_a_budget() -> None:
    bare = Plan(4, 100, 3, trust="none")
    assert paper.fed_lin_ucb(bare).privacy is None
    with pytest.raises(ValueError, match=r"^privacy must be given for every trust but 'none', got None"):
        paper.ldp(bare)
