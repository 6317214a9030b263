"""Regulariser and radii: the formulas, the law of the noise behind them, and what the practical rule changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from fedbandit.bandit import confidence
from fedbandit.bandit.confidence import NoiseLaw
from fedbandit.bandit.statistics import unpack
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy

DIM = 6
PLAN = Plan(20, 1000, DIM, Privacy(1.0, 0.1), trust="silo")
NO_NOISE = NoiseLaw(*(np.zeros(5),) * 3)
ALPHA = 0.05


@pytest.fixture(scope="module")
def prefix_noise() -> tuple[np.ndarray, np.ndarray]:
    """Largest ||h_k|| and ||N_k|| over all syncs, in 600 noisy horizons of PLAN."""
    law, encoder = PLAN.noise_law, PLAN.encoder
    rng = np.random.default_rng(0)
    unit = PLAN.protocol.scales.packed(DIM) * law.bias[0] / PLAN.protocol.scales.bias / encoder.prefix_norms[0]
    vectors, matrices = [], []
    for _ in range(600):
        bias, matrix = unpack(encoder.decoder @ (rng.standard_normal((encoder.size, len(unit))) * unit), DIM)
        vectors.append(np.linalg.norm(bias, axis=-1).max())
        matrices.append(np.abs(np.linalg.eigvalsh(matrix)).max())
    return np.array(vectors), np.array(matrices)


def test_the_bounds_hold_for_the_noise_of_a_plan(prefix_noise: tuple[np.ndarray, np.ndarray]) -> None:
    """Exceeded in at most ALPHA of the horizons; smaller ones would be exceeded far more often. (The matrix bound is
    a union bound over syncs that are alike, hence wider than it need be; 1.6 times narrower does not hold.)"""
    vectors, matrices = prefix_noise
    law = PLAN.noise_law
    most = binom.ppf(1 - 1e-6, len(vectors), ALPHA)
    vector = confidence.vector_norm_bound(law.bias, DIM, ALPHA)
    matrix = confidence.matrix_norm_bound(law, DIM, ALPHA)
    assert (vectors > vector).sum() <= most
    assert (matrices > matrix).sum() <= most
    assert (vectors > vector / 1.3).sum() > most
    assert (matrices > matrix / 1.6).sum() > most


def test_theory_is_the_lemma_as_stated() -> None:
    law, alpha = PLAN.noise_law, 0.01
    stated = confidence.theory(law, DIM, alpha)
    matrix = confidence.matrix_norm_bound(law, DIM, alpha / 4)
    assert stated.regularisers == pytest.approx(np.full(PLAN.syncs or 0, 2 * matrix))
    growth = 2 * math.log(200) + DIM * math.log(1 + 5000 / (DIM * 2 * matrix))
    assert stated.radius(5000, 2 * matrix) == pytest.approx(math.sqrt(growth) + math.sqrt(2 * matrix))


def test_the_proof_needs_wider_radii_than_the_lemma_states() -> None:
    law = PLAN.noise_law
    stated, proven = confidence.theory(law, DIM, 0.01), confidence.proof(law, DIM, 0.01)
    np.testing.assert_array_equal(proven.regularisers, stated.regularisers)
    regulariser = float(stated.regularisers[0])
    assert all(proven.radius(users, regulariser) > stated.radius(users, regulariser) for users in (0, 100, 10**6))


def test_without_noise_all_rules_regularise_by_one() -> None:
    for rule in (confidence.theory, confidence.proof, confidence.practical):
        np.testing.assert_array_equal(rule(NO_NOISE, DIM, 0.01).regularisers, np.ones(5))


@pytest.mark.parametrize("law", [NO_NOISE, PLAN.noise_law])
def test_the_practical_rule_is_one_rule(law: NoiseLaw) -> None:
    """lambda_k = Sigma_N of sync k alone (at least 1), radii a tenth of the stated form."""
    rule = confidence.practical(law, DIM, 0.01)
    for sync, regulariser in enumerate(rule.regularisers):
        alone = NoiseLaw(*(std[sync : sync + 1] for std in (law.bias, law.diagonal, law.off_diagonal)))
        assert regulariser == pytest.approx(max(1.0, confidence.matrix_norm_bound(alone, DIM, 0.0025)))
    growth = 2 * math.log(200) + DIM * math.log(1 + 700 / (DIM * 9.0))
    assert rule.radius(700, 9.0) == pytest.approx(0.1 * (math.sqrt(growth) + 3.0))


def test_every_sync_has_its_own_practical_regulariser() -> None:
    plan = PLAN.changed(confidence="practical")
    first, last = plan.learner.regularisers[[0, -1]]
    assert first < last == plan.regulariser
    times = plan.times
    asked = (0, times[0], times[1] - 1, times[1], times[-1], times[-1] + 5)
    syncs = (0, 0, 0, 1, len(times) - 1, len(times) - 1)
    assert [plan.regulariser_after(round_) for round_ in asked] == [plan.learner.regularisers[sync] for sync in syncs]
    model = plan.fit(np.zeros(plan.protocol.width), times[3]).model
    np.testing.assert_allclose(model.root @ model.root.T, np.eye(DIM) / plan.learner.regularisers[3])


def test_the_published_simulation_has_its_own_regulariser_and_radii() -> None:
    std, silos, levels, alpha = 40.0, 100, 9, 0.01  # 4 in each of 100 silos
    noisy = confidence.published_regulariser(std, silos, levels, DIM, alpha)
    assert noisy == pytest.approx(math.sqrt(900) * 4 * (math.sqrt(9 + math.log(100)) + math.sqrt(6)))
    assert confidence.published_regulariser(0.0, silos, levels, DIM, alpha) == 10.0  # sqrt(M) without privacy
    rule = confidence.published(3, noisy, DIM, alpha, scale=0.5, reward_noise=0.3)
    growth = DIM * math.log(1 + 700 / (DIM * noisy)) + math.log(100)
    assert rule.radius(700, noisy) == pytest.approx(0.5 * (math.sqrt(noisy * DIM) + 0.3 * math.sqrt(growth)))
    np.testing.assert_array_equal(rule.regularisers, np.full(3, noisy))


def test_privacy_does_not_depend_on_radii() -> None:
    other = PLAN.changed(confidence="practical")
    assert other.protocol.scales == PLAN.protocol.scales
    assert other.guarantee == PLAN.guarantee


def test_radii_grow_and_shrink_as_they_should() -> None:
    for rule in (confidence.theory, confidence.proof, confidence.practical):
        made = rule(PLAN.noise_law, DIM, 0.01)
        sizes = [made.radius(users, float(made.regularisers[-1])) for users in (0, 10, 1000, 10**6)]
        assert sizes == sorted(sizes)
        less = NoiseLaw(
            *(0.5 * std for std in (PLAN.noise_law.bias, PLAN.noise_law.diagonal, PLAN.noise_law.off_diagonal))
        )
        assert (rule(less, DIM, 0.01).regularisers < made.regularisers).all()
