"""Choosing a plan: what each protocol is predicted to cost, and which is best. `studies` compares them."""

from fedbandit.planner.best import proposed, recommended, refined
from fedbandit.planner.consortium import Consortium

__all__ = ["Consortium", "proposed", "recommended", "refined"]
