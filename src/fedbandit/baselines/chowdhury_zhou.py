"""Chowdhury & Zhou 2022: LinUCB in the shuffle model, users behind a mixer (their protocol P_Amp).

Users come in batches of fixed size. Each user adds noise to x x^T and x y and sends them, a mixer permutes the batch,
and the agent adds it up. Larger batches hide a user better but leave the agent without news for longer: the two terms
of their bound balance at batches of N^(3/5) for N users.

Their radii are those of Lemma subG in the federated paper, which has the same authors.
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
    """Their Algorithm 1 with P_Amp. There is no other calibration, because the theorem does not state its constants."""
    return one_by_one(
        asked,
        trust="shuffled-users",
        mechanism="batches",
        schedule=batches(asked.silos * asked.rounds),
        calibration=calibration,
        confidence="theory",
    )


def batches(users: int) -> At:
    """Batches of N^(3/5) users. The last also takes the remainder, because a smaller batch would hide a user less."""
    size = max(1, round(users**0.6))
    return At((*range(size, users - size + 1, size), users))
