"""Compiled kernels of the simulation engine: one call plays a block of rounds for all runs, silos and protocols.

Every protocol meets the same users: the same actions, and the same random number behind the reward of whichever action
is chosen. Results depend on the arguments alone, not on the number of threads.
"""

from __future__ import annotations

from fedbandit.simulate.kernels.contexts import contexts_of, draw_contexts, set_of
from fedbandit.simulate.kernels.layout import (
    BERNOULLI,
    CLIPPED,
    GAUSSIAN,
    Beliefs,
    Fresh,
    Local,
    Rewards,
    Table,
    Tally,
    Users,
    make_table,
    make_users,
)
from fedbandit.simulate.kernels.play import (
    play_eager_fixed,
    play_eager_fresh,
    play_eager_table,
    play_lazy_fresh,
    play_lazy_table,
)

__all__ = [
    "BERNOULLI",
    "CLIPPED",
    "GAUSSIAN",
    "Beliefs",
    "Fresh",
    "Local",
    "Rewards",
    "Table",
    "Tally",
    "Users",
    "contexts_of",
    "draw_contexts",
    "make_table",
    "make_users",
    "play_eager_fixed",
    "play_eager_fresh",
    "play_eager_table",
    "play_lazy_fresh",
    "play_lazy_table",
    "set_of",
]
