"""Compiled kernels of the simulation engine: one call plays a block of rounds for all runs, silos and protocols.

Every protocol meets the same users: the same actions, and the same random number behind the reward, whichever action is
chosen. Results depend only on the arguments, not on the number of threads.
"""

from __future__ import annotations

from fedbandit.simulator.kernels.checked import play, play_fixed, play_partly
from fedbandit.simulator.kernels.contexts import contexts_of
from fedbandit.simulator.kernels.exploring import policy_row
from fedbandit.simulator.kernels.layout import (
    BERNOULLI,
    CLIPPED,
    GAUSSIAN,
    Beliefs,
    Fresh,
    Kept,
    Local,
    Rewards,
    Table,
    Tally,
    Users,
    make_table,
    make_users,
)

__all__ = [
    "BERNOULLI",
    "CLIPPED",
    "GAUSSIAN",
    "Beliefs",
    "Fresh",
    "Kept",
    "Local",
    "Rewards",
    "Table",
    "Tally",
    "Users",
    "contexts_of",
    "make_table",
    "make_users",
    "play",
    "play_fixed",
    "play_partly",
    "policy_row",
]
