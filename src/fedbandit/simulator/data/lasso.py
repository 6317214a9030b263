"""The paper's real-data instance: a lasso on judged documents is taken as the truth behind their rewards.

Queries are contexts, their documents are the actions, and theta is fitted to the relevance labels (no intercept; the
penalty by 5-fold cross-validation over 10^-3..10^2). Raw features have norms up to 2e8, so rows are scaled first;
`SCALINGS` says how, and `ActionTable.description` repeats it with the numbers found.
"""

from __future__ import annotations

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

# Up to id 125 MSLR repeats each measure for body, anchor, title, url and whole document, so ids mod 5 tell them apart;
# then come measures of the document alone. "title" and "body" are the published split into 57 and 78 numbers, the added
# constant being one of them. By MSLR's own list the group called title holds anchor and url, the one called body holds
# body, title and whole document: the names are the paper's.
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
    "norm, as in the published simulation; the model is linear in the scaled row, not in the raw features",
}


def letor_table(data: Letor, group: Group = "title", scaling: Scaling = "row") -> ActionTable:
    """One action set per query, with theta from the lasso on the scaled features.

    `group` picks the title (57) or body (78) numbers of MSLR, or all 136 and the constant; data with another number
    of features use all of them and the constant. With the scalings "row" and "column" predictions are shifted and
    scaled so that ||theta|| <= 1 and means lie in [0, 1], which keeps the model linear and the order of the documents.
    "published" leaves theta as the lasso gives it, and the table is not `bounded`.
    """
    _validate.one_of("group", group, GROUPS)
    _validate.one_of("scaling", scaling, SCALINGS)
    raw, used = _columns(data.features, group)
    features = _scaled(raw, scaling)
    weights, fitted = _lasso(features, data.labels)
    if scaling == "published":
        theta, means = weights, features.astype(np.float64) @ weights
        spread = f"from {means.min():.3g} to {means.max():.3g}"
        model = f"theta is the lasso itself, of norm {np.linalg.norm(theta):.3g}; means are its predictions, "
        model += f"{spread}, for noiseless rewards"
    else:
        bounded = _bounded(features, weights)
        theta, means = bounded.theta, bounded.means
        model = f"theta has norm {np.linalg.norm(theta):.3g}; means are {bounded}"
    found = f"{len(data.queries):,} queries, {len(data.labels):,} documents, {used}"
    description = f"{found}.\nRows: {SCALINGS[scaling]}.\nLasso: {fitted}.\nModel: {model}."
    return ActionTable(features, data.offsets, means, theta, description, bounded=scaling != "published")


def _columns(features: Singles, group: Group) -> tuple[Floats, str]:
    """The features that are used, raw, and a phrase that says which they are."""
    count = features.shape[1]
    if count != MSLR_FEATURES:
        used = f"all {count} features and a constant (no title or body: not MSLR)"
        return features.astype(np.float64), used
    ids = np.array(GROUPS[group])
    return features[:, ids - 1].astype(np.float64), f"{ids.size} of {count} features ({group}) and a constant"


def _scaled(raw: Floats, scaling: Scaling) -> Singles:
    """Rows of norm at most 1; a row of zeros stays one."""
    if scaling == "published":
        constant = np.full((raw.shape[0], 1), PUBLISHED_CONSTANT)
        return (_unit_rows(np.concatenate([constant, raw], axis=1)) * ROUND_DOWN).astype(np.float32)
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


def _lasso(features: Singles, labels: NDArray[np.int32]) -> tuple[Floats, str]:
    """Weights (dim,) for the penalty that predicts best over contiguous fifths, and a sentence about the fit."""
    try:
        from sklearn.linear_model import LassoCV
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        needed = "pip install 'fedbandit[data]'"
        raise ImportError(f"the lasso behind real data needs scikit-learn: {needed}") from None
    if len(labels) < FOLDS:
        raise ValueError(f"the lasso needs at least {FOLDS} documents, got {len(labels)}")
    rows, targets = features.astype(np.float64), labels.astype(np.float64)
    if targets.min() == targets.max():
        raise ValueError(f"the lasso needs different labels, but every document has {labels[0]}")
    fit = LassoCV(alphas=PENALTIES, cv=FOLDS, fit_intercept=False, max_iter=10_000)
    with threadpool_limits(limits=1):  # its steps are so small that threads spend 20 x the time waiting
        fit.fit(rows, targets)
    weights = np.asarray(fit.coef_, dtype=np.float64)
    at_edge = ", an end of the range tried," if fit.alpha_ in PENALTIES[[0, -1]] else ""
    explained = 1 - np.mean((targets - rows @ weights) ** 2) / np.var(targets)
    return weights, (
        f"on labels {labels.min()}..{labels.max()}, no intercept, penalty {fit.alpha_:.4g}{at_edge} by "
        f"{FOLDS}-fold cross-validation; {np.count_nonzero(weights)} of {weights.size} weights are not 0, "
        f"and it explains {explained:.1%} of the variance of the labels"
    )
