"""A projection's points are public and its rows no longer than 1; it keeps most of what rows differ by."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.problem import Category, Hashed, Projection, Schema
from fedbandit.problem.encoding import ActionRecord, RecordEncoder

FIELDS = {f"f{number}": Hashed(20) for number in range(4)}
WIDE = Schema(FIELDS, actions=("A", "B", "C"), projection=Projection(24, seed=1))


SIGNS = [[-1, -1, -1, -1, 1, 1, -1, -1], [1, 1, -1, 1, 1, 1, 1, -1], [1, 1, -1, 1, 1, 1, -1, -1]]


def rows_of(schema: Schema, people: int) -> np.ndarray:
    codes = np.random.default_rng(0).integers(0, 1000, size=(people, len(FIELDS)))
    contexts = {name: [str(code) for code in codes[:, number]] for number, name in enumerate(FIELDS)}
    return RecordEncoder(schema).rows_of_many(contexts, people).rows


def test_signs_are_the_same_everywhere() -> None:
    assert Projection(8, seed=1).signs(3).astype(int).tolist() == SIGNS
    assert (Projection(8, seed=2).signs(3) != SIGNS).any()


def test_no_row_is_longer_than_one_and_few_are_short() -> None:
    """Better than by the singular value alone, which would leave sqrt(24 / 243) = 0.31."""
    lengths = np.linalg.norm(rows_of(WIDE, 5000), axis=-1)
    assert lengths.max() <= 1
    assert np.median(lengths) > 0.45


def test_what_differs_stays_different() -> None:
    """Angles between rows are kept to about one over the root of the columns."""
    whole = rows_of(Schema(FIELDS, actions=("A", "B", "C")), 200)[:, 0]
    short = rows_of(WIDE, 200)[:, 0]
    scale = np.linalg.norm(short, axis=1).mean()
    error = short @ short.T / scale**2 - whole @ whole.T
    assert np.sqrt((error**2).mean()) < 1.5 / np.sqrt(24)


def test_a_category_alone_is_projected_to_its_own_length() -> None:
    schema = Schema(actions=tuple("abcdefghij"), projection=Projection(6))
    lengths = np.linalg.norm(RecordEncoder(schema).rows({}).rows, axis=1)
    assert lengths == pytest.approx(1, abs=1e-5)
    assert (lengths <= 1).all()


def test_of_very_many_columns_the_singular_value_decides() -> None:
    wide = Schema(features={"word": Hashed(5000), "kind": Category(["a"])}, projection=Projection(8))
    lengths = [np.linalg.norm(rows_of_word(wide, str(word))) for word in range(50)]
    assert 0 < max(lengths) <= 1


def rows_of_word(schema: Schema, word: str) -> np.ndarray:
    return RecordEncoder(schema).rows({}, [ActionRecord("", {"word": word, "kind": "a"})]).rows
