"""Would it have paid? Policies judged by logs of decisions, and plans replayed on tables of the past."""

from __future__ import annotations

from fedbandit.evaluation.decisions import Decisions, read_decisions
from fedbandit.evaluation.estimators import Worth
from fedbandit.evaluation.evaluating import Evaluation, Judged, evaluate

__all__ = ["Decisions", "Evaluation", "Judged", "Worth", "evaluate", "read_decisions"]
