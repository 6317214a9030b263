"""The prediction held against simulations: settings of all kinds, and what was predicted and measured in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from fedbandit.plan import Plan
from fedbandit.planner.best import ALONE, recommended
from fedbandit.planner.setting import Setting
from fedbandit.presets import isolated
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.engine import Progress
from fedbandit.simulator.result import Estimate
from fedbandit.simulator.runner import simulate
from fedbandit.simulator.tasks import synthetic

__all__ = ["SETTINGS", "Accord", "Checked", "accord", "checked"]

WORST = 1.1  # a federation that is recommended must not cost more than this times staying alone


def _setting(
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
) -> Setting:
    privacy = Privacy(epsilon, delta)
    return Setting(silos, people_per_day, days, dim, privacy, arms, visits=visits, consenting=consenting, trust=trust)


SETTINGS = (
    *(_setting(12, 20, 100, 20, 4, epsilon, 1e-6) for epsilon in (0.3, 1.0, 3.0, 10.0)),
    *(_setting(12, 20, 100, 10, 4, epsilon, 1e-6, visits=5) for epsilon in (0.3, 1.0, 3.0, 10.0)),
    *(_setting(silos, 20, 60, 8, 10, 1.0, 1e-5) for silos in (3, 5, 10, 30, 100)),
    *(_setting(12, 30, 60, dim, 5, 2.0, 1e-5) for dim in (3, 6, 12, 24, 60)),
    *(_setting(12, 30, 60, 8, arms, 2.0, 1e-5) for arms in (2, 10, 50, 200, 1000)),
    *(_setting(20, 20, 60, 6, 4, 2.0, 1e-4, consenting=share) for share in (0.1, 0.3, 0.6)),
    *(_setting(50, 20, 60, 6, 4, epsilon, 1e-4, trust="silo") for epsilon in (1.0, 4.0, 10.0)),
    _setting(1000, 2, 30, 6, 4, 1.0, 1e-5),
    _setting(2, 100, 60, 4, 3, 5.0, 1e-4, trust="silo"),
    _setting(12, 100, 30, 8, 4, 1.0, 1e-5, visits=3),
)


@dataclass(frozen=True)
class Checked:
    """One setting: what was predicted and measured for its best federation and for staying alone."""

    setting: Setting
    plan: Plan
    recommended: str
    predicted: float  # group regret per round
    measured: Estimate
    alone_predicted: float
    alone_measured: Estimate

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured.mean

    @property
    def wrong(self) -> bool:
        """A federation was recommended that is worse than staying alone by more than a tenth."""
        return self.recommended != ALONE and self.measured.mean > WORST * self.alone_measured.mean

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "setting": self.setting.as_dict(),
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
    """Every setting, simulated `runs` times."""
    for number, setting in enumerate(SETTINGS):
        yield _check(setting, runs, seed + number)
        progress((number + 1) / len(SETTINGS))


def accord(rows: list[Checked]) -> Accord:
    """Over federations and silos alone alike."""
    predicted = [row.predicted for row in rows] + [row.alone_predicted for row in rows]
    measured = [row.measured.mean for row in rows] + [row.alone_measured.mean for row in rows]
    ratios = np.array(predicted) / np.array(measured)
    correlation = float(spearmanr(predicted, measured).statistic)
    return Accord(correlation, float(ratios.min()), float(ratios.max()), sum(row.wrong for row in rows))


def _check(setting: Setting, runs: int, seed: int) -> Checked:
    advice = recommended(setting)
    best = advice.options[0]
    assert best.plan is not None
    assert best.prediction is not None
    played = best.plan.in_visits()
    plans = {"federation": played, ALONE: isolated(played)}
    result = simulate(synthetic(setting.dim, setting.arms), plans, runs, seed, attendance=setting.attendance)
    return Checked(
        setting,
        best.plan,
        advice.name,
        advice.regret(best.prediction),
        result.regret("federation"),
        advice.regret(advice.alone),
        result.regret(ALONE),
    )
