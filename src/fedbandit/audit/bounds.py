"""A lower bound on epsilon, from how often a distinguisher was right and wrong.

A distinguisher says "world 1" or "world 0" after each run. Its true and false positive rates get Clopper-Pearson
bounds, which hold at any number of runs, and then

* "gdp": mu >= Phi^-1(TPR) - Phi^-1(FPR) for every mu-GDP mechanism, and epsilon is read off the Gaussian curve at the
  claimed delta. It refutes a claim of mu-GDP; for Gaussian noise, where (epsilon, delta) and mu-GDP are the same
  statement, it refutes (epsilon, delta) and loses almost nothing.
* "dp": epsilon >= log((TPR - delta) / FPR) for every (epsilon, delta)-DP mechanism. It refutes (epsilon, delta) without
  any assumption, and proves at most about log(runs / 4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import betaincinv, ndtri

from fedbandit.privacy.accounting import gaussian_epsilon
from fedbandit.protocol.adversaries import Bound

__all__ = ["Rates", "epsilon_lower", "mu_lower", "rates"]


class Rates(NamedTuple):
    """What is known about a distinguisher: it has at least this power and at most this rate of false alarms."""

    power: float  # lower bound on TPR
    alarms: float  # upper bound on FPR


def rates(hits: int, alarms: int, trials: int, confidence: float) -> Rates:
    """Both bounds together at this confidence; "world 1" was said in `hits` of `trials` runs of world 1 and in `alarms`
    of `trials` runs of world 0."""
    each = (1 - confidence) / 2
    low = float(betaincinv(hits, trials - hits + 1, each)) if hits else 0.0
    high = float(betaincinv(alarms + 1, trials - alarms, 1 - each)) if alarms < trials else 1.0
    return Rates(low, high)


def mu_lower(known: Rates) -> float:
    """The least mu of a mu-GDP mechanism that allows these rates."""
    if known.power <= known.alarms:
        return 0.0
    return float(ndtri(known.power) - ndtri(known.alarms))


def epsilon_lower(known: Rates, delta: float, bound: Bound) -> float:
    """The least epsilon, at `delta`, that allows these rates; the module's docstring says what it refutes."""
    if bound == "gdp":
        return gaussian_epsilon(mu_lower(known), delta) if mu_lower(known) > 0 else 0.0
    said_one = _log_ratio(known.power - delta, known.alarms)
    said_zero = _log_ratio(1 - known.alarms - delta, 1 - known.power)
    return max(0.0, said_one, said_zero)


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 else 0.0
