"""What a panel is: its users, its curves, and what the paper observed in them."""

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
    """Paths of the real data that were given."""

    letor: Path | None = None
    warfarin: Path | None = None


@dataclass(frozen=True)
class Setting:
    """One version of a panel: who the users are and whose constants are used."""

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
    name: str | None = None  # of the protocol, if it differs from the preset's

    @property
    def label(self) -> str:
        """Its name in pictures, tables and simulations, the same in every panel; it also seeds the noise."""
        return f"{self.family}, ε = {self.epsilon:g}, δ = {self.delta:g}" if self.private else self.family

    @property
    def protocol(self) -> str:
        """The name of its protocol; curves of one protocol at several budgets share a colour."""
        return self.name or self.preset.__name__.replace("_", "-")

    def plan(self, silos: int, rounds: int, dim: int, setting: Setting) -> Plan:
        """The curve's plan at this size. Raises ValueError outside the range of the protocol's theorem."""
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
    observations: tuple[Observation, ...]  # the same as checks
    observer: str = "The paper"  # who made the observation
    needs: str | None = None  # the field of `Sources` that must be given
    quick_rounds: int = 500

    def can_run(self, sources: Sources) -> bool:
        """Whether the data that it needs were given."""
        return self.needs is None or getattr(sources, self.needs) is not None
