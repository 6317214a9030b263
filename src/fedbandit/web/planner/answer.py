"""What the planner's page shows: the recommendation of `fedbandit plan --best`, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from fedbandit._words import counted
from fedbandit.audit.certificate import promise_in_words
from fedbandit.planner.best import ALONE, Option, Recommendation, at_other_budgets, proposed, refined
from fedbandit.planner.consortium import Consortium
from fedbandit.planner.in_words import as_dict, assumptions, described, sentences, set_up, title
from fedbandit.planner.prediction import Prediction, predicted
from fedbandit.presets import plan_for
from fedbandit.privacy.budget import exactly
from fedbandit.schedule import Clock
from fedbandit.web.planner.pictures import matrix, sight

__all__ = ["OPEN", "advised", "answer", "budgets", "quickly_advised", "unprotected"]

OPEN = "fed-lin-ucb"  # the same silos without privacy: the cost of privacy is measured against them
POINTS = 60  # of a curve


@lru_cache(maxsize=64)
def quickly_advised(consortium: Consortium) -> Recommendation:
    """The recommendation before mechanisms are chosen: quick enough to follow somebody's typing."""
    return proposed(consortium)


@lru_cache(maxsize=64)
def advised(consortium: Consortium) -> Recommendation:
    """The recommendation. It is cached, because the simulation and the copies ask for it again."""
    return refined(quickly_advised(consortium))


def answer(advice: Recommendation) -> dict[str, Any]:
    """All that the page shows of a recommendation."""
    consortium = advice.consortium
    free = unprotected(consortium)
    named = {ALONE: advice.alone, **{one.name: one.prediction for one in advice.options if one.prediction}, OPEN: free}
    options = [_option(one, advice) for one in advice.options]
    return {
        **as_dict(advice, {}),
        "name": advice.name,
        "title": title(consortium),
        "sentences": sentences(advice),
        "headline": _headline(advice),
        "questions": _questions(advice, free),
        "assumes": assumptions(consortium),
        "consortium": consortium.as_dict(),
        "plans": options,
        "open": {"name": OPEN, "lost": advice.lost(free, consortium.days)},
        "visits": consortium.silos * consortium.visits_per_silo,
        "days": consortium.days,
        "curves": _curves(advice, named),
        "matrices": {one.name: matrix(one.plan) for one in advice.options if one.plan},
        "sight": {one.name: sight(one.plan) for one in advice.options if one.plan},
    }


def budgets(consortium: Consortium) -> dict[str, Any]:
    """What the recommended (or best) protocol would cost with half and with double the epsilon."""
    advice = advised(consortium)
    if not advice.options:
        return {"name": None, "epsilons": []}
    first = advice.options[0]
    found = {consortium.privacy.epsilon: first, **at_other_budgets(advice, first.name)}
    rows = [{"epsilon": epsilon, **_lost(one, advice)} for epsilon, one in sorted(found.items())]
    return {"name": first.name, "alone": advice.lost(advice.alone, consortium.days), "epsilons": rows}


def unprotected(consortium: Consortium) -> Prediction:
    """A prediction for the same silos without privacy, synchronising as often as they can."""
    plan = plan_for(OPEN, consortium.plan(trust="none"), Clock(consortium.period))
    return predicted(plan, consortium.arms, constant_share=consortium.rows, drift=consortium.drift_per_visit)


def _headline(advice: Recommendation) -> str:
    """Whether to federate, for readers who know no protocol by name."""
    consortium, best = advice.consortium, advice.best
    alone = f"{advice.lost(advice.alone, consortium.days):,.0f}"
    span = f"outcomes in {counted(consortium.days, 'day')}"
    if best is not None and best.prediction is not None:
        missed = f"{advice.lost(best.prediction, consortium.days):,.0f}"
        return f"Yes, federate: together your silos are predicted to miss {missed} {span}, alone {alone}."
    first = next((one.prediction for one in advice.options if one.prediction is not None), None)
    if first is None:
        return f"No, stay alone: no federation is possible here. Alone your silos are predicted to miss {alone} {span}."
    missed = f"{advice.lost(first, consortium.days):,.0f}"
    return f"No, stay alone: your silos are predicted to miss {alone} {span}, in the best federation {missed}."


def _questions(advice: Recommendation, free: Prediction) -> list[tuple[str, str]]:
    """What people want to know before they sign, in words that do not assume the paper."""
    epsilon, best = advice.consortium.privacy.epsilon, advice.best
    asked = [
        (
            "What is a missed outcome?",
            "A good outcome that would have come if everybody had been given the action that is best for them. Nobody "
            "knows that action at first: learning it costs outcomes, and noise makes learning slower.",
        ),
        (f"What does epsilon {exactly(epsilon)} cost?", _cost_of_privacy(advice, free)),
    ]
    if best is None or best.plan is None:
        return asked
    return [
        *asked,
        ("Which set-up?", " ".join([f"The protocol {best.name}. {best.plan.trusting.who}", *set_up(best.plan)])),
        ("What can each person be told?", promise_in_words(best.plan)),
    ]


def _cost_of_privacy(advice: Recommendation, free: Prediction) -> str:
    """What the budget costs in outcomes, for the best federation."""
    consortium = advice.consortium
    if not advice.options or advice.options[0].prediction is None:
        return "No federation with this promise is possible here."
    first, days = advice.options[0], consortium.days
    assert first.prediction is not None
    without, private = advice.lost(free, days), advice.lost(first.prediction, days)
    share = max(0.0, private - without) / (consortium.silos * consortium.visits_per_silo)
    return (
        f"{max(0.0, private - without):,.0f} outcomes in {counted(days, 'day')}, {share:.1%} of all visits: with "
        f"{first.name} the silos miss {private:,.0f}; if they shared everything openly, they would miss {without:,.0f}."
    )


def _option(one: Option, advice: Recommendation) -> dict[str, Any]:
    plan = one.plan
    assert plan is not None
    guarantee = plan.guarantee
    return {
        **described(one, advice),
        **_lost(one, advice),
        "noise": plan.noise_std,
        "bytes": plan.bytes_per_silo,
        "guarantee": guarantee.statement,
        "who": plan.trusting.who,
        "answers": [list(pair) for pair in guarantee.answers],
    }


def _lost(one: Option, advice: Recommendation) -> dict[str, Any]:
    if one.prediction is None:
        return {"lost": None, "reason": one.reason}
    lost, alone = (advice.lost(each, advice.consortium.days) for each in (one.prediction, advice.alone))
    return {"lost": lost, "of_alone": lost / alone if alone else None}


def _curves(advice: Recommendation, named: dict[str, Prediction]) -> dict[str, Any]:
    """The outcomes missed by the end of each of POINTS days."""
    days = np.unique(np.linspace(1, advice.consortium.days, POINTS).round().astype(int)).tolist()
    lines: Iterable[tuple[str, Prediction]] = named.items()
    return {"days": days, "lost": {name: [advice.lost(one, day) for day in days] for name, one in lines}}
