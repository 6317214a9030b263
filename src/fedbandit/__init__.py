"""Private federated linear contextual bandits: simulate them, audit them, run them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

from fedbandit.bandit.policies import Policy
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.problem import Category, Hashed, Number, Projection, Schema
from fedbandit.schedule import adaptive, at, clock, every, growing

if TYPE_CHECKING:
    from fedbandit import baselines, evaluation, paper
    from fedbandit.federation.one_process import Federation
    from fedbandit.federation.silo.serving import Silo
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

# What is loaded when it is asked for: the simulator compiles kernels, and what is live needs the extra `live`.
_LATER = {
    "baselines": ("fedbandit.baselines", None),
    "evaluation": ("fedbandit.evaluation", None),
    "paper": ("fedbandit.paper", None),
    "tasks": ("fedbandit.simulator.tasks", None),
    "simulate": ("fedbandit.simulator.runner", "simulate"),
    "Attendance": ("fedbandit.simulator.attendance", "Attendance"),
    "Federation": ("fedbandit.federation.one_process", "Federation"),
    "Silo": ("fedbandit.federation.silo.serving", "Silo"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if name not in ("Federation", "Silo"):
            raise
        raise ImportError(f"fedbandit.{name} needs the extra 'live': pip install 'fedbandit[live]' ({error})") from None
    found = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = found  # importing the package `simulate` would otherwise leave the module under the name
    return found
