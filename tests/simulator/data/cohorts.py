"""Warfarin patients for tests, as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

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
