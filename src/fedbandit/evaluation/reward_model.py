"""Rewards predicted from rows by linear models that have not seen the decision they predict (cross-fitting)."""

from __future__ import annotations

import numpy as np

from fedbandit._arrays import Flags, Floats
from fedbandit.evaluation.decisions import Decisions

__all__ = ["FOLDS", "cross_fitted"]

FOLDS = 5
RIDGE = 1.0  # weighs as much as one decision along each direction


def cross_fitted(decisions: Decisions, known: Flags | None = None, folds: int = FOLDS) -> Floats:
    """A prediction in [0, 1] of the reward of every action, (actions,), from the decisions whose reward is `known`.

    It is a ridge regression of rewards on a constant and the rows that were played. Decision i belongs to fold
    i mod `folds`, so that neighbours in time are in different folds, and is predicted from the other folds.
    """
    seen = np.column_stack([np.ones(len(decisions)), decisions.rows[decisions.played]])
    every = np.column_stack([np.ones(len(decisions.rows)), decisions.rows])
    fold_of = np.arange(len(decisions)) % folds
    predicted, usable = np.empty(len(decisions.rows)), np.ones(len(decisions), dtype=bool) if known is None else known
    penalty = RIDGE * np.eye(seen.shape[1])
    penalty[0, 0] = 1e-9
    for fold in range(folds):
        others, mine = usable & (fold_of != fold), fold_of[decisions.decision] == fold
        x, y = seen[others], decisions.reward[others]
        predicted[mine] = every[mine] @ np.linalg.solve(x.T @ x + penalty, x.T @ y)
    return np.clip(predicted, 0.0, 1.0)
