"""Buffered linear Toeplitz by hand: what a buffer is rounded by, on every step, is at most the half unit counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

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
