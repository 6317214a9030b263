"""Choosing a plan: what each protocol is predicted to cost, which is best, and how they compare when simulated."""

from fedbandit.planner.best import proposed, recommended, refined
from fedbandit.planner.consortium import Consortium

__all__ = ["Consortium", "proposed", "recommended", "refined"]
