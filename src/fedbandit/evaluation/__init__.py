"""Would it have paid? Policies judged by logs of decisions, and plans replayed on past records."""

from __future__ import annotations

from fedbandit.evaluation.decisions import Decisions, read_decisions
from fedbandit.evaluation.estimators import Worth
from fedbandit.evaluation.evaluating import Evaluation, Judged, evaluate
from fedbandit.evaluation.past import Columns, Past, past_of
from fedbandit.evaluation.reading import read_table
from fedbandit.evaluation.replayed import Replay, replay
from fedbandit.evaluation.replaying import Tape

__all__ = [
    "Columns",
    "Decisions",
    "Evaluation",
    "Judged",
    "Past",
    "Replay",
    "Tape",
    "Worth",
    "evaluate",
    "past_of",
    "read_decisions",
    "read_table",
    "replay",
]
