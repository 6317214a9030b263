"""Tuning, the best plan, and the payoff on shuffling."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product

import pytest
from scipy.optimize import minimize_scalar

from fedbandit.plan import Plan
from fedbandit.planner import best, tuning
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.prediction import predicted
from fedbandit.planner.studies import shuffling
from fedbandit.presets import isolated
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import joint_shift
from fedbandit.schedule import Clock, growing
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

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
    for trust in ("silo", "secure-sum"):
        plan = BASE.changed(trust=trust)
        better = tuning.tuned(plan, centred=True)
        assert (better.guarantee.epsilon, better.guarantee.delta) == (1.0, 0.1)
        assert predicted(better).mean() < predicted(plan).mean()
        assert better.syncs is not None
        assert better.syncs <= 90
        assert better.mechanism in ("early", "optimal")


def test_a_horizon_too_long_for_a_factorisation_gets_buffers() -> None:
    assert tuning.mechanisms_for(128) == ("early", "optimal")
    assert tuning.mechanisms_for(512) == ("early",)
    assert tuning.mechanisms_for(513) == ("blt",)


CLINIC = Consortium(silos=12, people_per_day=20, days=120, dim=8, privacy=Privacy(1.0, 1e-6), arms=4)


@pytest.mark.parametrize(("trust", "expected"), [("silo", "silo"), ("secure-sum", "secure-sum")])
def test_the_best_plan_for_every_trust(trust: str, expected: str) -> None:
    advice = best.recommended(replace(CLINIC, trust=trust, privacy=Privacy(4.0, 1e-4)))
    assert advice.name == expected
    assert advice.best is not None
    assert advice.best.plan is not None
    costs = [one.cost for one in advice.options]
    assert costs == sorted(costs)
    plan = advice.best.plan
    assert plan.guarantee.promised
    assert isinstance(plan.schedule, Clock)
    assert (plan.rounds, plan.people, plan.confidence, plan.centre) == (120, 20, "practical", 0.5)


def test_where_alone_is_better_it_is_recommended() -> None:
    advice = best.recommended(replace(CLINIC, privacy=Privacy(0.02, 1e-6)))
    assert (advice.name, advice.best, advice.break_even_day, advice.paid_back_day) == ("alone", None, None, None)
    assert advice.options[0].cost > advice.alone.mean()


def test_every_option_is_predicted_for_every_visit() -> None:
    """The paper's protocols, too: they forgot how many people come in a period."""
    shop = Consortium(silos=5, people_per_day=100, days=60, dim=10, arms=20, privacy=Privacy(10.0, 1e-6))
    advice = best.recommended(shop)
    assert {one.name for one in advice.options} >= {"ldp", "local", "silo", "secure-sum"}
    for option in advice.options:
        assert option.plan is not None
        assert option.plan.in_visits().rounds == shop.visits_per_silo, option.name
    assert next(one for one in advice.options if one.name == "ldp").cost > advice.options[0].cost


def test_a_person_counts_as_often_as_it_pays() -> None:
    """More visits that count need more noise; where noise hardly matters they pay."""
    few = best.recommended(replace(CLINIC, visits=5, back_after=30))
    many = best.recommended(replace(CLINIC, visits=5, mean_visits=4.8, privacy=Privacy(50.0, 1e-2)))
    assert few.best is not None
    assert few.best.plan is not None
    assert few.best.plan.cap == 1
    assert many.best is not None
    assert many.best.plan is not None
    assert many.best.plan.cap is not None
    assert many.best.plan.cap > 1


