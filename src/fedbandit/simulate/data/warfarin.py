"""Warfarin dosing as a bandit: patients are contexts, three dose classes are the arms, clinics are the silos.

The reward of a dose is 1 if it is the class of the dose that proved right for the patient, else 0. That is
not linear in what is known of a patient, so the linear task takes the best linear fit for its truth, and the
0/1 outcomes are kept beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedbandit import _validate
from fedbandit.simulate.data.bounded import bounded_model, with_constant
from fedbandit.simulate.data.patient_features import FEATURES, filled_in, patient_numbers
from fedbandit.simulate.data.patients import ARMS, Patients, dose_classes
from fedbandit.simulate.data.table import ActionTable

Floats = NDArray[np.float64]

ORDERS = {
    "file": "contiguous parts of the file, which names no clinics but lists patients in blocks that differ "
    "in population and in what was recorded: so do these silos, as clinics would",
    "random": "patients drawn at random (seed {seed}), so that silos differ by chance alone",
}


def warfarin_table(patients: Patients, order: str = "file", seed: int = 0) -> ActionTable:
    """One action set a patient with a known dose: the patient's numbers in the block of the chosen arm.

    A row has (1, numbers) / sqrt 2 in its arm's block and 0 elsewhere. `means` are the least-squares
    predictions of the outcomes, shifted and scaled alike for all arms into a model with ||theta|| <= 1 and
    means in [0, 1]; `outcomes` are 1 for the right dose class and 0 for the others. The silos of
    `ActionTable.divided` are parts of the file, or of the patients in random order.
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
    weights: Floats = np.linalg.lstsq(vectors.astype(np.float64), right, rcond=None)[0].T.astype(np.float64)
    features = _in_blocks(vectors, len(ARMS))
    model = bounded_model(features, weights.ravel(), _ones(vectors, len(ARMS)))
    offsets = np.arange(len(dosed) + 1, dtype=np.int64) * len(ARMS)
    total = len(patients.records)
    description = (
        f"{total:,} patients, {total - len(dosed):,} without a dose left out.\n"
        f"Arms: {'; '.join(ARMS)}; right for {', '.join(f'{n:,.0f}' for n in right.sum(axis=0))} patients.\n"
        f"Rows: {len(FEATURES)} numbers and a constant in the block of the arm, the numbers divided by "
        f"{longest:.4g}, their largest norm, then (1, numbers) / sqrt 2: {'; '.join(FEATURES)}.\n"
        f"Missing: {filled_in(patients, dosed)}.\n"
        f"Model: outcomes are 1 for the right dose class, else 0; means are {model}, where the prediction is "
        f"the best linear fit of the outcomes; {_how_good(model.means.reshape(right.shape), right)}.\n"
        f"Silos: {ORDERS[order].format(seed=seed)}."
    )
    return ActionTable(features, offsets, model.means, model.theta, description, outcomes=right.ravel())


def _how_good(means: Floats, right: Floats) -> str:
    guided = float((means.argmax(axis=1) == right.argmax(axis=1)).mean())
    common = float(right.mean(axis=0).max())
    return f"its best arm is right for {guided:.1%} of patients, the most common arm for {common:.1%}"


def _in_blocks(vectors: NDArray[np.float32], arms: int) -> NDArray[np.float32]:
    """Row (patient, arm) has the patient's vector in the arm's block: (patients * arms, arms * width)."""
    count, width = vectors.shape
    rows = np.zeros((count, arms, arms, width), dtype=np.float32)
    for arm in range(arms):
        rows[:, arm, arm] = vectors
    return rows.reshape(count * arms, arms * width)


def _ones(vectors: NDArray[np.float32], arms: int) -> Floats:
    """The vector that gives 1 with every row: what undoes the constant, in every block."""
    ones = np.zeros((arms, vectors.shape[1]))
    ones[:, 0] = 1 / float(vectors[0, 0])
    return ones.ravel()
