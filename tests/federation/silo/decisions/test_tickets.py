"""Ids that are issued together: each holds what was said of its own decision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fedbandit.federation.silo.decisions.tickets import DecisionIds

DIM = 3
ALICE, BOB = b"a" * 16, b"b" * 16


def issuing() -> DecisionIds:
    return DecisionIds(b"secret", "plan", DIM)


@pytest.mark.parametrize(
    "people, places",
    [
        ([None] * 4, [-1] * 4),  # the usual case: all heads are alike
        ([None] * 4, [-1, -1, 7, -1]),
        ([None, None, ALICE, None], [-1] * 4),
        ([ALICE] * 4, [-1] * 4),
        ([ALICE, BOB, None, BOB], [0, 1, 2, -2]),
    ],
)
def test_each_id_holds_its_own_person_place_and_row(people: Sequence[bytes | None], places: Sequence[int]) -> None:
    features, now = np.arange(4.0 * DIM).reshape(4, DIM) / 100, 6_000_030.0
    ids = issuing().issue(features, people, places, now)
    found = [issuing().read(one) for one in ids]  # another process, which remembers nothing
    assert [one.person for one in found] == list(people)
    assert [one.place for one in found] == list(places)
    assert [one.features for one in found] == [row.tobytes() for row in features]
    assert {one.issued for one in found} == {6_000_000.0}
    assert len({one.nonce for one in found}) == 4


def test_ids_for_nobody() -> None:
    assert issuing().issue(np.empty((0, DIM)), [], []) == []


def test_every_decision_needs_a_place() -> None:
    with pytest.raises(ValueError, match="zip"):
        issuing().issue(np.zeros((2, DIM)), [None, ALICE], [-1])
