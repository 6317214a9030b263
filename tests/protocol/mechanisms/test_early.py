"""The factorisation for early prefix sums: nothing loses less by its own weights, and no entry is negative."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedbandit.protocol import mechanisms
from fedbandit.protocol.encoder import Encoder
from fedbandit.protocol.mechanisms import early, optimal
from tests.protocol.searching import searched

LENGTHS = [1, 2, 3, 16, 46, 150]


def weighted_noise(encoder: Encoder) -> float:
    """What `early` minimises: the weighted sum of the prefix variances, at unit sensitivity."""
    return float(early.weights(encoder.size) @ (encoder.column_norm * encoder.prefix_norms) ** 2)


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("other", ["optimal", "toeplitz", "tree", "batches", "blt"])
def test_no_other_mechanism_loses_less(size: int, other: str) -> None:
    ours, theirs = weighted_noise(mechanisms.encoder("early", size)), weighted_noise(mechanisms.encoder(other, size))
    assert ours <= theirs * (1 + 1e-3)
    if size > 3:
        assert ours < theirs


@pytest.mark.parametrize("size", LENGTHS)
def test_a_bound_that_holds_for_all_factorisations_is_met(size: int) -> None:
    """tr(A' P A X^-1) >= (tr (M' M)^1/2)^2 / tr(diag(q) X) for every X, by Cauchy-Schwarz; met at the best q."""
    p, q = early.weights(size), np.full(size, 1 / size)
    for _ in range(40):
        q = optimal.raised(q, optimal.root(p, q).diagonal(), early.POWER)
    bound = float(np.trace(optimal.root(p, q)) ** 2 / q.sum())
    assert bound * (1 - 1e-9) <= weighted_noise(mechanisms.encoder("early", size)) <= 1.001 * bound
    worse = np.linspace(1, 2, size) / size
    assert np.trace(optimal.root(p, worse)) ** 2 / worse.sum() <= bound * (1 + 1e-9)  # a bound for any q


def test_a_general_search_finds_nothing_better() -> None:
    size = 4

    def noise(C: np.ndarray, inverse: np.ndarray) -> float:
        rows = np.linalg.norm(optimal.weighted_sums(size, 1.0) @ inverse, axis=1)
        return float(np.linalg.norm(C, axis=0).max() ** 2 * (early.weights(size) @ rows**2))

    start, found = searched(size, noise)
    ours = weighted_noise(mechanisms.encoder("early", size))
    assert start > 1.02 * ours  # there is something to find
    assert found >= ours * (1 - 1e-3)


@pytest.mark.parametrize("size", LENGTHS)
def test_columns_are_alike_and_nothing_is_negative(size: int) -> None:
    encoder = mechanisms.encoder("early", size)
    np.testing.assert_allclose(np.linalg.norm(encoder.coefficients, axis=0), 1.0, rtol=1e-3)
    assert encoder.coefficients.min() >= 0
    assert encoder.decoder.min() >= -1e-12
    np.testing.assert_allclose(encoder.decoder @ encoder.coefficients, optimal.weighted_sums(size, 1.0), atol=1e-9)


def test_the_first_prefix_sums_have_less_noise_and_the_last_more() -> None:
    ours, flat = mechanisms.encoder("early", 46), mechanisms.encoder("optimal", 46)
    ratio = ours.column_norm * ours.prefix_norms / (flat.column_norm * flat.prefix_norms)
    assert ratio[0] < 0.65
    assert ratio[-1] < 1.25
    assert (np.diff(ratio) > 0).all()


def test_a_year_of_daily_syncs_against_the_square_root() -> None:
    """A quarter less noise in the first prefix sum, a tenth more in the last."""
    ours, root = mechanisms.encoder("early", 365), mechanisms.encoder("toeplitz", 365)
    ratio = ours.column_norm * ours.prefix_norms / (root.column_norm * root.prefix_norms)
    assert (ratio[0], ratio[-1]) == pytest.approx((0.75, 1.1), abs=0.02)


@pytest.mark.parametrize(
    ("size", "digest"), [(8, "24981d3c734fff21"), (33, "85c4dd1662ef000c"), (78, "4eabe89833bb7223")]
)
def test_every_machine_derives_the_same_matrix(size: int, digest: str) -> None:
    integers = np.rint(mechanisms.encoder("early", size).coefficients * 2**optimal.FRACTION_BITS).astype("<i8")
    assert hashlib.sha256(integers.tobytes()).hexdigest()[:16] == digest


def test_a_horizon_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^syncs must be at most 512 for mechanism 'early', got 513; 'blt'"):
        mechanisms.encoder("early", 513)
