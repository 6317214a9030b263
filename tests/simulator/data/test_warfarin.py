"""Warfarin dosing from its CSV: what is read, how missing values count, and the three-armed table."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from fedbandit.simulator.data import ActionTable, describe, load_patients, warfarin_table
from fedbandit.simulator.data.patient_features import FEATURES, patient_numbers
from fedbandit.simulator.data.patients import ARMS, COLUMNS, DOSE

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "warfarin" / "warfarin.csv.gz"

TYPICAL = {
    "PharmGKB Subject ID": "X1",
    "Race": "White",
    "Age": "60 - 69",
    "Height (cm)": "168",
    "Weight (kg)": "75",
    "Amiodarone (Cordarone)": "0",
    "Carbamazepine (Tegretol)": "0",
    "Phenytoin (Dilantin)": "0",
    "Rifampin or Rifampicin": "0",
    "Therapeutic Dose of Warfarin": "35.00",
    "CYP2C9 consensus": "*1/*1",
    "VKORC1 -1639 consensus": "A/G",
}


def patient(**changes: str) -> dict[str, str]:
    """The typical patient with some columns changed; a keyword is the first word of the column."""
    names = {column.split()[0].lower(): column for column in TYPICAL}
    return {**TYPICAL, **{names[key]: value for key, value in changes.items()}}


def text(records: list[dict[str, str]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)  # ends lines with CRLF, as the published file does
    writer.writerow([*TYPICAL, "", ""])
    for record in records:
        writer.writerow([*record.values(), "", ""])
    return stream.getvalue()


def write(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_bytes(text(records).encode("utf-8-sig"))
    return path


def cohort(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Patients whose dose falls with age and with VKORC1's A allele."""
    rng = np.random.default_rng(seed)
    people = []
    for _ in range(count):
        decade, alleles = int(rng.integers(2, 9)), int(rng.integers(0, 3))
        dose = max(60 - 4 * decade - 12 * alleles + rng.normal(0, 5), 3)
        people.append(
            patient(
                age=f"{decade}0 - {decade}9",
                vkorc1=("G/G", "A/G", "A/A")[alleles],
                weight=f"{rng.uniform(50, 110):.1f}",
                race=str(rng.choice(["White", "Asian", "Black or African American", "Unknown"])),
                therapeutic=f"{dose:.2f}",
            )
        )
    return people


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


def test_the_table_holds_each_dosed_patient_once_an_arm(tmp_path: Path) -> None:
    people = [*cohort(200), patient(therapeutic="NA"), patient(therapeutic="20.99")]
    people += [patient(therapeutic=dose) for dose in ("21", "49", "49.01")]
    table = warfarin_table(load_patients(write(tmp_path / "w.csv", people)))
    width = len(FEATURES) + 1
    assert (table.sets, table.largest_set, table.dim) == (204, 3, 3 * width)
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
    by_file, one, same, other = (
        warfarin_table(patients, order, seed)
        for order, seed in (("file", 0), ("random", 1), ("random", 1), ("random", 2))
    )
    np.testing.assert_array_equal(one.features, same.features)
    assert not np.array_equal(one.features, by_file.features)
    assert not np.array_equal(one.features, other.features)
    np.testing.assert_allclose(sorted_rows(one), sorted_rows(by_file))
    assert "seed 1" in one.description
    with pytest.raises(ValueError, match="order must be one of file, random; got 'clinic'"):
        warfarin_table(patients, "clinic")


@pytest.mark.parametrize(
    "changes, said",
    [
        (
            {"therapeutic": "abc"},
            "Therapeutic Dose of Warfarin must be a number between 0.1 and 1000, got 'abc'",
        ),
        ({"therapeutic": "nan"}, "Therapeutic Dose of Warfarin must be a number"),
        ({"therapeutic": "0"}, "Therapeutic Dose of Warfarin must be a number"),
        ({"height": "1680"}, r"Height \(cm\) must be a number between 50 and 260, got '1680'"),
        ({"age": "old"}, "Age must be a decade such as '60 - 69' or '90.', got 'old'"),
        ({"vkorc1": "C/T"}, "VKORC1 -1639 consensus must be A/A, A/G, G/G or missing, got 'C/T'"),
        ({"cyp2c9": "1"}, "CYP2C9 consensus must be two alleles"),
        ({"amiodarone": "yes"}, r"Amiodarone \(Cordarone\) must be 0, 1 or missing, got 'yes'"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    path = write(tmp_path / "w.csv", [patient(), patient(**changes)])
    with pytest.raises(ValueError, match=rf"w\.csv, line 3: {said}"):
        warfarin_table(load_patients(path))


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not the warfarin CSV, its header lacks 'Therapeutic Dose of Warfarin'"):
        load_patients(path)
    path.write_text(text([patient(), patient()])[:-20])
    with pytest.raises(ValueError, match=r"line 3: \d+ fields where the header has 14"):
        load_patients(path)
    path.write_text(text([]))
    with pytest.raises(ValueError, match="there is no patient in it"):
        load_patients(path)
    with pytest.raises(ValueError, match="no patient has a dose"):
        warfarin_table(load_patients(write(path, [patient(therapeutic="")])))
    packed = tmp_path / "w.csv.gz"
    packed.write_bytes(gzip.compress(text(cohort(300)).encode())[:-100])
    with pytest.raises(ValueError, match=r"w\.csv\.gz: damaged or cut short"):
        load_patients(packed)


def test_describe_knows_the_csv_by_its_header(tmp_path: Path) -> None:
    people = [patient(therapeutic=dose) for dose in ("10", "30", "30", "60", "NA")]
    people += [patient(height="", race="Unknown"), dict.fromkeys(TYPICAL, "")]
    packed = tmp_path / "w.csv.gz"
    packed.write_bytes(gzip.compress(text(people).encode("utf-8-sig")))
    missing = dict.fromkeys(COLUMNS, 0) | {"Height (cm)": 1, "Race": 1}
    for path in (packed, write(tmp_path / "w.txt", people)):
        assert describe(path) == {
            "kind": "warfarin",
            "files": [str(path)],
            "patients": 6,
            "with_dose": 5,
            "classes": dict(zip(ARMS, (1, 3, 1), strict=True)),
            "missing": missing,
        }


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_file(), reason="the folder ../shared/data/warfarin is not there")
def test_the_real_patients_are_read_as_they_are_known() -> None:
    found = describe(SHARED)
    assert (found["patients"], found["with_dose"]) == (5_700, 5_528)
    assert list(found["classes"].values()) == [1_495, 3_382, 651]
    table = warfarin_table(load_patients(SHARED))
    assert (table.sets, table.dim) == (5_528, 33)
    assert np.ptp(table.means) > 0.3
