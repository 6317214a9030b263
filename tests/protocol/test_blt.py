"""Buffered linear Toeplitz by hand: what a buffer is rounded by, on every step, is at most the half unit counted."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from fedbandit.protocol.mechanisms import blt
from fedbandit.protocol.mechanisms.blt import Blt

DECAY, WEIGHT = 11_184_811 / 2**24, 6_710_887 / 2**24  # about 2/3 and 2/5: nearly every product has to be rounded
ENCODER = Blt(4, (1.0, WEIGHT, WEIGHT * DECAY, WEIGHT * DECAY**2), (DECAY,), (WEIGHT,))
HALF = Fraction(1, 2)


@pytest.mark.parametrize("largest", [2**10, 2**34, 2**51])
def test_each_product_is_rounded_once_to_the_nearest_unit(largest: int) -> None:
    """Releases are in units of 2^-10: a sum s is 1024 s of them."""
    sums = np.random.default_rng(0).integers(-largest, largest, (4, 500))
    state, buffer = ENCODER.init((500,)), np.zeros(500, dtype=object)
    for batch in sums:
        before = buffer
        state, release = ENCODER.step(state, batch)
        for s, old, new, out in zip(batch.tolist(), before, state.memory[0][0].tolist(), release.tolist(), strict=True):
            assert abs(out - 1024 * s - Fraction(WEIGHT) * old) <= HALF
            assert abs(new - 1024 * s - Fraction(DECAY) * old) <= HALF
        buffer = state.memory[0][0].astype(object)
    assert ENCODER.rounding_units == pytest.approx(1 + WEIGHT + WEIGHT * DECAY + WEIGHT * DECAY**2)


@pytest.mark.parametrize("size, forget", [(1, 1.0), (2, 1.0), (47, 1.0), (400, 1.0), (1000, 1.0), (365, 0.97)])
def test_the_noise_that_is_fitted_is_the_noise_of_the_matrix(size: int, forget: float) -> None:
    fitted = blt.forgetting(size, forget)
    assert isinstance(fitted, Blt)
    closed = blt.noise(fitted.decays, fitted.weights, size, forget)
    assert closed == pytest.approx(fitted.worst_prefix, rel=1e-12)


def test_a_fit_is_the_best_nearby() -> None:
    """No parameter can be moved by a hundredth of itself without more noise."""
    fitted = blt.encoder(100)
    assert isinstance(fitted, Blt)
    least = blt.noise(fitted.decays, fitted.weights, 100)
    for i in range(len(fitted.decays)):
        for factor in (0.99, 1.01):
            scales = [1 / (1 - decay) * (factor if i == j else 1) for j, decay in enumerate(fitted.decays)]
            weights = tuple(weight * (factor if i == j else 1) for j, weight in enumerate(fitted.weights))
            assert blt.noise(tuple(1 - 1 / scale for scale in scales), fitted.weights, 100) > least
            assert blt.noise(fitted.decays, weights, 100) > least


MACHINES = {
    "this one": {},
    "an old one": {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX AVX2 FMA3"},
}
PRINTS = (
    "from fedbandit.protocol.mechanisms.blt import encoder; print([encoder(n).fingerprint for n in (47, 400, 4000)])"
)


def test_machines_with_other_instructions_fit_the_same() -> None:
    """Parties whose processors differ agree on a plan: fits over 400 syncs used to differ in the fifth digit."""
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINTS],
            env={name: value for name, value in os.environ.items() if name not in MACHINES["an old one"]} | machine,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for machine in MACHINES.values()
    }
    assert found == {f"{[blt.encoder(size).fingerprint for size in (47, 400, 4000)]}\n"}
