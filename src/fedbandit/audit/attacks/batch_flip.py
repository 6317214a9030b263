"""The within-batch flip against Algorithm 1: one user changes the actions of all later users of the batch.

A silo that acts on raw sums and has seen the user's action rewarded gives it to everybody after them in the batch. The
batch sum then moves by 25 users, not by one, and noise for one user does not hide that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedbandit import presets
from fedbandit.audit.attacks import RIGHT_GUESSES, Attack, Measured, best_guess
from fedbandit.audit.calendar_game import CalendarGame, calendar_game
from fedbandit.audit.worlds import neighbours
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise

__all__ = ["ATTACK", "guessed"]

BUDGET = Privacy(1.0, 1e-5)


def run(trials: int, rng: np.random.Generator) -> Measured:
    """The adversary sees everything that the silo sends and says which of two users came first."""
    plan = presets.ldp_eager(Plan(silos=100, rounds=1600, dim=10, privacy=BUDGET))
    eager = calendar_game(plan, 1, neighbours(plan, 1))
    lazy = replace(eager, eager=False)
    return Measured(RIGHT_GUESSES, guessed(eager, trials, rng), guessed(lazy, trials, rng), best_guess(BUDGET), trials)


def guessed(game: CalendarGame, trials: int, rng: np.random.Generator) -> float:
    """The share of right guesses of the game's first adversary, with half of the trials in each world."""
    noise = SimulatedNoise(rng)
    said_one = [game.play(world, trials // 2, noise).scores[0] > 0 for world in (0, 1)]
    return float(np.mean([~said_one[0], said_one[1]]))


ATTACK = Attack(
    title="The within-batch flip: one user moves 25",
    adversary="the analyzer, which sees the silo's noisy releases",
    learns="which of two users came first",
    defence="act lazily: decide by synchronised statistics only",
    remains="what the noise allows, the plan's own (epsilon, delta)",
    run=run,
    trials=1000,
)
