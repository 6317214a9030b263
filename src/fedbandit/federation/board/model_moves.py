"""How far each model moved from the one before: large moves late in a term are a sign that the world is changing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.plan import Plan

__all__ = ["SHOWN", "Moves", "moments"]

SHOWN = 400  # number of last syncs that a page shows of an endless run


def moments(plan: Plan, moment: Callable[[int], float | None], first: int, done: int) -> list[float]:
    """The public times of the syncs from `first` on, to the last or (endless) to the next; empty if unknown."""
    end = done + 1 if plan.endless else len(plan.times)
    found = [moment(sync) for sync in range(first, end)]
    return [one for one in found if one is not None]


class Moves:
    """The moves of models, which are public within the federation; each model is read once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._last: Floats | None = None
        self._moved = list[list[float]]()
        self.sync = -1  # of the last model that was taken

    def take(self, sync: int, prefix: Floats) -> None:
        """Take the model of a sync, given its prefix sum."""
        theta = np.asarray(self._plan.fit(prefix, self._plan.ticks[sync]).model.theta)
        if self._last is not None:
            self._moved.append([sync + 1, round(float(np.linalg.norm(theta - self._last)), 6)])
        self._last, self.sync = theta, sync

    def as_dict(self) -> dict[str, Any]:
        """The version, how far each model moved from the one before, and the length of the last theta."""
        length = 0.0 if self._last is None else float(np.linalg.norm(self._last))
        return {"version": self.sync + 1, "moved": self._moved[-SHOWN:], "length": round(length, 6)}
