"""Private federated linear contextual bandits: simulate them, audit them, run them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedbandit import _words

__version__ = "0.3.0"

if TYPE_CHECKING:
    from fedbandit import baselines, evaluation, paper
    from fedbandit.bandit.policies import Policy
    from fedbandit.federation.one_process import Federation
    from fedbandit.federation.silo.serving import Silo
    from fedbandit.plan import Plan
    from fedbandit.privacy.budget import Privacy
    from fedbandit.problem import Category, Hashed, Number, Projection, Schema
    from fedbandit.schedule import adaptive, at, clock, every, growing
    from fedbandit.simulator import tasks
    from fedbandit.simulator.attendance import Attendance
    from fedbandit.simulator.runner import simulate

__all__ = [
    "Attendance",
    "Category",
    "Federation",
    "Hashed",
    "Number",
    "Plan",
    "Policy",
    "Privacy",
    "Projection",
    "Schema",
    "Silo",
    "adaptive",
    "at",
    "baselines",
    "clock",
    "evaluation",
    "every",
    "growing",
    "paper",
    "simulate",
    "tasks",
]

# Each name is loaded on first use: `fedbandit --help` needs none of them, the simulator compiles kernels, and live
# silos need the extra `live`.
_MODULES = {
    **dict.fromkeys(("Category", "Hashed", "Number", "Projection", "Schema"), "fedbandit.problem"),
    **dict.fromkeys(("adaptive", "at", "clock", "every", "growing"), "fedbandit.schedule"),
    "Attendance": "fedbandit.simulator.attendance",
    "Federation": "fedbandit.federation.one_process",
    "Plan": "fedbandit.plan",
    "Policy": "fedbandit.bandit.policies",
    "Privacy": "fedbandit.privacy.budget",
    "Silo": "fedbandit.federation.silo.serving",
    "simulate": "fedbandit.simulator.runner",
}
_PACKAGES = {
    "baselines": "fedbandit.baselines",
    "evaluation": "fedbandit.evaluation",
    "paper": "fedbandit.paper",
    "tasks": "fedbandit.simulator.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        loaded = importlib.import_module(_MODULES.get(name) or _PACKAGES[name])
    except ModuleNotFoundError as error:
        if (needed := _words.to_install(error)) is None:
            raise
        raise ImportError(f"fedbandit.{name} cannot be used yet: {needed}") from None
    found = loaded if name in _PACKAGES else getattr(loaded, name)
    globals()[name] = found  # the next access does not come here
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
