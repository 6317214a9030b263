"""Shariff & Sheffet 2018: LinUCB under joint differential privacy, with one agent that is trusted with everything.

The agent meets its users one by one. A tree over all users sums the outer products of (x, y) with itself, with Gaussian
noise on every node; V is shifted by 2 Upsilon, which keeps it positive. Only the user sees their own action, and
everything that others see of the user has passed through the noise.
"""

from __future__ import annotations

from fedbandit.baselines.sequential import one_by_one
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import Every

__all__ = ["PAPER", "PROMISE", "plan"]

PAPER = "Shariff & Sheffet, Differentially Private Contextual Linear Bandits, NeurIPS 2018"
PROMISE = "joint DP: everybody but the agent"
RATIO = 2.0  # x x^T and x y are parts of one symmetric matrix, in which every off-diagonal number appears twice


def plan(asked: Plan, calibration: Calibration = "literature") -> Plan:
    """Algorithm 1 with Gaussian noise, for as many users as `asked` has; `exact` adds the least sufficient noise."""
    return one_by_one(
        asked,
        trust="central",
        mechanism="tree",
        schedule=Every(1),
        ratio=RATIO,
        calibration=calibration,
        confidence="shariff-sheffet",
    )
