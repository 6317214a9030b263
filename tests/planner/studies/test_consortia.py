"""The prediction over consortia of all kinds: two of them here, all of them in the long tests."""

from __future__ import annotations

import pytest

from fedbandit.planner.studies import consortia
from fedbandit.planner.studies.consortia import CONSORTIA, Checked, accord, checked
from fedbandit.simulator.result import Estimate


def test_the_grid_is_as_wide_as_the_page_says() -> None:
    assert len(CONSORTIA) == 32
    for name, least, most in (("silos", 2, 1000), ("dim", 3, 60), ("arms", 2, 1000), ("visits", 1, 5)):
        values = [getattr(one, name) for one in CONSORTIA]
        assert (min(values), max(values)) == (least, most)
    assert len({(one.privacy.epsilon, one.privacy.delta) for one in CONSORTIA}) >= 4


def test_what_is_predicted_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consortia, "CONSORTIA", CONSORTIA[10:12])
    rows = list(checked(runs=2, seed=0))
    assert [row.consortium for row in rows] == list(CONSORTIA[10:12])
    found = accord(rows)
    assert 0.6 < found.lowest_ratio < found.highest_ratio < 1.6
    assert found.wrong == 0


def test_a_bad_recommendation_is_counted() -> None:
    row = Checked(CONSORTIA[0], CONSORTIA[0].plan(), "secure-sum", 0.1, Estimate(0.5, 0.0), 0.2, Estimate(0.4, 0.0))
    assert row.wrong
    assert accord([row]).wrong == 1
    assert accord([row]).lowest_ratio == pytest.approx(0.2)


@pytest.mark.torture
def test_all_consortia_agree_as_the_page_says() -> None:
    found = accord(list(checked(runs=3, seed=5000)))
    assert found.rank_correlation == pytest.approx(0.994, abs=5e-4)
    assert (found.lowest_ratio, found.highest_ratio) == pytest.approx((0.81, 1.46), abs=0.005)
    assert found.wrong == 0
