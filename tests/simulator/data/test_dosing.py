"""Warfarin dosing: the numbers that describe a patient, how missing values count, and the three-armed table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import ActionTable, load_patients, warfarin_table
from fedbandit.simulator.data.dosing import FEATURES, patient_numbers
from fedbandit.simulator.data.patients import DOSE
from tests.simulator.data.cohorts import TYPICAL, cohort, patient, write


def test_each_number_says_what_its_name_says(tmp_path: Path) -> None:
    changes = [
        {},
        {"age": "90+"},
        {"height": "178"},
        {"weight": "175"},
        {"race": "Asian"},
        {"race": "Black or African American"},
        {"vkorc1": "A/A"},
        {"vkorc1": "NA"},
        {"cyp2c9": "*1/*3"},
        {"cyp2c9": "*2/*11"},
        {"amiodarone": "1"},
        {"phenytoin": "1", "carbamazepine": "NA"},
    ]
    path = write(tmp_path / "w.csv", [patient(**change) for change in changes])
    numbers = patient_numbers(load_patients(path))
    expected = np.zeros((len(changes), len(FEATURES)))
    at = [
        (1, 0, 3 / 8),
        (2, 1, 1 / 8),
        (3, 2, 0.5),
        (4, 3, 1),
        (5, 4, 1),
        (6, 5, 0.5),
        (7, 6, 1),
        (8, 7, 0.5),
    ]
    for row, column, value in [*at, (9, 7, 1), (10, 8, 1), (11, 9, 1)]:
        expected[row, column] = value
    np.testing.assert_allclose(numbers, expected)


def test_what_is_missing_counts_as_the_typical_patient(tmp_path: Path) -> None:
    nothing = dict.fromkeys(TYPICAL, "NA") | {DOSE: "35"}
    empty = dict.fromkeys(TYPICAL, "") | {DOSE: "35"}
    numbers = patient_numbers(load_patients(write(tmp_path / "w.csv", [nothing, empty, TYPICAL])))
    unknown = FEATURES.index("VKORC1 -1639 unknown")
    assert numbers[:2, unknown].tolist() == [1, 1]
    np.testing.assert_array_equal(np.delete(numbers, unknown, axis=1), 0)


def test_the_table_holds_each_dosed_patient_once_per_arm(tmp_path: Path) -> None:
    people = [*cohort(200), patient(therapeutic="NA"), patient(therapeutic="20.99")]
    people += [patient(therapeutic=dose) for dose in ("21", "49", "49.01")]
    table = warfarin_table(load_patients(write(tmp_path / "w.csv", people)))
    width = len(FEATURES) + 1
    assert (table.sets, np.diff(table.offsets).max(), table.dim) == (204, 3, 3 * width)
    assert table.outcomes is not None
    assert table.outcomes.reshape(-1, 3)[-4:].argmax(axis=1).tolist() == [0, 1, 1, 2]
    blocks = table.features.reshape(204, 3, 3, width)
    for arm in range(3):
        np.testing.assert_array_equal(blocks[:, arm, arm], blocks[:, 0, 0])
        np.testing.assert_array_equal(np.delete(blocks[:, arm], arm, axis=1), 0)
    assert np.linalg.norm(table.features.astype(np.float64), axis=1).max() <= 1
    assert "205 patients, 1 without a dose left out" in table.description


def test_means_are_the_least_squares_fit_of_the_outcomes_shifted_and_scaled(tmp_path: Path) -> None:
    table = warfarin_table(load_patients(write(tmp_path / "w.csv", cohort(500))))
    assert table.outcomes is not None
    rows = table.features.astype(np.float64)
    fit = rows @ np.linalg.pinv(rows) @ table.outcomes
    assert fit.min() < 0  # the plain fit is no probability: the shift is needed
    slope, level = np.polyfit(fit, table.means, 1)
    np.testing.assert_allclose(table.means, slope * fit + level, atol=1e-9)
    assert slope > 0
    assert 0 <= table.means.min() <= table.means.max() <= 1
    assert np.linalg.norm(table.theta) == pytest.approx(1)
    np.testing.assert_allclose(rows @ table.theta, table.means, atol=1e-12)
    best = table.means.reshape(-1, 3).argmax(axis=1)
    right = table.outcomes.reshape(-1, 3).argmax(axis=1)
    assert (best == right).mean() > np.bincount(right).max() / len(right) + 0.1


def sorted_rows(table: ActionTable) -> list[list[float]]:
    assert table.outcomes is not None
    return sorted(np.column_stack([table.features, table.outcomes]).tolist())


def test_silos_are_parts_of_the_file_or_drawn_with_the_seed(tmp_path: Path) -> None:
    patients = load_patients(write(tmp_path / "w.csv", cohort(60)))
    by_file = warfarin_table(patients)
    one, same, other = (warfarin_table(patients, "random", seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.features, same.features)
    assert not np.array_equal(one.features, by_file.features)
    assert not np.array_equal(one.features, other.features)
    np.testing.assert_allclose(sorted_rows(one), sorted_rows(by_file))
    assert "seed 1" in one.description
    with pytest.raises(ValueError, match="order must be one of file, random; got 'clinic'"):
        warfarin_table(patients, "clinic")  # type: ignore[arg-type]
