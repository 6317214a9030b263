"""Tuning, the best plan, and the payoff on shuffling."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import minimize_scalar

from fedbandit.plan import Plan
from fedbandit.planner import best, shuffling, tuning
from fedbandit.planner.prediction import lost_rounds
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import joint_shift
from fedbandit.schedule import growing

PRIVACY = Privacy(1.0, 0.1)
BASE = Plan(100, 10_000, 10, PRIVACY)


@pytest.mark.parametrize("dim", [5, 10, 57])
@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_the_split_wastes_at_most_a_percent(dim: int, centre: float) -> None:
    """Squared shift times (h^2 (d + 1)/2 + d / ratio): the noise's share of the squared error."""
    bound = max(centre, 1 - centre)

    def waste(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        return joint_shift("replace-one", bound, ratio) ** 2 * (bound**2 * (dim + 1) / 2 + dim / ratio)

    least = minimize_scalar(waste, bounds=(-5, 5), method="bounded").fun
    assert waste(math.log(tuning.split(centre))) <= 1.01 * least
    assert waste(math.log(tuning.split(centre) / 4)) > 1.1 * least


def test_tuning_keeps_the_promise_and_lowers_the_cost() -> None:
    for trust in ("silo", "secure-sum", "central"):
        plan = BASE.changed(trust=trust)
        better = tuning.tuned(plan, centred=True)
        assert (better.guarantee.epsilon, better.guarantee.delta) == (1.0, 0.1)
        assert lost_rounds(better) < lost_rounds(plan)
        assert better.syncs is not None
        assert better.syncs <= 90
        assert better.mechanism == "optimal"


def test_a_horizon_too_long_for_the_optimal_encoder_gets_buffers() -> None:
    assert tuning.mechanism_for(512) == "optimal"
    assert tuning.mechanism_for(513) == "blt"


@pytest.mark.parametrize(("trust", "expected"), [("local", "local"), ("silo", "silo"), ("secure-sum", "secure-sum")])
def test_the_best_plan_for_every_trust(trust: str, expected: str) -> None:
    choice = best.best_plan(100, 10_000, 10, PRIVACY, trust)
    assert choice.best.name == expected
    costs = [one.lost for one in (choice.best, *choice.protocols)]
    assert costs == sorted(costs)
    assert all(choice.best.lost <= one.lost for one in choice.variants)
    assert choice.plan.guarantee.promised


def test_what_asks_for_no_more_trust_than_the_user_gives() -> None:
    local = {"local"}
    silo = local | {"ldp", "silo"}
    two = silo | {"sdp-amplified", "sdp-vector-sum", "secure-sum"}
    for trust, expected in (("local", local), ("silo", silo), ("secure-sum", two), ("shuffle", two)):
        assert set(best.acceptable(trust)) == expected
    assert set(best.acceptable("central")) == {*two, "super-agent", "central"} == set(best.CANDIDATES)


def test_what_cannot_be_used_says_why() -> None:
    choice = best.best_plan(100, 10_000, 10, PRIVACY, "secure-sum")
    assert [one.name for one in choice.impossible] == ["sdp-amplified"]
    assert "epsilon must be at most about" in choice.impossible[0].reason
    with pytest.raises(ValueError, match=r"^trust must be one of central, local, .*silo, .*; got 'nobody'"):
        best.best_plan(100, 10_000, 10, PRIVACY, "nobody")


def test_variants_name_one_change_each() -> None:
    choice = best.best_plan(20, 2000, 5, PRIVACY, "silo")
    plan = choice.plan
    for one in choice.variants:
        assert one.plan is not None
        changed = {k for k, v in one.plan.as_dict().items() if v != plan.as_dict()[k]}
        assert changed <= {"mechanism", "schedule"}


def test_vector_sum_pays_from_very_many_silos_on_and_never_against_secure_sums() -> None:
    """The number follows from one size because its noise does not depend on the silos; another size agrees."""
    against_silo, against_sum = shuffling.vector_sum(BASE)
    assert against_silo.silos is not None
    assert 1e9 < against_silo.silos < 1e11
    assert against_sum.silos is None
    fewer = shuffling.vector_sum(BASE.changed(silos=50))[0].silos
    assert fewer == pytest.approx(against_silo.silos, rel=0.02)


def test_amplification_never_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "MOST_SILOS", 10**2)  # larger ones take the same path, and longer
    for payoff in shuffling.amplified(BASE.changed(privacy=Privacy(1.0, 1e-4), schedule=growing(1.3))):
        assert payoff.silos is None
        assert "certifies epsilon <= 0.00" in payoff.reason
