"""The page of a silo, for its own staff only: its rewards over time, visits, releases and what the releases spent."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedbandit.federation.board.alarms import NOTHING, Facts, alarms, overdue
from fedbandit.federation.board.model_moves import SHOWN, Moves, moments
from fedbandit.federation.board.spending_curve import budget_of
from fedbandit.federation.silo.earnings import QUANTILE, Earned, Learning, RewardTrend
from fedbandit.federation.silo.silo_status import silo_status
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.silo_store import SiloStore
from fedbandit.federation.telemetry.troubles import Troubles
from fedbandit.federation.wire.parcels import Outcome
from fedbandit.plan import Plan

__all__ = ["Running", "SiloBoard"]

AGAIN = 1.0  # seconds until the store is read again
OVERSPENT = 1e-6  # relative: a smaller excess is rounding


class Running(NamedTuple):
    """What only a running silo knows about itself."""

    troubles: Troubles = NOTHING
    connected: bool | None = None  # None: it is not running, or was not asked
    refusals: Mapping[str, int] = NOTHING  # number of refused messages, by reason
    requests: Sequence[Mapping[str, Any]] = ()  # the last refused requests
    counts: Mapping[str, Mapping[str, float]] = NOTHING  # rewards by their fate, their delays, refusals
    machine: Mapping[str, float] = NOTHING


class SiloBoard:
    """What the page shows of a silo's newest term; without a store the silo has not begun."""

    def __init__(
        self,
        store: SiloStore | None,
        plan: Plan,
        name: str,
        moment: Callable[[int], float | None],
        deadline: float,
    ) -> None:
        self._store, self._plan, self._name = store, plan, name
        self._moment, self._deadline = moment, deadline
        self._lock, self._looked = threading.Lock(), -math.inf
        self._known: dict[str, Any] = {"started": False}
        self._moves = Moves(plan)

    def read(self, live: Running) -> dict[str, Any]:
        """The page's data. The store is read at most once in AGAIN seconds, however often the page is. While the store
        fails, the page shows the last known data, and the alarm."""
        with self._lock:
            if "store" not in live.troubles and time.monotonic() - self._looked > AGAIN:
                self._known = self._look()
                self._looked = time.monotonic()
            known = self._known
        spent_, budget = known.get("budget", {}).get("spent"), known.get("budget", {}).get("epsilon")
        overspent = spent_ is not None and budget is not None and spent_ > budget * (1 + OVERSPENT)
        gain = known["rewards"]["gain"][2] if known.get("rewards", {}).get("gain") else None
        late = overdue(self._moment(known["status"]["model"])) if known["started"] else None
        facts = Facts(live.troubles, late, self._deadline, overspent=overspent, gain_high=gain)
        facts = facts._replace(refusals=live.refusals, machine=live.machine)
        first = known.get("first", 0)
        return {
            "party": self._name,
            "role": "silo",
            "plan": self._plan.hash[:16],
            "guarantee": self._plan.guarantee.statement,
            "trust": self._plan.trust,
            "connected": live.connected,
            "alarms": [alarm._asdict() for alarm in alarms(facts)],
            "syncs": None if self._plan.endless else len(self._plan.times),
            "first": first,
            "moments": moments(self._plan, self._moment, first, first + len(known.get("states", ""))),
            "refusals": dict(live.refusals),
            "requests": list(live.requests),
            "counts": {name: dict(count) for name, count in live.counts.items()},
            **known,
        }

    def _look(self) -> dict[str, Any]:
        store, plan = self._store, self._plan
        terms = [] if store is None else store.terms()
        if store is None or not terms:
            return {"started": False}
        term = terms[-1]
        status = silo_status(store, plan, term)
        releases = store.releases(term.number)[-SHOWN if plan.endless else None :]
        for sync, value in store.models(term.number, self._moves.sync):
            outcome = Outcome.decode(value, plan)
            if not outcome.skipped:
                self._moves.take(sync, outcome.prefix)
        trend = RewardTrend(store, term.number, term.started)
        return {
            "started": True,
            "first": releases[0].sync if releases else 0,
            "status": status,
            "states": "".join(_letter(release.state) for release in releases),
            "budget": budget_of(plan, status["released"], status["epsilon_spent"]),
            "model": {**self._moves.as_dict(), "version": status["model"]},
            "rewards": _rewards(trend, trend.learning()),
        }


def _letter(state: ReleaseState) -> str:
    """One letter for the state of a release: p (in its sync), m (missed), g (given up) or w (on its way)."""
    letters = {ReleaseState.INCLUDED: "p", ReleaseState.MISSED: "m", ReleaseState.GIVEN_UP: "g"}
    return letters.get(state, "w")


def _rewards(trend: RewardTrend, learning: Learning | None) -> dict[str, Any]:
    """Mean rewards with 95 % intervals: over stretches of syncs with enough rewards, and over the first weeks."""
    stretches, first = trend.course()
    points = [{"first": one.first, "last": one.last, **_mean(one.earned)} for one in stretches]
    return {
        "points": points,
        "first": None if first is None else _mean(first),
        "gain": None if learning is None else list(learning.gain),
    }


def _mean(earned: Earned) -> dict[str, Any]:
    return {
        "visits": earned.visits,
        "mean": round(earned.mean, 5),
        "half": round(QUANTILE * math.sqrt(earned.error), 5),
    }
