"""What a consortium knows about itself: who takes part, who comes, how often, and what they want."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.bandit.directions import PAPERS_SHARE
from fedbandit.plan import Plan
from fedbandit.planner.tuning import CONSTANT_SHARE
from fedbandit.privacy.budget import Privacy
from fedbandit.problem.public_schema import INTERCEPT, Schema
from fedbandit.schedule import Clock
from fedbandit.simulator.attendance import Attendance

__all__ = ["DAY", "Consortium", "Sync"]

DAY = 86_400.0  # seconds
Sync = Literal["daily", "weekly", "monthly"]
PERIODS: dict[Sync, int] = {"daily": 1, "weekly": 7, "monthly": 30}  # days
MOST_PERIODS = 100_000  # nearly three centuries of days: comparing plans for longer takes minutes, and then for ever
RETURNING = 0.5  # the share of people who come back after each visit, if only the most visits per person are given


@dataclass(frozen=True)
class Consortium:
    """A consortium: its silos, the people who come to them, and the privacy it asks for.

    >>> clinic = Consortium(silos=12, people_per_day=20, days=365, dim=20, arms=4, privacy=Privacy(1.0, 1e-6), visits=5)
    >>> clinic.visits_per_silo, round(clinic.attendance.share(1, round_=1000), 2)
    (7300, 0.52)
    """

    silos: int
    people_per_day: int  # visits to one silo
    days: int
    dim: int
    privacy: Privacy  # the planner chooses its `participations`
    arms: int = 4
    sync: Sync = "daily"  # how often silos can synchronise at most
    visits: int = 1  # how often one person comes at most
    mean_visits: float | None = None  # how often one person comes on average
    back_after: int = 0  # days until people begin to come back
    consenting: float = 1.0  # share of people whose visits may be counted
    constant: bool = True  # whether some fixed combination of the features is the same for every action
    constant_share: float = CONSTANT_SHARE  # that constant's share of a row's squared length
    trust: str = "secure-sum"  # the trust model that asks for the most trust that people accept
    drift: float = 0.0  # how far theta, of norm 1, moves per day (l2, root mean square)

    def __post_init__(self) -> None:
        for name in ("silos", "people_per_day", "days", "dim", "arms", "visits"):
            _validate.count(name, getattr(self, name))
        _validate.one_of("sync", self.sync, get_args(Sync))
        _validate.count("back_after", self.back_after, least=0)
        if self.drift != 0:
            _validate.positive("drift", self.drift)
        if self.dim < 2:
            raise ArgumentError("dim", f"must be at least 2, got {self.dim}")
        if self.drift and self.dim == 2:
            raise ArgumentError("drift", "must be 0 for dim 2: besides the constant there is no direction to move in")
        if self.days < PERIODS[self.sync]:
            raise ArgumentError("days", f"must be at least the {PERIODS[self.sync]} between two syncs, got {self.days}")
        if self.periods > MOST_PERIODS:
            raise ArgumentError("days", f"must be at most {MOST_PERIODS:,} syncs, got {self.periods:,}")
        if self.mean_visits is not None and self.visits == 1:
            raise ArgumentError("mean_visits", "has no effect where everybody comes once: say how often, with visits")
        if self.mean_visits is not None and not 1 <= self.mean_visits <= self.visits:
            raise ArgumentError(
                "mean_visits", f"must lie between 1 and the {self.visits} visits, got {self.mean_visits!r}"
            )
        if self.back_after and self.visits == 1:
            raise ArgumentError("back_after", "has no effect where everybody comes once: say how often, with visits")
        if self.privacy.silos_per_user > self.silos:
            raise ArgumentError(
                "silos_per_user", f"must be at most the {self.silos} silos, got {self.privacy.silos_per_user}"
            )
        _validate.within("constant_share", self.constant_share, 0, 1)
        if self.constant_share != CONSTANT_SHARE and not self.constant:
            raise ArgumentError("constant_share", "has no effect where rows hold no constant")
        _ = self.attendance

    @property
    def rows(self) -> float:
        """The constant's share of a row's squared length; the paper's share if there is no constant."""
        return self.constant_share if self.constant else PAPERS_SHARE

    @property
    def drift_per_visit(self) -> float:
        """How far theta moves between two visits to a silo: the squares of a random walk's steps add up."""
        return self.drift / math.sqrt(self.people_per_day)

    @property
    def visits_per_silo(self) -> int:
        """Visits to one silo over the whole horizon: the rounds of a simulation."""
        return self.periods * self.people_per_period

    @property
    def periods(self) -> int:
        """Periods of the clock over the whole horizon: the rounds of a plan."""
        return self.days // PERIODS[self.sync]

    @property
    def people_per_period(self) -> int:
        return self.people_per_day * PERIODS[self.sync]

    @property
    def period(self) -> float:
        """The period of the clock, in seconds: the least time between two syncs."""
        return DAY * PERIODS[self.sync]

    @cached_property
    def attendance(self) -> Attendance:
        """Who comes, and whose visits may be counted."""
        mean = self.mean_visits
        if mean is None:
            mean = sum(RETURNING**visit for visit in range(self.visits))
        return Attendance.up_to(self.visits, mean, self.back_after * self.people_per_day, self.consenting)

    @staticmethod
    def rows_of(schema: Schema) -> dict[str, Any]:
        """What a schema says about rows: their dimension, the number of actions if it names them, and their constant.

        >>> from fedbandit.problem.fields import Number
        >>> Consortium.rows_of(Schema({"age": Number(18, 100)}, actions=("low", "high")))
        {'dim': 4, 'arms': 2, 'constant': True, 'constant_share': 0.5}
        """
        said = {"dim": schema.dim, **({"arms": len(schema.actions)} if schema.actions else {})}
        share = schema.shares.get(INTERCEPT, PAPERS_SHARE) if schema.has_constant else CONSTANT_SHARE
        return said | {"constant": schema.has_constant, "constant_share": share}

    def round_of(self, day: float) -> float:
        """How many visits a silo has had by the end of a day."""
        return day * self.people_per_day

    def as_dict(self) -> dict[str, Any]:
        """The consortium as plain data, without fields that have their default value."""
        defaults = {one.name: one.default for one in fields(self)}
        data = {**asdict(self), "privacy": self.privacy.as_dict()}
        return {name: value for name, value in data.items() if value != defaults[name]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Consortium:
        """The consortium that `as_dict` wrote; unknown names are refused."""
        required = ("silos", "people_per_day", "days", "dim", "privacy")
        _validate.known_keys("consortium", data, cls.__dataclass_fields__, required)
        return cls(**{**data, "privacy": Privacy.from_dict(data["privacy"])})

    def plan(self, **fields: Any) -> Plan:
        """A plan for this consortium on the public clock, with these fields."""
        given = {
            "privacy": self.privacy,
            "schedule": Clock(self.period),
            "people": self.people_per_period,
            "confidence": "practical",
        }
        return Plan(self.silos, self.periods, self.dim, **{**given, **fields})
