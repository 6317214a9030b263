"""Buffered linear Toeplitz by hand: what a buffer is rounded by, on every step, is at most the half unit counted."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import contributions, width
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.protocol.mechanisms import blt
from fedbandit.protocol.mechanisms.blt import Blt
from fedbandit.schedule import clock

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


FITS = {  # syncs and weight: decays and weights of the buffers, in units of 2^-24
    (1, 1.0): ([10066330], [8388608]),
    (2, 1.0): ([10066330], [8388608]),
    (5, 1.0): ([13624246], [8107019]),
    (47, 1.0): ([11580367, 16440532], [4985668, 3186588]),
    (400, 1.0): ([11173187, 16116660, 16738707], [4705147, 2410388, 1093372]),
    (365, 0.97): ([10407636, 15506484, 16226535], [4366916, 2451779, 1187534]),
}


@pytest.mark.parametrize(("size", "forget"), FITS)
def test_a_fit_is_the_one_that_it_always_was(size: int, forget: float) -> None:
    """Another one would be as good, and would make another plan of every plan that is in use."""
    fitted = blt.forgetting(size, forget)
    assert isinstance(fitted, Blt)
    assert (
        tuple([value * 2**24 for value in values] for values in (fitted.decays, fitted.weights)) == FITS[size, forget]
    )


def test_what_no_fit_can_be_has_no_noise_to_compare() -> None:
    """Equal decays, none, one that never forgets, and a C whose inverse grows: infinitely much noise. A buffer that
    weighs nothing is none."""
    for decays, weights in (
        ((0.5, 0.5), (0.1, 0.1)),
        ((), ()),
        ((0.5,), (0.0,)),
        ((1.0,), (0.1,)),
        ((0.4, 1.5), (0.1, 0.1)),
        ((0.5,), (1.5,)),
        ((0.5,), (1.8,)),
        ((0.3, 0.7), (1e-300, 1e-300)),  # zeros of C that no float tells from a decay
        ((0.3, 0.7), (0.2, 1e-300)),  # one of them
    ):
        assert blt.noise(decays, weights, 10) == math.inf
    assert blt.noise((0.5,), (1.49,), 10) < math.inf
    assert blt.noise((0.5, 0.7), (0.2, 0.0), 10) == blt.noise((0.5,), (0.2,), 10) < math.inf


def test_a_horizon_that_no_fit_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ten million syncs it was a StopIteration."""
    monkeypatch.setattr(blt, "MOST_BUFFERS", 2)
    assert blt.encoder(47).size == 47
    with pytest.raises(
        ArgumentError, match=r"^mechanism must not be 'blt' over 400 syncs: no fit with 2 buffers is close enough$"
    ):
        blt.encoder(400)


def test_where_no_place_is_better_all_corners_come_half_way_to_the_best() -> None:
    """Four times as bad wherever one looks, inside and outside: the simplex shrinks."""
    asked, values = list[list[float]](), iter([0.25, 1.0, 2.0])

    def function(place: Sequence[float]) -> float:
        asked.append([*place])
        return next(values, 8.0)

    assert blt._least(function, [1.0, 2.0]) == [1.0, 2.0]
    assert asked[:3] == [[1.0, 2.0], [1.05, 2.0], [1.0, 2.1]]
    assert asked[3] == pytest.approx([1.05, 1.9])  # the worst one, mirrored at the middle of the others
    assert asked[4] == pytest.approx([1.0125, 2.05])  # and half way back
    assert asked[5:7] == [pytest.approx([1.025, 2.0]), pytest.approx([1.0, 2.05])]
    assert asked[7] == pytest.approx([0.975, 2.05])  # the worst of the new ones, mirrored


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


def test_worlds_that_round_apart_for_ever_are_counted_in_every_release() -> None:
    """Buffers that forget end at a unit or two that never decays: one user moves releases that their batch enters no
    more, the last of them included. (Over 2.5 million syncs at bits = 4 that was an epsilon of 1.36 where 1 was
    promised.) Nobody else comes here, so from where nothing changes every release differs alike."""
    dim, syncs = 30, 10_000
    plan = Plan(3, syncs, dim, Privacy(1.0, 1e-5), "silo", "blt", clock(3600.0), forget=0.9, bits=4)
    encoder, x = plan.encoder, np.full(dim, dim**-0.5)
    sums = contributions(np.stack([x, np.where(np.arange(dim) < dim // 2, x, -x)]), np.ones(2), plan.bits)
    states, differing = encoder.init((2, width(dim))), list[int]()
    for sync in range(200):
        states, (one, two) = encoder.step(states, sums if sync == 0 else np.zeros_like(sums))
        differing.append(np.abs(one - two).max())
    assert encoder.touches < syncs
    assert 0 < differing[-1] == differing[100] <= encoder.rounding_units, "it must have come to rest, and differ"
    unit = 2.0**-plan.protocol.release_bits * math.sqrt(dim + dim**2)  # in every number of bias and matrix
    each = 2 * math.sqrt(dim + dim**2) * 2.0 ** -(plan.bits + 1)  # rounding of two contributions
    assert plan.request.shift.rounding == pytest.approx(each + encoder.rounding_units * unit * math.sqrt(syncs))
