"""The lasso instance made of judged documents."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from fedbandit.simulator.data import Group, Letor, Scaling, letor_table, load_letor
from fedbandit.simulator.data.lasso import GROUPS
from tests.simulator.data.texts import MSLR, judged, line, needs_mslr, write


def instance(tmp_path: Path, features: int = 6, queries: int = 80) -> Letor:
    return load_letor(write(tmp_path / "a.txt", judged(queries, features)))


@pytest.mark.parametrize("scaling", ["row", "column"])
def test_a_bounded_table_is_linear_and_keeps_the_lassos_order(tmp_path: Path, scaling: Scaling) -> None:
    data = instance(tmp_path)
    table = letor_table(data, scaling=scaling)
    rows = table.features.astype(np.float64)
    assert table.bounded
    assert table.dim == 7
    assert np.linalg.norm(rows, axis=1).max() <= 1
    assert np.linalg.norm(table.theta) <= 1 + 1e-12
    assert 0 <= table.means.min() < table.means.max() <= 1
    np.testing.assert_allclose(rows @ table.theta, table.means, atol=1e-12)
    np.testing.assert_allclose(rows[:, 0], 2**-0.5, rtol=1e-6)
    np.testing.assert_array_equal(table.offsets, data.offsets)
    # Labels lean on the first two features, and scaling by columns leaves means linear in the raw features.
    if scaling == "column":
        assert np.corrcoef(table.means, data.features[:, 0] + data.features[:, 1] / 50)[0, 1] > 0.99


def test_the_published_table_meets_the_optimality_conditions_of_the_lasso(tmp_path: Path) -> None:
    """For min |y - X w|^2 / 2n + a |w|_1: X'(y - X w)/n is a sign(w) where w is not 0, else within +-a. Here a = 1."""
    data = instance(tmp_path, queries=300)
    table = letor_table(data, scaling="published")
    rows = table.features.astype(np.float64)
    raw = np.column_stack([np.full(len(rows), 0.01), data.features.astype(np.float64)])
    np.testing.assert_allclose(rows, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-6, atol=1e-9)
    assert table.outcomes is not None
    weights = np.linalg.lstsq(raw, table.outcomes, rcond=None)[0]  # of the raw features
    np.testing.assert_allclose(raw @ weights, table.outcomes, atol=1e-8)
    pull = raw.T @ (data.labels - table.outcomes) / len(rows)
    active = np.abs(weights) > 1e-8
    assert active.any()
    np.testing.assert_allclose(pull[active], np.sign(weights[active]), rtol=0.05)
    assert np.abs(pull).max() <= 1.05
    assert not table.bounded
    np.testing.assert_allclose(table.means, rows @ table.theta)
    residual = table.outcomes - table.means  # the best linear fit leaves nothing that is linear in what is seen
    assert np.abs(rows.T @ residual).max() < 1e-6 * len(rows)
    assert np.abs(residual).max() > 1e-3


def test_published_rewards_need_features_large_enough_for_the_penalty(tmp_path: Path) -> None:
    data = instance(tmp_path)
    small = replace(data, features=data.features / np.float32(1000))
    with pytest.raises(ValueError, match="predicts the same for every action"):
        letor_table(small, scaling="published")


def test_another_number_of_features_uses_all_of_them(tmp_path: Path) -> None:
    table = letor_table(instance(tmp_path, features=46), group="body")
    assert table.dim == 47
    assert "all 46 features and a constant" in table.description


def test_groups_of_mslr_have_the_papers_dimensions(tmp_path: Path) -> None:
    data = instance(tmp_path, features=136, queries=40)
    assert [letor_table(data, group).dim for group in get_args(Group)] == [57, 78, 137]
    assert not set(GROUPS["title"]) & set(GROUPS["body"])


def test_a_document_of_zeros_is_kept(tmp_path: Path) -> None:
    rows = [*judged(40, 3), line(0, 999, [0, 0, 0])]
    table = letor_table(load_letor(write(tmp_path / "a.txt", rows)))
    np.testing.assert_allclose(table.features[-1], [2**-0.5, 0, 0, 0], rtol=1e-6)


def test_what_cannot_be_fitted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at least 5 documents, got 2"):
        letor_table(load_letor(write(tmp_path / "few.txt", [line(1, 1, [1]), line(0, 1, [2])])))
    with pytest.raises(ValueError, match="every document has 1"):
        letor_table(load_letor(write(tmp_path / "same.txt", [line(1, 1, [i]) for i in range(9)])))
    data = instance(tmp_path)
    with pytest.raises(ValueError, match="group must be one of title, body, all; got 'url'"):
        letor_table(data, group="url")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scaling must be one of row, column, published; got 'none'"):
        letor_table(data, scaling="none")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ImportError, match=r"pip install 'fedbandit\[data\]'"):
        letor_table(data)


@pytest.mark.shared
@needs_mslr
@pytest.mark.parametrize("group, dim", [("title", 57), ("body", 78)])
def test_the_real_sample_makes_the_papers_instances(group: Group, dim: int) -> None:
    data = load_letor(MSLR)
    for scaling in get_args(Scaling):
        table = letor_table(data, group, scaling)
        assert (table.dim, table.sets, np.diff(table.offsets).max()) == (dim, 182, 337)
        assert np.ptp(table.means) > 0.2  # there is something to learn
        assert len(table.divided(10)) == 11


@pytest.mark.shared
@needs_mslr
@pytest.mark.parametrize("group, explained", [("title", 0.28), ("body", 0.68)])
def test_published_rewards_are_not_linear_in_what_the_learner_sees(group: Group, explained: float) -> None:
    table = letor_table(load_letor(MSLR), group, "published")
    assert table.outcomes is not None
    left = np.mean((table.outcomes - table.means) ** 2) / np.var(table.outcomes)
    assert 1 - left == pytest.approx(explained, abs=0.005)


def test_the_published_groups_hold_no_title_feature() -> None:
    # Up to 125, MSLR repeats each measure for body, anchor, title, URL and whole document.
    assert GROUPS["title"] == (*(5 * i + k for i in range(25) for k in (2, 4)), *range(126, 132))
    assert GROUPS["body"] == (*(i for i in range(1, 126) if i % 5 in (0, 1, 3)), 132, 133)
    assert not any(i % 5 == 3 for i in GROUPS["title"] if i <= 125)
    assert (len(GROUPS["title"]) + 1, len(GROUPS["body"]) + 1) == (57, 78)  # and the constant