@pytest.mark.parametrize(
    ("silos", "visits", "days", "epsilon", "ratio"),
    [
        (12, 12, 30, 1.0, 1.87),
        (12, 5, 60, 1.0, 1.56),
        (12, 12, 30, 3.0, 1.45),
        (50, 12, 30, 5.0, 1.02),
        (12, 52, 7, 3.0, 2.53),
    ],
)
def test_visits_that_lie_apart_are_not_worth_their_noise(
    silos: int, visits: int, days: int, epsilon: float, ratio: float
) -> None:
    """What docs/planning.md says of them: the best cap and period against first visits on a growing schedule."""
    privacy = Privacy(epsilon, 1e-6)
    consortium = Consortium(silos, 20, 365, 20, privacy, visits=visits, mean_visits=0.9 * visits, back_after=days)
    attendance = replace(consortium.attendance, between=20 * days)
    proposal = best.proposed(consortium).options[0]
    assert proposal.plan is not None
    costs = []
    for cap, period in product((2, 4, visits), (1, 7)):
        spaced = replace(privacy, participations=cap, apart=max(1, days // period))
        clock = {"schedule": Clock(86_400.0 * period), "rounds": 365 // period, "people": 20 * period}
        plan = proposal.plan.changed(privacy=spaced, **clock)
        costs.append(predicted(plan, 4, attendance, constant_share=consortium.rows).mean())
    assert min(costs) / proposal.cost == pytest.approx(ratio, abs=0.02)


def test_days_of_break_even() -> None:
    advice = best.recommended(CLINIC)
    assert advice.best is not None
    assert advice.best.prediction is not None
    day, made_up = advice.break_even_day, advice.paid_back_day
    assert day is not None
    assert made_up is not None
    assert 1 < day < made_up < 120
    ours = advice.best.prediction
    assert advice.regret(ours, day - 2, day - 1) > advice.regret(advice.alone, day - 2, day - 1)
    assert all(advice.regret(ours, d - 1, d) <= advice.regret(advice.alone, d - 1, d) for d in range(day, 121))
    assert advice.lost(ours, made_up - 1) > advice.lost(advice.alone, made_up - 1)
    assert advice.lost(ours, made_up) <= advice.lost(advice.alone, made_up)


def test_a_constant_is_what_centring_needs() -> None:
    plan = best.recommended(replace(CLINIC, constant=False, privacy=Privacy(4.0, 1e-4))).options[0].plan
    assert plan is not None
    assert (plan.centre, plan.ratio) == (0.0, 1.0)


def test_where_there_is_nothing_to_gain_nobody_federates() -> None:
    """One action: nothing can be lost. On a line, one visit tells everything that there is to know."""
    for change in ({"arms": 1}, {"dim": 2}, {"silos": 1}, {"days": 1}, {"consenting": 0.0}):
        advice = best.recommended(replace(CLINIC, **change))
        assert advice.name == "alone", change
        assert advice.alone.mean() <= min(one.cost for one in advice.options)


def test_sizes_far_out_are_answered() -> None:
    for change in (
        {"arms": 10**6, "days": 30},
        {"visits": 10**6, "days": 30},
        {"privacy": Privacy(1e-9, 1e-9), "days": 30},
        {"privacy": Privacy(1e6, 1e-6), "days": 30},
        {"silos": 10**5, "people_per_day": 10**5, "days": 3},
    ):
        assert best.proposed(replace(CLINIC, **change)).options, change


def test_a_line_is_predicted_as_it_is_simulated() -> None:
    """In two dimensions one is the constant, and the sign of the other is all there is to learn."""
    line = replace(CLINIC, dim=2, people_per_day=10, days=60)
    advice = best.recommended(line)
    plan = advice.options[0].plan
    assert plan is not None
    played, users = plan.in_visits(), synthetic(2, line.arms, constant_share=line.rows)
    result = simulate(users, {"federation": played, "alone": isolated(played)}, runs=6, seed=77)
    for name, prediction in (("federation", advice.options[0].prediction), ("alone", advice.alone)):
        assert prediction is not None
        measured, told = result.regret(name), advice.regret(prediction)
        assert abs(told - measured.mean) < 4 * measured.stderr + 0.2 * measured.mean, (name, told, measured)


def test_what_a_setting_refuses() -> None:
    for change, message in (
        ({"silos": 0}, "silos must be a whole number >= 1, got 0"),
        ({"people_per_day": 0}, "people_per_day must be a whole number >= 1, got 0"),
        ({"dim": 1}, "dim must be at least 2, got 1"),
        ({"sync": "hourly"}, "sync must be one of daily, weekly, monthly; got 'hourly'"),
        ({"sync": "monthly", "days": 20}, "days must be at least the 30 between two syncs, got 20"),
        ({"mean_visits": 2.0}, "mean_visits has no effect where everybody comes once"),
        ({"back_after": 5}, "back_after has no effect where everybody comes once"),
        ({"constant_share": 1.0}, "constant_share must lie strictly between 0 and 1, got 1.0"),
        ({"constant_share": 0.3, "constant": False}, "constant_share has no effect where rows hold no constant"),
        ({"privacy": Privacy(1.0, 1e-6, silos_per_user=13)}, "silos_per_user must be at most the 12 silos, got 13"),
        ({"consenting": 1.5}, "consenting must lie between 0 and 1, got 1.5"),
        ({"visits": 3, "mean_visits": 4.0}, "mean_visits must lie between 1 and the 3 visits, got 4.0"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            replace(CLINIC, **change)


def test_a_setting_reads_back() -> None:
    consortium = replace(CLINIC, visits=5, back_after=30, sync="weekly", consenting=0.5)
    assert Consortium.from_dict(consortium.as_dict()) == consortium
    assert consortium.periods == 17
    assert consortium.people_per_period == 140
    assert consortium.plan().in_visits().rounds == consortium.visits_per_silo == 17 * 140


def test_what_asks_for_no_more_trust_than_the_user_gives() -> None:
    local = {"local"}
    silo = local | {"ldp", "silo"}
    two = silo | {"sdp-amplified", "sdp-vector-sum", "secure-sum"}
    for trust, expected in (("local", local), ("silo", silo), ("secure-sum", two), ("shuffle", two)):
        assert set(best.acceptable(trust)) == expected
    assert set(best.acceptable("central")) == {*two, "super-agent", "central"} == set(best.CANDIDATES)


def test_what_cannot_be_used_says_why() -> None:
    reasons = {one.name: one.reason for one in best.recommended(CLINIC).impossible}
    assert "epsilon must be at most about" in reasons["sdp-amplified"]
    assert "schedule must count rounds" in reasons["sdp-vector-sum"]
    with pytest.raises(ValueError, match=r"^trust must be one of central, local, .*silo, .*; got 'nobody'"):
        best.recommended(replace(CLINIC, trust="nobody"))


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


def test_rows_are_the_consortiums_whatever_the_plan() -> None:
    """A plan that is not centred is predicted for the same rows as the others, and as staying alone."""
    heavy = replace(CLINIC, constant_share=0.97, privacy=Privacy(35.0, 1e-5))
    costs = {one.name: one.cost for one in best.proposed(heavy).options}
    light = {one.name: one.cost for one in best.proposed(replace(heavy, constant_share=0.1)).options}
    assert costs["local"] > 1.2 * light["local"]
