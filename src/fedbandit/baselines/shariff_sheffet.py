"""Shariff & Sheffet 2018: LinUCB under joint differential privacy, one agent trusted with everything.

The agent meets its users one by one. The matrix of (x, y) times itself is summed by a tree over all users, Gaussian
noise on every node; V is shifted by 2 Upsilon, which keeps it positive. A user's own action is for the user alone, and
everything that others see of the user went through the noise.
"""

from __future__ import annotations

from fedbandit.baselines.sequential import one_by_one
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import Every

__all__ = ["PAPER", "PROMISE", "plan"]

PAPER = "Shariff & Sheffet, Differentially Private Contextual Linear Bandits, NeurIPS 2018"
PROMISE = "joint DP: everybody but the agent"
RATIO = 2.0  # x x^T and x y are parts of one matrix: off its diagonal a number stands twice


def plan(asked: Plan, calibration: Calibration = "literature") -> Plan:
    """Algorithm 1 with Gaussian noise, for as many users as `asked` has; `exact`: with the least noise that will do."""
    return one_by_one(
        asked,
        trust="central",
        mechanism="tree",
        schedule=Every(1),
        ratio=RATIO,
        calibration=calibration,
        confidence="shariff-sheffet",
    )
