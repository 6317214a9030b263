"""What `fedbandit simulate` plays: defaults, overridden by a TOML file, overridden by options."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit._words import counted
from fedbandit.bandit.confidence import Radii
from fedbandit.cli.plan_file import read_fields, read_plan
from fedbandit.plan import Plan
from fedbandit.plan_data import CONSORTIUM, PERSONAL_SHARE
from fedbandit.planner.consortium import Consortium
from fedbandit.presets import NAMES, isolated, plan_for
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.sensitivity import Adjacency
from fedbandit.schedule import Every
from fedbandit.simulator.acting import Precision
from fedbandit.simulator.attendance import EVERYBODY, Attendance
from fedbandit.simulator.tasks import Contexts, RewardKind, Synthetic, synthetic

__all__ = ["Experiment", "PlannedExperiment"]


@dataclass(frozen=True)
class Experiment:
    """Protocols to compare on one synthetic task. TOML files and options use the names of these fields."""

    protocols: tuple[str, ...] = ("fed-lin-ucb", "ldp", "silo", "secure-sum")
    silos: int = 20
    rounds: int = 2000
    batch: int | None = None
    dim: int = 10
    arms: int = 100
    epsilon: float = 1.0
    delta: float = 1e-5
    adjacency: Adjacency = "replace-one"
    participations: int = 1
    silos_per_user: int = 1
    apart: int = 0
    forget: float = 1.0  # below 1: each protocol is played a second time, with this weight
    endless: bool = False  # the second time has the noise of a run without an end
    own: int = 0  # weights of theta that are each silo's own; each protocol is played a second time, learning them
    differing: float = 0.0
    own_share: float = PERSONAL_SHARE
    drift: float = 0.0
    jump_at: int | None = None
    rewards: RewardKind = "bernoulli"
    contexts: Contexts = "fresh"
    confidence: Radii = "theory"
    precision: Precision = "float32"
    runs: int = 5
    seed: int = 0

    @classmethod
    def read(cls, path: Path) -> Experiment:
        """The experiment in a TOML file; unknown names are refused."""
        try:
            data = tomllib.loads(path.read_text())
        except OSError as error:
            raise ArgumentError("file", f"must be readable, got {str(path)!r} ({error.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ArgumentError("file", f"must be TOML, {str(path)!r} is not: {error}") from None
        return cls().overridden(data, str(path))

    def overridden(self, values: dict[str, Any], where: str = "options") -> Experiment:
        """The experiment with some fields replaced; lists become tuples, types are checked."""
        _validate.known_keys(where, values, (field.name for field in fields(self)))
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        for name, value in given.items():
            self._check_type(name, value)
        return replace(self, **given)

    @property
    def title(self) -> str:
        """Who takes part, in words."""
        return f"{counted(self.silos, 'silo')}, {self.rounds:,} rounds"

    @property
    def attendance(self) -> Attendance:
        """Everybody comes once and is counted."""
        return EVERYBODY

    def task(self) -> Synthetic:
        """The users."""
        return synthetic(
            self.dim,
            self.arms,
            self.rewards,
            contexts=self.contexts,
            drift=self.drift,
            jump_at=self.jump_at,
            own=self.own,
            differing=self.differing,
        )

    def plans(self) -> dict[str, Plan]:
        """The plan of each protocol, on its own schedule, or all on every(batch) if a batch is given."""
        visits = (self.participations, self.silos_per_user, self.apart)
        privacy = Privacy(self.epsilon, self.delta, self.adjacency, *visits)
        base = Plan(self.silos, self.rounds, self.dim, privacy, trust="none", confidence=self.confidence)
        schedule = None if self.batch is None else Every(self.batch)
        for name in self.protocols:
            _validate.one_of("protocols", name, NAMES)
            if self.protocols.count(name) > 1:
                raise ArgumentError("protocols", f"must be different, got {name!r} twice")
        if self.jump_at is not None and self.jump_at >= self.rounds:
            raise ArgumentError("jump_at", f"must be less than the {self.rounds:,} rounds, got {self.jump_at}")
        plans = {name: plan_for(name, base, schedule) for name in self.protocols}
        if not self.own and self.own_share != PERSONAL_SHARE:
            raise ArgumentError("own_share", "must be left out without own: it has no effect")
        if self.own:
            more = {"personal": tuple(range(self.own)), "personal_share": self.own_share}
            plans |= {f"{name}, personal": plan.changed(**more) for name, plan in plans.items()}
        if self.forget == 1:
            if self.endless:
                raise ArgumentError("endless", "must be left out where nothing is forgotten: give forget too")
            return plans
        weighted, end = {"forget": self.forget, "endless": self.endless}, ", no end" if self.endless else ""
        return plans | {f"{name}, {self.forget:g}{end}": plan.changed(**weighted) for name, plan in plans.items()}

    def _check_type(self, name: str, value: Any) -> None:
        expected = type(getattr(self, name)) if name not in ("batch", "jump_at") else int
        allowed = (int, float) if expected is float else expected
        if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
            kind = "a list of names" if expected is tuple else f"of type {expected.__name__}"
            raise ArgumentError(name, f"must be {kind}, got {value!r}")


@dataclass(frozen=True)
class PlannedExperiment:
    """A plan from a file, compared with staying alone, for the consortium that the plan was chosen for."""

    plan: Plan
    consortium: Consortium
    runs: int = 5
    seed: int = 0
    precision: Precision = "float32"

    @classmethod
    def read(cls, path: Path, **running: Any) -> PlannedExperiment:
        """The plan and the consortium in a file."""
        plan, data = read_plan(path), read_fields("plan", path)
        if CONSORTIUM not in data:
            raise ArgumentError(
                "plan", f"must hold its consortium, as `plan --best --out` writes it; {str(path)!r} does not"
            )
        with _validate.reading("consortium"):
            return cls(plan, Consortium.from_dict(data[CONSORTIUM]), **running)

    @property
    def title(self) -> str:
        """Who takes part, in words."""
        size = f"{counted(self.consortium.silos, 'silo')}, {self.consortium.people_per_day} people per day"
        return f"{size}, {counted(self.consortium.days, 'day')}"

    @property
    def attendance(self) -> Attendance:
        """Who comes, and who is counted."""
        return self.consortium.attendance

    def task(self) -> Synthetic:
        """Synthetic users with the consortium's dimension, actions, constant entry and drift."""
        consortium, drift = self.consortium, self.consortium.drift_per_visit
        return synthetic(consortium.dim, consortium.arms, constant_share=consortium.rows, drift=drift)

    def plans(self) -> dict[str, Plan]:
        """The plan with one round per visit, and each silo alone with practical and with theory radii."""
        played = self.plan.in_visits()
        practical, theory = (played.changed(confidence=radii) for radii in ("practical", "theory"))
        return {
            self.plan.trust: played,
            "alone": isolated(practical),
            "alone, theory radii": isolated(theory),
        }
