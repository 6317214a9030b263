"""Chowdhury & Zhou 2022: LinUCB in the shuffle model, users behind a mixer (their protocol P_Amp).

Users come in batches of fixed size. Each sends x x^T and x y with noise of their own, a mixer permutes the batch, the
agent adds it up. Larger batches hide a user better and leave the agent longer without news: both terms of their bound
are in balance at a batch of N^(3/5) for N users.

Their radii are those of the federated paper's Lemma subG, which has the same authors.
"""

from __future__ import annotations

from fedbandit.baselines.sequential import one_by_one
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration
from fedbandit.schedule import At

__all__ = ["PAPER", "PROMISE", "batches", "plan"]

PAPER = "Chowdhury & Zhou, Shuffle Private Linear Contextual Bandits, ICML 2022"
PROMISE = "shuffle DP: everybody but the mixer"


def plan(asked: Plan, calibration: Calibration = "exact") -> Plan:
    """Their Algorithm 1 with P_Amp; there is no other calibration, for the theorem does not say its constants."""
    return one_by_one(
        asked,
        trust="shuffled-users",
        mechanism="batches",
        schedule=batches(asked.silos * asked.rounds),
        calibration=calibration,
        confidence="theory",
    )


def batches(users: int) -> At:
    """Batches of N^(3/5) users; the last takes in what is left, for a crowd that hides one may not be smaller."""
    size = max(1, round(users**0.6))
    return At((*range(size, users - size + 1, size), users))
