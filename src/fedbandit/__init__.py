"""Private federated linear contextual bandits: simulate them, audit them, run them."""

__version__ = "0.1.0"

from fedbandit import paper
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.schedule import adaptive, clock, every, growing
from fedbandit.simulate import tasks
from fedbandit.simulate.runner import simulate

__all__ = ["Plan", "Privacy", "adaptive", "clock", "every", "growing", "paper", "simulate", "tasks"]
