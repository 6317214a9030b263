"""Drafts are predicted as the plans that they stand for, and choosing by them loses next to nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fedbandit.plan import Plan
from fedbandit.planner import best, drafts
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.drafts import Draft
from fedbandit.planner.prediction import Course, predicted
from fedbandit.planner.tuning import mechanisms_for
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Encoder
from fedbandit.schedule import Clock

CLINIC = Consortium(silos=12, people_per_day=20, days=90, dim=8, privacy=Privacy(1.0, 1e-6), arms=4, visits=3)
SHARE = 0.1


def planned(trust: str, cap: int) -> Plan:
    base = CLINIC.plan(trust="none", privacy=replace(CLINIC.privacy, participations=cap), centre=0.5, ratio=4.0)
    return plan_for(trust, base)


def draft(plan: Plan) -> Draft:
    return Draft(plan, CLINIC.arms, CLINIC.attendance, SHARE, drift=0.01)


@pytest.mark.parametrize("trust", ["silo", "secure-sum", "central"])
@pytest.mark.parametrize("cap", [1, 3])
@pytest.mark.parametrize(("mechanism", "forget"), [("toeplitz", 1.0), ("toeplitz", 0.9), ("early", 1.0), ("tree", 1.0)])
def test_a_draft_is_predicted_as_its_plan(trust: str, cap: int, mechanism: str, forget: float) -> None:
    plan = planned(trust, cap)
    clock = Clock(CLINIC.period, 1.2, 3)
    full = plan.changed(schedule=clock, mechanism=mechanism, forget=forget)
    wanted = predicted(full, CLINIC.arms, CLINIC.attendance, constant_share=SHARE, drift=0.01).mean()
    assert draft(plan).cost(clock.times(plan.rounds), mechanism, forget) == pytest.approx(wanted, rel=1e-6)
    other = draft(planned(trust, cap + 1)).cost(clock.times(plan.rounds), mechanism, forget)
    assert other != pytest.approx(wanted, rel=1e-3)  # another cap is another draft


def test_a_clock_is_predicted_in_visits() -> None:
    plan = planned("secure-sum", 1)
    assert Course.of(plan) == Course.of(plan.in_visits())
    assert Course.of(plan).times[-1] == CLINIC.visits_per_silo


@pytest.mark.parametrize("privacy", [Privacy(0.5, 1e-6), Privacy(2.0, 1e-6), Privacy(20.0, 1e-4)])
def test_choosing_by_drafts_loses_next_to_nothing(privacy: Privacy) -> None:
    """Against every ratio and first sync there is, each with its best mechanism: within two per cent."""
    consortium = replace(CLINIC, privacy=privacy, visits=1)
    chosen = next(one for one in best.recommended(consortium).options if one.name == "secure-sum")
    base = plan_for("secure-sum", consortium.plan(trust="none", centre=0.5, ratio=4.0))
    costs = []
    for ratio, first in product((1.0, *best.RATIOS), best.FIRSTS):
        times = Clock(consortium.period, ratio, first).times(consortium.periods)
        one = Draft(base, consortium.arms, consortium.attendance, consortium.rows)
        costs += [one.cost(times, mechanism) for mechanism in mechanisms_for(len(times))]
    assert chosen.cost <= 1.02 * min(costs), (chosen.plan, chosen.cost, min(costs))
    assert max(costs) > 1.1 * min(costs)


def test_a_proposal_computes_no_factorisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is left to the second step."""
    asked: set[str] = set()
    make = mechanisms.encoder

    def noted(name: str, size: int, forget: float = 1.0) -> Encoder:
        asked.add(name)
        return make(name, size, forget)

    monkeypatch.setattr(mechanisms, "encoder", noted)
    drafts._gain.cache_clear()
    proposal = best.proposed(CLINIC)
    assert drafts.QUICK in asked
    assert not asked & {"early", "optimal", "blt"}
    advice = best.refined(proposal)
    assert asked >= {"early", "optimal"}
    assert [one.plan for one in advice.options] == [one.plan for one in best.recommended(CLINIC).options]
    assert [one.cost for one in advice.options] == sorted(one.cost for one in advice.options)
    first, second = proposal.options[0].plan, advice.options[0].plan
    assert first is not None
    assert second is not None
    assert first.changed(mechanism=second.mechanism) == second


def test_other_budgets_are_as_refined_as_the_advice() -> None:
    proposal = best.proposed(CLINIC)
    for advice, allowed in ((proposal, {drafts.QUICK}), (best.refined(proposal), {"early", "optimal"})):
        others = best.at_other_budgets(advice, "secure-sum")
        assert list(others) == [0.5, 2.0]
        assert {one.plan.mechanism for one in others.values() if one.plan is not None} <= allowed
        assert others[2.0].cost < advice.options[0].cost < others[0.5].cost
