"""Private federated linear contextual bandits: simulate them, audit them, run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

from fedbandit import paper
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, clock, every, growing
from fedbandit.simulate import tasks
from fedbandit.simulate.runner import simulate

if TYPE_CHECKING:
    from fedbandit.federation.silo import Silo

__all__ = ["Plan", "Privacy", "Silo", "adaptive", "clock", "every", "growing", "paper", "simulate", "tasks"]


def __getattr__(name: str) -> Any:
    """`Silo` needs the extra `live`, so it is loaded when it is asked for."""
    if name != "Silo":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fedbandit.federation.silo import Silo
    except ImportError as error:
        raise ImportError(f"fedbandit.Silo needs the extra 'live': pip install 'fedbandit[live]' ({error})") from None
    return Silo
