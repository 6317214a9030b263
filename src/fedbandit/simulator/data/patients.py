"""The warfarin dosing records of the International Warfarin Pharmacogenetics Consortium, from their CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbandit._arrays import Flags, Floats, Integers
from fedbandit.simulator.data.lines import DAMAGED, open_bytes

__all__ = [
    "AGE",
    "AMIODARONE",
    "ARMS",
    "COLUMNS",
    "CYP2C9",
    "DOSE",
    "HEIGHT",
    "INDUCERS",
    "RACE",
    "VKORC1",
    "WEIGHT",
    "Patients",
    "dose_classes",
    "load_patients",
    "number",
]

DOSE = "Therapeutic Dose of Warfarin"
AGE, HEIGHT, WEIGHT, RACE = "Age", "Height (cm)", "Weight (kg)", "Race"
VKORC1, CYP2C9 = "VKORC1 -1639 consensus", "CYP2C9 consensus"
AMIODARONE = "Amiodarone (Cordarone)"
INDUCERS = ("Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin")
COLUMNS = (AGE, HEIGHT, WEIGHT, RACE, VKORC1, CYP2C9, AMIODARONE, *INDUCERS)  # what the features are made of
MISSING = ("", "NA", "Unknown")

ARMS = ("low, < 21 mg a week", "medium, 21 to 49 mg a week", "high, > 49 mg a week")
MEDIUM_FROM, HIGH_ABOVE = 21.0, 49.0


@dataclass(frozen=True)
class Patients:
    """One record per patient, with columns by name; a dose is NaN if none is recorded."""

    records: tuple[dict[str, str], ...]
    lines: tuple[int, ...]  # the line of the file on which each record ends
    doses: Floats  # (patients,), mg per week
    file: str

    def missing(self, column: str) -> Flags:
        """Which patients have no value in a column, (patients,)."""
        return np.array([record[column] in MISSING for record in self.records], dtype=bool)

    def complaint(self, patient: int, column: str, expected: str) -> ValueError:
        """The error to raise for a value that is not as expected."""
        got = self.records[patient][column]
        return ValueError(f"{self.file}, line {self.lines[patient]}: {column} must be {expected}, got {got!r}")


def load_patients(path: Path | str) -> Patients:
    """Read the CSV, plain or .gz; a record that does not fit the header raises ValueError with its line."""
    path = Path(path)
    try:
        with open_bytes(path) as stream:
            read = list(_records(path, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")))
    except (*DAMAGED, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: damaged or cut short: {error}") from None
    if not read:
        raise ValueError(f"{path}: it holds no patient")
    lines, records = zip(*read, strict=True)
    doses = np.full(len(records), np.nan)
    patients = Patients(records, lines, doses, str(path))
    for patient in np.flatnonzero(~patients.missing(DOSE)):
        doses[patient] = number(patients, int(patient), DOSE, 0.1, 1000)
    return patients


def number(patients: Patients, patient: int, column: str, least: float, most: float) -> float:
    """The number in a column, which must lie between `least` and `most`."""
    expected = f"a number between {least:g} and {most:g}"
    try:
        value = float(patients.records[patient][column])
    except ValueError:
        raise patients.complaint(patient, column, expected) from None
    if not least <= value <= most:
        raise patients.complaint(patient, column, expected)
    return value


def dose_classes(doses: Floats) -> Integers:
    """Index into `ARMS` of each dose."""
    return np.where(doses < MEDIUM_FROM, 0, np.where(doses <= HIGH_ABOVE, 1, 2)).astype(np.int64)


def _records(path: Path, text: io.TextIOWrapper) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(text)
    header = next(reader, [])
    absent = [column for column in (DOSE, *COLUMNS) if column not in header]
    if absent:
        raise ValueError(f"{path}: not the warfarin CSV, its header lacks {', '.join(map(repr, absent))}")
    for fields in reader:
        if not any(fields):
            continue  # a record of nothing but commas
        if len(fields) != len(header):
            counts = f"{len(fields)} fields where the header has {len(header)}"
            raise ValueError(f"{path}, line {reader.line_num}: {counts}")
        yield reader.line_num, {name: value.strip() for name, value in zip(header, fields, strict=True)}
