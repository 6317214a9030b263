"""Choosing a plan: what a protocol is predicted to cost, the best one, and how they all compare when simulated."""

from fedbandit.planner.best import proposed, recommended, refined
from fedbandit.planner.consortium import Consortium

__all__ = ["Consortium", "proposed", "recommended", "refined"]
