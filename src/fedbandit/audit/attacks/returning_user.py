"""A returning user: noise for one visit does not hide twenty-five visits.

A user who takes part in m rounds of one batch moves its sum m times as far. A plan says how many visits it covers
(`participations`), and a silo leaves further visits out of the statistics.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess
from fedbandit.audit.attacks.batch_flip import guessed
from fedbandit.audit.calendar_game import calendar_game
from fedbandit.audit.worlds import neighbours
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import Every

__all__ = ["ATTACK"]

VISITS = 25
BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """The same person comes in all rounds of a batch, and the analyzer says which of two people it was."""
    plan = Plan(silos=2, rounds=200, dim=2, privacy=BUDGET, trust="silo", schedule=Every(VISITS))
    capped = calendar_game(plan, 1, neighbours(plan, 1))
    often = plan.changed(privacy=replace(BUDGET, participations=VISITS))
    uncapped = replace(capped, worlds=neighbours(often, 1))  # noise for one visit, but the user comes 25 times
    return Measured(
        RIGHT_GUESSES, guessed(uncapped, trials, rng), guessed(capped, trials, rng), best_guess(BUDGET), trials
    )


ATTACK = Attack(
    title="A user who comes back",
    adversary="the analyzer, which sees the silo's noisy releases",
    learns="which of two people came 25 times",
    defence="a cap: a silo counts a user as often as the plan's `participations` allow, and the noise covers that many",
    remains="users that the silo cannot recognise: the cap is only as good as the user keys",
    run=run,
    trials=4000,
)
