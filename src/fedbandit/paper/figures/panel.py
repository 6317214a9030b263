"""What a panel is: some users, some curves, and what the paper observed in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedbandit.paper.figures.observations import Observation
from fedbandit.plan import Plan
from fedbandit.presets import Constants
from fedbandit.privacy.budget import Privacy
from fedbandit.simulator.tasks import Task

__all__ = ["Curve", "Panel", "Setting", "Sources"]


@dataclass(frozen=True)
class Sources:
    """Where the real data are, as far as they are given."""

    letor: Path | None = None
    warfarin: Path | None = None


@dataclass(frozen=True)
class Setting:
    """One of the versions in which a panel is drawn: who the users are and whose constants are used."""

    name: str  # e.g. "as_proven"
    instance: str  # e.g. "synthetic"; settings of the same name and instance have the same users
    heading: str
    constants: Constants
    task: Callable[[Sources], Task]
    exploration: float = 1.0  # crs of the published simulation
    reward_noise: float = 1.0  # R of the published simulation


@dataclass(frozen=True)
class Curve:
    """One protocol at one budget."""

    family: str
    preset: Callable[[Plan, Constants], Plan]
    epsilon: float
    delta: float
    private: bool = True
    name: str | None = None  # of the protocol, where it is not the preset's

    @property
    def label(self) -> str:
        """Its name in pictures, tables and the simulation, which draws its noise by it: the same in every panel."""
        return f"{self.family}, ε = {self.epsilon:g}, δ = {self.delta:g}" if self.private else self.family

    @property
    def protocol(self) -> str:
        """The protocol by its name: curves of the same one, at several budgets, share its colour."""
        return self.name or self.preset.__name__.replace("_", "-")

    def plan(self, silos: int, rounds: int, dim: int, setting: Setting) -> Plan:
        """Raises ValueError where the protocol's theorem does not reach."""
        asked = Plan(
            silos,
            rounds,
            dim,
            privacy=Privacy(self.epsilon, self.delta),
            confidence="published" if setting.constants == "as_simulated" else "theory",
            exploration=setting.exploration,
            reward_noise=setting.reward_noise,
        )
        return self.preset(asked, setting.constants)


@dataclass(frozen=True)
class Panel:
    """One picture of the paper."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    silos: int
    rounds: int
    runs: int
    curves: tuple[Curve, ...]
    observed: str  # the paper's observation, in its words
    observations: tuple[Observation, ...]  # the same, to be checked
    observer: str = "The paper"  # or who else expects it
    needs: str | None = None  # the field of `Sources` that must be given
    quick_rounds: int = 500

    def can_run(self, sources: Sources) -> bool:
        """Whether the data that it needs are given."""
        return self.needs is None or getattr(sources, self.needs) is not None
