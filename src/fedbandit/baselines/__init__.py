"""Algorithms of other papers as plans, one file each, with the same three names in every file.

`PAPER` cites the source, `PROMISE` says what is promised against whom, and `plan(asked)` is the plan for the silos,
rounds, dimension and budget of `asked`. Most algorithms are for one agent that meets all users one by one: their plans
have one silo, and as many rounds as `asked` has users (silos times rounds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fedbandit import _validate
from fedbandit.baselines import azize_basu, chowdhury_zhou, he, shariff_sheffet, zheng
from fedbandit.plan import Plan
from fedbandit.protocol.guarantee import Calibration

__all__ = ["BASELINES", "Baseline", "baseline"]


class Baseline(NamedTuple):
    """An algorithm of the literature."""

    paper: str
    promise: str
    plan: Callable[[Plan, Calibration], Plan]
    calibrations: tuple[Calibration, ...]  # the first is the paper's own


OWN_NOISE: tuple[Calibration, ...] = ("literature", "exact")
COMPUTED: tuple[Calibration, ...] = ("exact",)  # the paper states no constants, or there is no noise
#: The protocols of other papers, by name.
BASELINES = {
    "shariff-sheffet": Baseline(shariff_sheffet.PAPER, shariff_sheffet.PROMISE, shariff_sheffet.plan, OWN_NOISE),
    "zheng": Baseline(zheng.PAPER, zheng.PROMISE, zheng.plan, OWN_NOISE),
    "chowdhury-zhou": Baseline(chowdhury_zhou.PAPER, chowdhury_zhou.PROMISE, chowdhury_zhou.plan, COMPUTED),
    "azize-basu": Baseline(azize_basu.PAPER, azize_basu.PROMISE, azize_basu.plan, COMPUTED),
    "he": Baseline(he.PAPER, he.PROMISE, he.plan, COMPUTED),
}


def baseline(name: str, asked: Plan, calibration: Calibration | None = None) -> Plan:
    """The baseline `name` for the silos, rounds, dimension and budget of `asked`.

    >>> from fedbandit.privacy.budget import Privacy
    >>> asked = Plan(silos=10, rounds=100, dim=5, privacy=Privacy(epsilon=1.0, delta=1e-5))
    >>> agent = baseline("shariff-sheffet", asked)
    >>> agent.silos, agent.rounds, agent.guarantee.pair
    (1, 1000, '(1, 1e-05)')
    >>> baseline("he", asked).guarantee.promised
    False
    """
    known = BASELINES[_validate.one_of("baseline", name, BASELINES)]
    return known.plan(asked, known.calibrations[0] if calibration is None else calibration)
