"""Choosing a plan: what a protocol is predicted to cost, the best one, and how they all compare when simulated."""

from fedbandit.planner.best import best_plan

__all__ = ["best_plan"]
