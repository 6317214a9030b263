"""Zheng et al. 2020: LinUCB in the local model, where users trust nobody.

Each user adds Gaussian noise to x x^T and x y and sends them, and the agent adds them up. V is shifted by twice a bound
on the noise of all users so far, which grows with the square root of their number.
"""

from __future__ import annotations

from fedbandit.baselines.sequential import one_by_one
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import Every

__all__ = ["PAPER", "PROMISE", "plan"]

PAPER = "Zheng, Cai, Huang, Li & Wang, Locally Differentially Private (Contextual) Bandits Learning, NeurIPS 2020"
PROMISE = "local DP: everybody"


def plan(asked: Plan, calibration: Calibration = "literature") -> Plan:
    """Their algorithm for as many users as `asked` has; `exact` adds the least sufficient noise."""
    return one_by_one(
        asked, trust="local", mechanism="batches", schedule=Every(1), calibration=calibration, confidence="zheng"
    )
