"""Attacks as worked examples, one file each, each with the defence that stops it.

Each module here has an `ATTACK`; the attack's name is the name of the file, with dashes. Most are guessing games: a
coin decides which of two worlds is played, and the adversary guesses. Blind guesses are right half of the time.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from fedbandit import _validate
from fedbandit._arrays import Flags
from fedbandit.privacy.accounting import gaussian_sigma
from fedbandit.privacy.budget import Privacy

__all__ = ["RIGHT_GUESSES", "Attack", "Measured", "attack", "best_guess", "names", "right"]

RIGHT_GUESSES = "share of right guesses"


class Measured(NamedTuple):
    """How well the attack did without and with the defence, and how well the defence's promise allows it to do."""

    measure: str
    exposed: float
    defended: float
    limit: float
    trials: int


@dataclass(frozen=True)
class Attack:
    """A worked example."""

    title: str
    adversary: str  # who, and what it sees
    learns: str  # what it finds out without the defence
    defence: str
    remains: str  # what the defence does not prevent
    run: Callable[[int, np.random.Generator], Measured]  # (trials, randomness) -> result
    trials: int


def names() -> tuple[str, ...]:
    """The names of all attacks."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)))


def attack(name: str) -> Attack:
    """The attack called `name`."""
    _validate.one_of("attack", name, names())
    found = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").ATTACK
    assert isinstance(found, Attack)
    return found


def best_guess(budget: Privacy) -> float:
    """The share of right guesses that Gaussian noise at exactly this budget allows: Phi(mu / 2)."""
    return float(ndtr(0.5 / gaussian_sigma(budget.epsilon, budget.delta)))


def right(guesses: Flags, truth: Flags) -> float:
    """The share of right guesses."""
    return float(np.mean(guesses == truth))
