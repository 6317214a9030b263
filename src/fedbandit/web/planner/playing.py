"""The page's federation, simulated: one run of one protocol at a time, as long as somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedbandit._arrays import Floats
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.best import ALONE, Recommendation
from fedbandit.planner.consortium import Consortium
from fedbandit.presets import isolated
from fedbandit.simulator.runner import Job, check, check_attendance, divided, recorded_rounds
from fedbandit.simulator.tasks import Synthetic, synthetic

__all__ = ["RUNS", "plays", "warm_up"]

RUNS = 20
BEST = 4  # protocols that are played, besides staying alone
LARGEST = 3e9  # visits x actions x dimension of one run: a larger run takes minutes and belongs on the command line
QUANTILE = 2.0  # standard errors of the band
_turn = threading.Semaphore(2)  # two simulations may run at once; others wait


class _Left(Exception):
    """The client has left."""


@dataclass
class _Tally:
    """Outcomes missed by each recorded round: the number of runs, the sum over runs, the sum of squares."""

    runs: int
    total: Floats
    squares: Floats

    def add(self, regret: Floats) -> None:
        self.runs, self.total, self.squares = self.runs + 1, self.total + regret, self.squares + regret**2

    def band(self) -> tuple[Floats, Floats]:
        """The mean, and the half width of its band, which is 0 for a single run."""
        mean = self.total / self.runs
        if self.runs == 1:
            return mean, np.zeros_like(mean)
        spread = np.maximum(0.0, self.squares / self.runs - mean**2) * self.runs / (self.runs - 1)
        return mean, np.asarray(QUANTILE * np.sqrt(spread / self.runs))


def plays(advice: Recommendation, gone: Callable[[], bool], runs: int = RUNS) -> Iterator[dict[str, Any]]:
    """Yield events: what is played, then each protocol's curve so far after each of its runs."""
    consortium = advice.consortium
    if consortium.visits_per_silo * consortium.silos * consortium.arms * consortium.dim > LARGEST:
        yield {"kind": "refused", "reason": "too large to be played here; `fedbandit simulate --plan` can play it"}
        return
    plans = _plans(advice)
    check(_task(consortium, next(iter(plans.values()))), plans, runs, 0, "float32")
    check_attendance(plans, consortium.attendance)
    yield {"kind": "began", "names": list(plans), "runs": runs}
    record = recorded_rounds(plans, next(iter(plans.values())).rounds)
    days = (np.array(record) / consortium.people_per_day).round(3).tolist()
    tallies = {name: _Tally(0, np.zeros(len(record)), np.zeros(len(record))) for name in plans}

    def progress(share: float) -> None:
        if gone():
            raise _Left

    with _turn:
        for run in range(runs):
            for name, job in _jobs(plans, record, consortium, run):
                try:
                    played = job.play(progress)
                except _Left:
                    return
                tallies[name].add(played[name].regret[0])
                yield _event(name, days, tallies[name])
    yield {"kind": "ended"}


def warm_up() -> None:
    """Play a small federation, so that the first simulation does not have to wait for the compiler."""
    from fedbandit.privacy.budget import Privacy
    from fedbandit.web.planner.answer import advised

    small = Consortium(silos=2, people_per_day=4, days=8, dim=3, privacy=Privacy(4.0, 1e-6), visits=2)
    for consortium in (small, replace(small, visits=1)):
        for _ in plays(advised(consortium), lambda: False, runs=1):
            pass


def _plans(advice: Recommendation) -> dict[str, Plan]:
    """The plans to play, with one round per visit: the best one, each silo alone, then the next best."""
    found = {one.name: one.plan.in_visits() for one in advice.options[:BEST] if one.plan is not None}
    base = next(iter(found.values()), None) or advice.consortium.plan(trust="none").in_visits()
    first = dict(list(found.items())[:1])
    return {**first, ALONE: isolated(base.changed(confidence="practical")), **found}


def _task(consortium: Consortium, plan: Plan) -> Synthetic:
    """The same people for every plan. The constant's share of a row suits the plan; it changes no expected reward."""
    share = consortium.rows if plan.centre or plan.privacy is None else PAPERS_SHARE
    return synthetic(consortium.dim, consortium.arms, constant_share=share, drift=consortium.drift_per_visit)


def _jobs(
    plans: dict[str, Plan], record: tuple[int, ...], consortium: Consortium, run: int
) -> Iterator[tuple[str, Job]]:
    for name, plan in plans.items():
        (job,) = divided(_task(consortium, plan), {name: plan}, 1, 0, record, "float32", consortium.attendance)
        yield name, replace(job, runs=(run,))


def _event(name: str, days: list[float], tally: _Tally) -> dict[str, Any]:
    mean, half = tally.band()
    rounded = [[round(float(value), 2) for value in line] for line in (mean, half)]
    return {"kind": "curve", "name": name, "runs": tally.runs, "days": days, "mean": rounded[0], "half": rounded[1]}
