"""A check of the predictions by simulation: consortia of all kinds, with what was predicted and measured for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fedbandit.plan import Plan
from fedbandit.planner.best import ALONE, recommended
from fedbandit.planner.consortium import Consortium
from fedbandit.presets import isolated
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

__all__ = ["CONSORTIA", "Accord", "Checked", "accord", "checked"]

WORST = 1.1  # a recommended federation must not cost more than this many times staying alone


def _consortium(
    silos: int,
    people_per_day: int,
    days: int,
    dim: int,
    arms: int,
    epsilon: float,
    delta: float,
    visits: int = 1,
    consenting: float = 1.0,
    trust: str = "secure-sum",
) -> Consortium:
    privacy = Privacy(epsilon, delta)
    return Consortium(
        silos, people_per_day, days, dim, privacy, arms, visits=visits, consenting=consenting, trust=trust
    )


CONSORTIA = (
    *(_consortium(12, 20, 100, 20, 4, epsilon, 1e-6) for epsilon in (0.3, 1.0, 3.0, 10.0)),
    *(_consortium(12, 20, 100, 10, 4, epsilon, 1e-6, visits=5) for epsilon in (0.3, 1.0, 3.0, 10.0)),
    *(_consortium(silos, 20, 60, 8, 10, 1.0, 1e-5) for silos in (3, 5, 10, 30, 100)),
    *(_consortium(12, 30, 60, dim, 5, 2.0, 1e-5) for dim in (3, 6, 12, 24, 60)),
    *(_consortium(12, 30, 60, 8, arms, 2.0, 1e-5) for arms in (2, 10, 50, 200, 1000)),
    *(_consortium(20, 20, 60, 6, 4, 2.0, 1e-4, consenting=share) for share in (0.1, 0.3, 0.6)),
    *(_consortium(50, 20, 60, 6, 4, epsilon, 1e-4, trust="silo") for epsilon in (1.0, 4.0, 10.0)),
    _consortium(1000, 2, 30, 6, 4, 1.0, 1e-5),
    _consortium(2, 100, 60, 4, 3, 5.0, 1e-4, trust="silo"),
    _consortium(12, 100, 30, 8, 4, 1.0, 1e-5, visits=3),
)


@dataclass(frozen=True)
class Checked:
    """What was predicted and measured for a consortium: for its best federation and for staying alone."""

    consortium: Consortium
    plan: Plan
    recommended: str
    predicted: float  # group regret per round
    measured: Estimate
    alone_predicted: float
    alone_measured: Estimate

    @property
    def wrong(self) -> bool:
        """Whether a federation was recommended that is more than a tenth worse than staying alone."""
        return self.recommended != ALONE and self.measured.mean > WORST * self.alone_measured.mean

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "consortium": self.consortium.as_dict(),
            "recommended": self.recommended,
            "predicted": self.predicted,
            "measured": self.measured._asdict(),
            "alone": {"predicted": self.alone_predicted, "measured": self.alone_measured._asdict()},
            "wrong": self.wrong,
        }


@dataclass(frozen=True)
class Accord:
    """How well predictions and measurements agree over all rows."""

    rank_correlation: float
    lowest_ratio: float
    highest_ratio: float
    wrong: int


def checked(runs: int, seed: int, progress: Progress = lambda share: None) -> Iterator[Checked]:
    """Every consortium of CONSORTIA, simulated `runs` times."""
    for number, consortium in enumerate(CONSORTIA):
        yield _check(consortium, runs, seed + number)
        progress((number + 1) / len(CONSORTIA))


def accord(rows: list[Checked]) -> Accord:
    """How well predictions and measurements agree, over federations and lone silos together."""
    predicted = [row.predicted for row in rows] + [row.alone_predicted for row in rows]
    measured = [row.measured.mean for row in rows] + [row.alone_measured.mean for row in rows]
    ratios = np.array(predicted) / np.array(measured)
    correlation = float(spearmanr(predicted, measured).statistic)
    return Accord(correlation, float(ratios.min()), float(ratios.max()), sum(row.wrong for row in rows))


def _check(consortium: Consortium, runs: int, seed: int) -> Checked:
    advice = recommended(consortium)
    best = advice.options[0]
    assert best.plan is not None
    assert best.prediction is not None
    played = best.plan.in_visits()
    plans = {"federation": played, ALONE: isolated(played)}
    users = synthetic(consortium.dim, consortium.arms, constant_share=consortium.rows)
    result = simulate(users, plans, runs, seed, attendance=consortium.attendance)
    return Checked(
        consortium,
        best.plan,
        advice.name,
        advice.regret(best.prediction),
        result.regret("federation"),
        advice.regret(advice.alone),
        result.regret(ALONE),
    )
