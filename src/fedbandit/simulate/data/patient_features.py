"""Ten numbers that say what bears on a patient's dose; nothing in their scale is taken from the patients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedbandit.simulate.data.patients import (
    AGE,
    AMIODARONE,
    COLUMNS,
    CYP2C9,
    HEIGHT,
    INDUCERS,
    RACE,
    VKORC1,
    WEIGHT,
    Patients,
    number,
)

Floats = NDArray[np.float64]

# The value counted as 0, the unit, and the least and the most that is plausible.
_AGE_DECADE = (6.0, 8.0)
_HEIGHT = (168.0, 80.0, 50.0, 260.0)
_WEIGHT = (75.0, 200.0, 10.0, 400.0)

FEATURES = (
    "age by decade, 60-69 = 0, a decade = 1/8",
    "height, 168 cm = 0, a metre = 1.25",
    "weight, 75 kg = 0, 100 kg = 0.5",
    "Asian",
    "Black or African American",
    "VKORC1 -1639: A/A 1/2, A/G 0, G/G -1/2",
    "VKORC1 -1639 unknown",
    "CYP2C9: half the number of alleles other than *1",
    "takes amiodarone",
    "takes an enzyme inducer (carbamazepine, phenytoin or rifampin)",
)


def patient_numbers(patients: Patients) -> Floats:
    """What `FEATURES` says of each patient, (patients, 10); a missing value counts as 0."""
    race = [record[RACE] for record in patients.records]
    inducers = np.any([_column(patients, name, _yes) for name in INDUCERS], axis=0)
    return np.stack(
        [
            _column(patients, AGE, _decade),
            _column(patients, HEIGHT, lambda p, i, name: _ranged(p, i, name, *_HEIGHT)),
            _column(patients, WEIGHT, lambda p, i, name: _ranged(p, i, name, *_WEIGHT)),
            np.array([value == "Asian" for value in race], dtype=np.float64),
            np.array([value == "Black or African American" for value in race], dtype=np.float64),
            _column(patients, VKORC1, _vkorc1),
            patients.missing(VKORC1).astype(np.float64),
            _column(patients, CYP2C9, _cyp2c9),
            _column(patients, AMIODARONE, _yes),
            inducers.astype(np.float64),
        ],
        axis=1,
    )


def _column(patients: Patients, name: str, value: Callable[[Patients, int, str], float]) -> Floats:
    known = ~patients.missing(name)
    return np.array([value(patients, i, name) if known[i] else 0.0 for i in range(len(known))])


def _ranged(patients: Patients, i: int, name: str, zero: float, unit: float, least: float, most: float) -> float:
    return (number(patients, i, name, least, most) - zero) / unit


def _decade(patients: Patients, i: int, name: str) -> float:
    text = patients.records[i][name]
    if len(text) < 2 or not (text[0] in "123456789" and text[1] == "0"):
        raise patients.complain(i, name, "a decade such as '60 - 69' or '90+'")
    return (float(text[0]) - _AGE_DECADE[0]) / _AGE_DECADE[1]


def _vkorc1(patients: Patients, i: int, name: str) -> float:
    alleles = sorted(patients.records[i][name].split("/"))
    if len(alleles) != 2 or not set(alleles) <= {"A", "G"}:
        raise patients.complain(i, name, "A/A, A/G, G/G or missing")
    return (alleles.count("A") - 1) / 2


def _cyp2c9(patients: Patients, i: int, name: str) -> float:
    alleles = patients.records[i][name].split("/")
    if len(alleles) != 2 or not all(allele.startswith("*") for allele in alleles):
        raise patients.complain(i, name, "two alleles such as *1/*3, or missing")
    return sum(allele != "*1" for allele in alleles) / 2


def _yes(patients: Patients, i: int, name: str) -> float:
    if patients.records[i][name] not in ("0", "1"):
        raise patients.complain(i, name, "0, 1 or missing")
    return float(patients.records[i][name])


def filled_in(patients: Patients, dosed: NDArray[np.int64]) -> str:
    """What a missing value was taken for, and how often."""
    taken_for = {
        AGE: "60-69",
        HEIGHT: "168",
        WEIGHT: "75",
        RACE: "neither of the two named",
        VKORC1: "A/G and marked unknown",
        CYP2C9: "*1/*1",
        AMIODARONE: "not taken",
        **dict.fromkeys(INDUCERS, "not taken"),
    }
    counts = {name: int(patients.missing(name)[dosed].sum()) for name in COLUMNS}
    return "; ".join(f"{name} {counts[name]:,}, taken as {value}" for name, value in taken_for.items())
