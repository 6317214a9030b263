"""Attacks as worked examples, one file each, each with the defence that stops it.

A module here has an `ATTACK`; its file's name, with dashes, is the name it is run by. Most are guessing games: a coin
decides which of two worlds is played, the adversary guesses, and one half is what guessing blindly gets.
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
    """How well the attack did without the defence and with it, and what the defence's promise allows."""

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
    run: Callable[[int, np.random.Generator], Measured]  # trials and randomness to the result
    trials: int


def names() -> tuple[str, ...]:
    """Every attack there is."""
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
    """Share of right guesses."""
    return float(np.mean(guesses == truth))
