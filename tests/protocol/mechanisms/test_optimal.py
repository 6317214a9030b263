"""The optimal factorisation: as good as its own lower bound says anything can be, non-negative, the same everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedbandit.bandit.statistics import Scales
from fedbandit.protocol import mechanisms
from fedbandit.protocol.mechanisms import optimal
from fedbandit.protocol.trusts.secure_sum import SecureSumProtocol
from tests.protocol.searching import searched

LENGTHS = [1, 2, 3, 16, 17, 64, 78, 150]


def prefix_sums(size: int) -> np.ndarray:
    """A: ones on and below the diagonal."""
    return np.tril(np.ones((size, size)))


def lower_bound(p: np.ndarray) -> float:
    """No factorisation of A has a smaller column norm times row norm, whatever the probabilities p: the nuclear norm
    of diag(p)^1/2 A diag(q)^1/2, q being p reversed."""
    return float(np.linalg.norm(np.sqrt(p)[:, None] * prefix_sums(len(p)) * np.sqrt(p[::-1]), "nuc"))


@pytest.mark.parametrize("size", LENGTHS)
def test_noise_is_within_rounding_of_a_lower_bound(size: int) -> None:
    noise = mechanisms.encoder("optimal", size).worst_prefix
    bound = lower_bound(optimal.weights(size))
    assert bound <= noise * (1 + 1e-12)
    assert noise <= bound * 1.0005


@pytest.mark.parametrize(("size", "low", "high"), [(64, 2.111, 2.116), (256, 2.533, 2.537)])
def test_noise_against_figures_known_from_elsewhere(size: int, low: float, high: float) -> None:
    assert low - 5e-4 <= mechanisms.encoder("optimal", size).worst_prefix <= high


def test_the_shortest_horizon_has_a_closed_form() -> None:
    """gamma_2 of [[1, 0], [1, 1]] is 2 / sqrt 3."""
    assert lower_bound(optimal.weights(2)) == pytest.approx(2 / np.sqrt(3), rel=1e-12)


@pytest.mark.parametrize("name", ["tree", "batches", "toeplitz", "blt"])
def test_no_mechanism_beats_the_bound_of_any_weights(name: str) -> None:
    noise = mechanisms.encoder(name, 20).worst_prefix
    for seed in range(5):
        weights = np.random.default_rng(seed).dirichlet(np.ones(20))
        assert lower_bound(weights) <= noise
    assert lower_bound(optimal.weights(20)) < noise


def test_a_general_search_finds_nothing_better() -> None:
    size = 4

    def noise(C: np.ndarray, inverse: np.ndarray) -> float:
        rows = np.linalg.norm(prefix_sums(size) @ inverse, axis=1)
        return float(np.linalg.norm(C, axis=0).max() * rows.max())

    start, found = searched(size, noise)
    ours = mechanisms.encoder("optimal", size).worst_prefix
    assert start > 1.02 * ours  # there is something to find
    assert found >= ours * (1 - 5e-4)


@pytest.mark.parametrize("size", LENGTHS)
def test_all_columns_and_all_rows_are_alike(size: int) -> None:
    encoder = mechanisms.encoder("optimal", size)
    np.testing.assert_allclose(np.linalg.norm(encoder.coefficients, axis=0), 1.0, rtol=1e-3)
    np.testing.assert_allclose(encoder.prefix_norms, encoder.prefix_norms.max(), rtol=1e-3)


def test_a_silo_that_missed_syncs_keeps_weights_between_zero_and_one() -> None:
    encoder = mechanisms.encoder("optimal", 40)
    protocol = SecureSumProtocol(encoder, Scales.flat(0.0), dim=1, bits=20, silos=3)
    assert encoder.coefficients.min() >= 0
    assert encoder.decoder.min() >= -1e-12
    for seed in range(20):
        missed = np.flatnonzero(np.random.default_rng(seed).random(40) < 0.3).tolist()
        weights = protocol.kept_weights(missed, 39)
        assert weights.min() >= -1e-12
        assert weights.max() <= 1 + 1e-12


@pytest.mark.parametrize(
    ("size", "digest"), [(8, "670091dc4e0adeb0"), (33, "3142a8ad97c7d079"), (78, "4217d2dde1576960")]
)
def test_every_machine_derives_the_same_matrix(size: int, digest: str) -> None:
    integers = np.rint(mechanisms.encoder("optimal", size).coefficients * 2**optimal.FRACTION_BITS).astype("<i8")
    assert hashlib.sha256(integers.tobytes()).hexdigest()[:16] == digest


def test_a_horizon_too_long_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^syncs must be at most 512 for mechanism 'optimal', got 513; 'blt' has no limit"
    ):
        mechanisms.encoder("optimal", 513)
    assert optimal.checked("optimal", 512) == 512


def test_encoders_of_one_horizon_are_one_value() -> None:
    matrix = mechanisms.encoder("optimal", 3).coefficients
    one, other = optimal.Optimal(3, matrix), optimal.Optimal(3, matrix.copy())
    assert one == other
    assert hash(one) == hash(other)
    assert one != mechanisms.encoder("optimal", 4)
