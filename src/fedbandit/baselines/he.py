"""He et al. 2022: FedLinUCB, asynchronous and without privacy.

A silo decides by the model that it fetched last. When the determinant of its own covariance has grown by the factor
1 + 1/M^2 since then, it sends what it has collected and fetches the new model. No other silo has to be present.
"""

from __future__ import annotations

import math

from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import Adaptive

__all__ = ["PAPER", "PROMISE", "plan"]

PAPER = (
    "He, Wang, Min & Gu, A Simple and Provably Efficient Algorithm for Asynchronous Federated Contextual Linear "
    "Bandits, NeurIPS 2022"
)
PROMISE = "none"


def plan(asked: Plan, calibration: Calibration = "exact") -> Plan:
    """Their FedLinUCB; there is no noise to calibrate."""
    return Plan(
        asked.silos,
        asked.rounds,
        asked.dim,
        trust="none",
        mechanism="batches",
        schedule=Adaptive(math.log1p(asked.silos**-2), alone=True),
        calibration=calibration,
        confidence="he",
        alpha=asked.alpha,
        bits=asked.bits,
    )
