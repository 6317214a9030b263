"""Action tables keep what they promise, and the bounded model is the best of its kind."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.simulator.data import ActionTable
from fedbandit.simulator.data.table import bounded_model, with_constant


def test_no_other_shift_leaves_larger_gaps() -> None:
    rng = np.random.default_rng(3)
    rest = rng.normal(size=(200, 4))
    rows = with_constant(rest / np.linalg.norm(rest, axis=1).max())
    ones = np.zeros(5)
    ones[0] = 1 / float(rows[0, 0])
    for weights in (np.array([-1.0, 2, -3, 0.5, 0]), np.array([30.0, 2, -3, 0.5, 0])):
        model = bounded_model(rows, weights, ones)
        predictions = rows.astype(np.float64) @ weights
        np.testing.assert_allclose(model.means, model.scale * (predictions + model.shift), atol=1e-12)
        np.testing.assert_allclose(model.means, rows.astype(np.float64) @ model.theta, atol=1e-12)
        for shift in np.linspace(-predictions.min(), -predictions.min() + 40, 500):
            longest = max(float(np.linalg.norm(weights + shift * ones)), predictions.max() + shift)
            assert 1 / longest <= model.scale * (1 + 1e-9)


def table_of(**changes: object) -> ActionTable:
    features = np.array([[0.6, 0.8], [1, 0], [0, 0.5]], dtype=np.float32)
    theta = np.array([0.5, 0.5])
    fields: dict[str, object] = {
        "features": features,
        "offsets": np.array([0, 2, 3]),
        "means": features.astype(np.float64) @ theta,
        "theta": theta,
        "description": "",
    }
    return ActionTable(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"features": np.ones((3, 2), np.float32)}, "features must have rows of norm at most 1, got 1.41421"),
        ({"features": np.full((3, 2), np.nan, np.float32)}, "features must be finite"),
        ({"features": np.zeros((0, 2), np.float32)}, r"features must have shape \(rows, dim\)"),
        ({"offsets": np.array([0, 2, 2, 3])}, "no set may be empty, but set 1 is"),
        ({"offsets": np.array([0, 2])}, "offsets must run from 0 to the 3 rows, got 0..2"),
        ({"offsets": np.array([0])}, "offsets must have shape"),
        ({"means": np.array([0.7, 0.5])}, r"means must have shape \(3,\)"),
        ({"means": np.array([0.7, 0.5, 0.9])}, "means must be features @ theta"),
        ({"theta": np.array([1.5, 0.5])}, "means must be features @ theta"),
        ({"theta": np.zeros(3)}, r"theta must have shape \(2,\)"),
        ({"outcomes": np.array([0.0, 2.0, 1.0])}, r"outcomes must lie in \[0, 1\]"),
    ],
)
def test_a_table_that_breaks_its_promise_does_not_construct(changes: dict[str, object], said: str) -> None:
    assert table_of().bounded
    with pytest.raises(ValueError, match=said):
        table_of(**changes)


def test_only_a_table_that_is_not_bounded_may_leave_the_unit_interval() -> None:
    features = np.array([[1, 0], [0, 1], [0.6, 0.8]], dtype=np.float32)
    for theta, said in (
        (np.array([-0.5, 0.5]), r"means must lie in \[0, 1\]"),
        (np.array([1.0, 0.9]), "norm"),
    ):
        changes = {"features": features, "theta": theta, "means": features.astype(np.float64) @ theta}
        with pytest.raises(ValueError, match=said):
            table_of(**changes)
        assert not table_of(**changes, bounded=False).bounded


def test_sets_are_divided_equally() -> None:
    sets = 23
    features = np.full((sets, 1), 0.5, dtype=np.float32)
    table = ActionTable(features, np.arange(sets + 1), np.full(sets, 0.5), np.array([1.0]), "")
    for silos in (1, 4, 23):
        bounds = table.divided(silos)
        assert (bounds[0], bounds[-1], len(bounds)) == (0, sets, silos + 1)
        assert np.ptp(np.diff(bounds)) <= 1
    with pytest.raises(ValueError, match="silos must be at most the number of action sets, 23, got 24"):
        table.divided(24)
    with pytest.raises(ValueError, match="silos must be a whole number >= 1"):
        table.divided(0)
