"""The paper's real-data instance: a lasso on judged documents is taken as the truth behind their rewards.

Queries are contexts, their documents are the actions, and theta is fitted to the relevance labels (no intercept; the
penalty is chosen by 5-fold cross-validation over 10^-3..10^2). Raw features have norms up to 2e8, so rows are scaled
first: `SCALINGS` says how, and `ActionTable.description` repeats it with the numbers found. The published simulation
instead fits the raw features, with penalty 1, and shows its learner scaled features: rewards are not linear in those.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate
from fedbandit._arrays import Floats, Singles
from fedbandit.simulator.data.letor import Letor
from fedbandit.simulator.data.table import ROUND_DOWN, ActionTable, BoundedModel, bounded_model, with_constant

__all__ = ["GROUPS", "MSLR_FEATURES", "PENALTIES", "Group", "Scaling", "letor_table"]

Group = Literal["title", "body", "all"]
Scaling = Literal["row", "column", "published"]

MSLR_FEATURES = 136
PENALTIES = np.logspace(-3, 2, 26)
FOLDS = 5
PUBLISHED_CONSTANT = 0.01  # the column that the published simulation adds to the raw features
PUBLISHED_PENALTY = 1.0  # scikit-learn's default

# Up to id 125, MSLR repeats each measure for body, anchor, title, url and whole document, so ids mod 5 tell them apart.
# Then come measures of the document only. "title" and "body" are the published split into 57 and 78 numbers, including
# the added constant. The names are the paper's: by MSLR's own list, the group called title holds anchor and url, and
# the group called body holds body, title and whole document.
GROUPS: dict[Group, tuple[int, ...]] = {
    "title": (*(i for i in range(1, 126) if i % 5 in (2, 4)), *range(126, 132)),
    "body": (*(i for i in range(1, 126) if i % 5 in (0, 1, 3)), 132, 133),
    "all": tuple(range(1, MSLR_FEATURES + 1)),
}

SCALINGS: dict[Scaling, str] = {
    "row": "each row divided by its own norm, then (1, row) / sqrt 2; the model is linear in the scaled row, "
    "not in the raw features",
    "column": "each column divided by its largest absolute value, all rows by the largest norm that leaves, "
    "then (1, row) / sqrt 2; the model stays linear in the raw features",
    "published": f"a constant {PUBLISHED_CONSTANT} put before the raw features, each row divided by its own "
    "norm, as in the published simulation; rewards are linear in the raw features, not in the scaled row",
}


def letor_table(data: Letor, group: Group = "title", scaling: Scaling = "row") -> ActionTable:
    """One action set per query, with theta from the lasso on the scaled features.

    `group` picks the title (57) or body (78) numbers of MSLR, or all 136 and the constant; data with another number
    of features use all of them and the constant. With the scalings "row" and "column", predictions are shifted and
    scaled so that ||theta|| <= 1 and means lie in [0, 1]: the model stays linear, and documents keep their order.
    "published" takes the predictions of a lasso on the raw features as `outcomes`; the table is not `bounded`.
    """
    _validate.one_of("group", group, GROUPS)
    _validate.one_of("scaling", scaling, SCALINGS)
    raw, used = _columns(data.features, group)
    found = f"{len(data.queries):,} queries, {len(data.labels):,} documents, {used}.\nRows: {SCALINGS[scaling]}"
    return _published(data, raw, found) if scaling == "published" else _linear(data, raw, scaling, found)


def _linear(data: Letor, raw: Floats, scaling: Scaling, found: str) -> ActionTable:
    """Scaled rows, and means that are exactly linear in them."""
    features = _scaled(raw, scaling)
    weights, fitted = _lasso(features.astype(np.float64), data.labels, None)
    bounded = _bounded(features, weights)
    model = f"theta has norm {np.linalg.norm(bounded.theta):.3g}; means are {bounded}"
    description = f"{found}.\nLasso: {fitted}.\nModel: {model}."
    return ActionTable(features, data.offsets, bounded.means, bounded.theta, description)


def _published(data: Letor, raw: Floats, found: str) -> ActionTable:
    """Scaled rows for the learner, and outcomes that are linear in the raw rows; `means` is the best linear fit."""
    rows = np.concatenate([np.full((raw.shape[0], 1), PUBLISHED_CONSTANT), raw], axis=1)
    weights, fitted = _lasso(rows, data.labels, PUBLISHED_PENALTY)
    outcomes = rows @ weights
    if not outcomes.max() > outcomes.min():
        raise ValueError(
            "the lasso on raw features predicts the same for every action: there is nothing to learn from these data"
        )
    features = (_unit_rows(rows) * ROUND_DOWN).astype(np.float32)
    theta = np.asarray(np.linalg.lstsq(features.astype(np.float64), outcomes, rcond=None)[0], dtype=np.float64)
    means = features.astype(np.float64) @ theta
    explained = 1 - np.mean((outcomes - means) ** 2) / np.var(outcomes)
    model = (
        f"rewards are the lasso's predictions, from {outcomes.min():.3g} to {outcomes.max():.3g}, noiseless; what the "
        f"learner sees explains {explained:.1%} of their variance"
    )
    description = f"{found}.\nLasso: {fitted}.\nModel: {model}."
    return ActionTable(features, data.offsets, means, theta, description, outcomes, bounded=False)


def _columns(features: Singles, group: Group) -> tuple[Floats, str]:
    """The raw features that are used, and a phrase that says which they are."""
    count = features.shape[1]
    if count != MSLR_FEATURES:
        used = f"all {count} features and a constant (no title or body: not MSLR)"
        return features.astype(np.float64), used
    ids = np.array(GROUPS[group])
    return features[:, ids - 1].astype(np.float64), f"{ids.size} of {count} features ({group}) and a constant"


def _scaled(raw: Floats, scaling: Scaling) -> Singles:
    """Rows of norm at most 1; the features of a row of zeros stay zero."""
    if scaling == "row":
        return with_constant(_unit_rows(raw))
    even = raw / _or_one(np.abs(raw).max(axis=0))
    return with_constant(even / _or_one(np.linalg.norm(even, axis=1).max()))


def _unit_rows(raw: Floats) -> Floats:
    return raw / _or_one(np.linalg.norm(raw, axis=1, keepdims=True))


def _or_one(sizes: Floats) -> Floats:
    return np.where(sizes > 0, sizes, 1.0)


def _bounded(features: Singles, weights: Floats) -> BoundedModel:
    ones = np.zeros(weights.size)
    ones[0] = 1 / float(features[0, 0])
    return bounded_model(features, weights, ones)


def _lasso(rows: Floats, labels: NDArray[np.int32], penalty: float | None) -> tuple[Floats, str]:
    """Weights (dim,) and a sentence about the fit; without a `penalty`, cross-validation chooses it."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import Lasso, LassoCV
        from threadpoolctl import threadpool_limits
    except ImportError:
        needed = "pip install 'fedbandit[data]'"
        raise ImportError(f"the lasso behind real data needs scikit-learn: {needed}") from None
    if len(labels) < FOLDS:
        raise ValueError(f"the lasso needs at least {FOLDS} documents, got {len(labels)}")
    targets = labels.astype(np.float64)
    if targets.min() == targets.max():
        raise ValueError(f"the lasso needs different labels, but every document has {labels[0]}")
    with threadpool_limits(limits=1), warnings.catch_warnings():  # more threads mostly wait: 20 x the time
        if penalty is None:
            fit = LassoCV(alphas=PENALTIES, cv=FOLDS, fit_intercept=False, max_iter=10_000).fit(rows, targets)
            at_edge = ", an end of the range tried," if fit.alpha_ in PENALTIES[[0, -1]] else ""
            chosen = f"penalty {fit.alpha_:.4g}{at_edge} by {FOLDS}-fold cross-validation"
        else:
            warnings.simplefilter("ignore", ConvergenceWarning)  # the published fit stops after 1,000 passes too
            fit = Lasso(alpha=penalty, fit_intercept=False).fit(rows, targets)
            chosen = f"penalty {penalty:g}, {fit.n_iter_:,} passes"
    weights = np.asarray(fit.coef_, dtype=np.float64)
    explained = 1 - np.mean((targets - rows @ weights) ** 2) / np.var(targets)
    return weights, (
        f"on labels {labels.min()}..{labels.max()}, no intercept, {chosen}; {np.count_nonzero(weights)} of "
        f"{weights.size} weights are not 0, and it explains {explained:.1%} of the variance of the labels"
    )
