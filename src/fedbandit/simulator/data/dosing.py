"""Warfarin dosing as a bandit: patients are contexts, three dose classes are the arms, clinics are the silos.

The reward of a dose class is 1 if the dose that proved right for the patient is in it, else 0. That is not linear in
what is known about a patient. So the linear task takes the best linear fit as its truth, and the 0/1 outcomes are kept
as well. A patient is described by ten numbers, whose scales are not derived from the patients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats, Integers, Singles
from fedbandit.simulator.data.patients import (
    AGE,
    AMIODARONE,
    ARMS,
    COLUMNS,
    CYP2C9,
    HEIGHT,
    INDUCERS,
    RACE,
    VKORC1,
    WEIGHT,
    Patients,
    dose_classes,
    number,
)
from fedbandit.simulator.data.table import ActionTable, bounded_model, with_constant

__all__ = ["FEATURES", "Order", "patient_numbers", "warfarin_table"]

Order = Literal["file", "random"]
ORDERS: dict[Order, str] = {
    "file": "contiguous parts of the file, which names no clinics but lists patients in blocks that differ in "
    "population and in what was recorded: these silos differ as clinics would",
    "random": "patients drawn at random (seed {seed}), so that silos differ by chance alone",
}

# The value that counts as 0, the unit, and the smallest and largest plausible values.
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


def warfarin_table(patients: Patients, order: Order = "file", seed: int = 0) -> ActionTable:
    """One action set per patient with a known dose: the patient's numbers in the block of the chosen arm.

    A row has (1, numbers) / sqrt 2 in its arm's block and 0 elsewhere. `means` are the least-squares predictions of the
    outcomes, shifted and scaled in the same way for all arms into a model with ||theta|| <= 1 and means in [0, 1].
    `outcomes` are 1 for the right dose class and 0 for the others. The silos of `ActionTable.divided` are parts of the
    file, or of the patients in random order.
    """
    _validate.one_of("order", order, ORDERS)
    dosed = np.flatnonzero(~np.isnan(patients.doses))
    if not dosed.size:
        raise ValueError(f"{patients.file}: no patient has a dose")
    if order == "random":
        dosed = np.random.default_rng(seed).permutation(dosed)
    numbers = patient_numbers(patients)[dosed]
    longest = float(np.linalg.norm(numbers, axis=1).max()) or 1.0
    vectors = with_constant(numbers / longest)
    right = np.eye(len(ARMS))[dose_classes(patients.doses[dosed])]  # (patients, arms)
    weights = np.linalg.lstsq(vectors.astype(np.float64), right, rcond=None)[0].T.astype(np.float64)
    features = _in_blocks(vectors, len(ARMS))
    model = bounded_model(features, weights.ravel(), _ones(vectors, len(ARMS)))
    offsets = np.arange(len(dosed) + 1, dtype=np.int64) * len(ARMS)
    total = len(patients.records)
    description = (
        f"{total:,} patients, {total - len(dosed):,} without a dose left out.\n"
        f"Arms: {'; '.join(ARMS)}; right for {', '.join(f'{n:,.0f}' for n in right.sum(axis=0))} patients.\n"
        f"Rows: {len(FEATURES)} numbers and a constant in the block of the arm, the numbers divided by "
        f"{longest:.4g}, their largest norm, then (1, numbers) / sqrt 2: {'; '.join(FEATURES)}.\n"
        f"Missing: {_filled_in(patients, dosed)}.\n"
        f"Model: outcomes are 1 for the right dose class, else 0; means are {model}, where the prediction is "
        f"the best linear fit of the outcomes; {_how_good(model.means.reshape(right.shape), right)}.\n"
        f"Silos: {ORDERS[order].format(seed=seed)}."
    )
    return ActionTable(features, offsets, model.means, model.theta, description, outcomes=right.ravel())


def _how_good(means: Floats, right: Floats) -> str:
    guided = float((means.argmax(axis=1) == right.argmax(axis=1)).mean())
    common = float(right.mean(axis=0).max())
    return f"its best arm is right for {guided:.1%} of patients, the most common arm for {common:.1%}"


def _in_blocks(vectors: Singles, arms: int) -> Singles:
    """Row (patient, arm) has the patient's vector in the arm's block: (patients * arms, arms * width)."""
    count, width = vectors.shape
    rows = np.zeros((count, arms, arms, width), dtype=np.float32)
    for arm in range(arms):
        rows[:, arm, arm] = vectors
    return rows.reshape(count * arms, arms * width)


def _ones(vectors: Singles, arms: int) -> Floats:
    """The vector whose product with every row is 1: the inverse of the constant, in every block."""
    ones = np.zeros((arms, vectors.shape[1]))
    ones[:, 0] = 1 / float(vectors[0, 0])
    return ones.ravel()


def patient_numbers(patients: Patients) -> Floats:
    """The numbers of `FEATURES` for each patient, (patients, 10); a missing value counts as 0."""
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
        raise patients.complaint(i, name, "a decade such as '60 - 69' or '90+'")
    return (float(text[0]) - _AGE_DECADE[0]) / _AGE_DECADE[1]


def _vkorc1(patients: Patients, i: int, name: str) -> float:
    alleles = sorted(patients.records[i][name].split("/"))
    if len(alleles) != 2 or not set(alleles) <= {"A", "G"}:
        raise patients.complaint(i, name, "A/A, A/G, G/G or missing")
    return (alleles.count("A") - 1) / 2


def _cyp2c9(patients: Patients, i: int, name: str) -> float:
    alleles = patients.records[i][name].split("/")
    if len(alleles) != 2 or not all(allele.startswith("*") for allele in alleles):
        raise patients.complaint(i, name, "two alleles such as *1/*3, or missing")
    return sum(allele != "*1" for allele in alleles) / 2


def _yes(patients: Patients, i: int, name: str) -> float:
    if patients.records[i][name] not in ("0", "1"):
        raise patients.complaint(i, name, "0, 1 or missing")
    return float(patients.records[i][name])


def _filled_in(patients: Patients, dosed: Integers) -> str:
    """What each missing value was taken as, and how often."""
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
