"""The warfarin CSV: what does not fit is refused, with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fedbandit.simulator.data import load_patients, warfarin_table
from tests.simulator.data.cohorts import cohort, patient, text, write


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
    with pytest.raises(ValueError, match="it holds no patient"):
        load_patients(path)
    with pytest.raises(ValueError, match="no patient has a dose"):
        warfarin_table(load_patients(write(path, [patient(therapeutic="")])))
    packed = tmp_path / "w.csv.gz"
    packed.write_bytes(gzip.compress(text(cohort(300)).encode())[:-100])
    with pytest.raises(ValueError, match=r"w\.csv\.gz: damaged or cut short"):
        load_patients(packed)
