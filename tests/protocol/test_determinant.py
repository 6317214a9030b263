"""The determinant rule: on raw sums the formula itself, on noisy ones the noise that the tree promises."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedbandit._validate import ArgumentError
from fedbandit.bandit.statistics import Scales, contributions, is_diagonal, unpack
from fedbandit.plan import Plan
from fedbandit.privacy.budget import Privacy
from fedbandit.privacy.noise import SimulatedNoise
from fedbandit.protocol.determinant import DeterminantRule, RuleState
from fedbandit.schedule import adaptive, clock, every, growing
from tests.statistical import assert_std, covariance_verdict, mean_verdict

SILOS, ROUNDS, DIM, BITS = 4, 13, 3, 20
ENTRIES = DIM * (DIM + 1) // 2
SAMPLES = 1500


def plan(threshold: float = 3.0, private: bool = False) -> Plan:
    schedule = adaptive(threshold, private)
    return Plan(SILOS, ROUNDS, DIM, Privacy(1.0, 1e-3), "silo", "tree", schedule, bits=BITS)


def covariances(seed: int = 0) -> np.ndarray:
    """What one user per silo adds in each round, packed on the grid: (ROUNDS, SILOS, ENTRIES)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROUNDS, SILOS, DIM))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return contributions(x, np.zeros((ROUNDS, SILOS)), BITS)[..., DIM:]


def matrix(packed: np.ndarray) -> np.ndarray:
    return unpack(np.concatenate([np.zeros((*packed.shape[:-1], DIM)), packed * 2.0**-BITS], axis=-1), DIM)[1]


def precision(seed: int = 1) -> np.ndarray:
    """V of the last sync."""
    half = np.random.default_rng(seed).normal(size=(DIM, DIM))
    return 2 * np.eye(DIM) + half @ half.T


def root_of(V: np.ndarray) -> np.ndarray:
    return np.linalg.inv(np.linalg.cholesky(V).T)


def log_det(V: np.ndarray) -> float:
    return float(np.log(np.prod(np.linalg.eigvalsh(V))))


def run(rule: DeterminantRule, rounds: np.ndarray, noise: SimulatedNoise) -> list[tuple[RuleState, np.ndarray]]:
    state, seen = rule.init(rounds.shape[1:-1]), []
    for covariance in rounds:
        state, asks = rule.step(state, covariance, root_of(precision()), noise)
        seen.append((state, asks))
    return seen


@pytest.mark.parametrize("threshold", [0.5, 2.0, 5.0, 40.0])
def test_on_raw_sums_it_is_the_formula(threshold: float, noise: SimulatedNoise) -> None:
    """Silo i asks when log det(V + W_i) - log det V > D / rounds waited."""
    rule, rounds, V = plan(threshold).rule, covariances(), precision()
    assert not rule.private
    asked = 0
    for waited, (state, asks) in enumerate(run(rule, rounds, noise), 1):
        assert state.waited == waited
        np.testing.assert_array_equal(state.node, rounds[waited - 1])
        np.testing.assert_array_equal(state.seen, rounds[:waited].sum(axis=0))
        for i in range(SILOS):
            gain = log_det(V + matrix(rounds[:waited, i].sum(axis=0))) - log_det(V)
            assert bool(asks[i]) == (gain > threshold / waited)
        asked += int(asks.sum())
    assert (0 < asked < SILOS * ROUNDS) == (threshold < 40)  # both answers occur


def test_raw_sums_draw_no_noise(noise: SimulatedNoise) -> None:
    before = noise.generator.bit_generator.state
    run(plan().rule, covariances(), noise)
    assert noise.generator.bit_generator.state == before


def test_after_a_sync_it_begins_anew(noise: SimulatedNoise) -> None:
    rule, rounds = plan(0.5).rule, covariances()
    fresh = run(rule, rounds[5:], noise)
    state = rule.init((SILOS,))
    for k, covariance in enumerate(rounds):
        state = rule.init((SILOS,)) if k == 5 else state  # a sync after the fifth round
        state, asks = rule.step(state, covariance, root_of(precision()), noise)
    np.testing.assert_array_equal(state.seen, fresh[-1][0].seen)
    np.testing.assert_array_equal(asks, fresh[-1][1])
    assert state.waited == ROUNDS - 5


def test_states_are_values(noise: SimulatedNoise) -> None:
    for rule in (plan().rule, plan(private=True).rule):
        state = rule.init((SILOS,))
        before = [array.copy() for array in (*state.encoder.memory, *state.decoder.memory, state.node, state.seen)]
        rule.step(state, covariances()[0], root_of(precision()), noise)
        after = (*state.encoder.memory, *state.decoder.memory, state.node, state.seen)
        for old, now in zip(before, after, strict=True):
            np.testing.assert_array_equal(old, now)
        assert state.waited == 0


def promised(made: Plan) -> np.ndarray:
    """Deviation of one node in every packed entry: an off-diagonal one counts twice in the Frobenius norm."""
    cells = np.where(is_diagonal(DIM)[DIM:], 1.0, math.sqrt(0.5))
    return made.schedule_sigma * cells


def test_noise_of_what_the_private_rule_sees_is_that_of_its_tree() -> None:
    """Prefix k adds up as many nodes as k has ones in binary; 1.3 times as much noise is rejected, and 1/1.3 too."""
    made = plan(private=True)
    rounds = np.broadcast_to(covariances()[:, :1], (ROUNDS, SAMPLES, ENTRIES))
    ran = run(made.rule, rounds, SimulatedNoise(np.random.default_rng(3)))
    exact = np.cumsum(rounds[:, 0], axis=0)
    errors = np.stack([state.seen for state, _ in ran], axis=1) - exact  # (SAMPLES, ROUNDS, ENTRIES)
    ones = np.array([k.bit_count() for k in range(1, ROUNDS + 1)])
    deviations = np.sqrt(ones)[:, None] * promised(made)
    assert_std(errors * 2.0**-BITS, deviations)
    assert mean_verdict(errors * 2.0**-BITS, 0.0, deviations).accepted
    decoder = made.rule.tree.decoder
    for entry in range(ENTRIES):
        covariance = decoder @ decoder.T * promised(made)[entry] ** 2
        assert covariance_verdict(errors[:, :, entry] * 2.0**-BITS, covariance).accepted
        assert not covariance_verdict(errors[:, :, entry] * 2.0**-BITS, covariance * 1.3**2).accepted
        fresh = np.diag(np.diag(covariance))  # new noise in every round
        assert not covariance_verdict(errors[:, :, entry] * 2.0**-BITS, fresh).accepted


def test_a_node_is_the_p_sum_of_its_rounds_with_one_draw_of_noise() -> None:
    made = plan(private=True)
    rounds = np.broadcast_to(covariances()[:, :1], (ROUNDS, SAMPLES, ENTRIES))
    ran = run(made.rule, rounds, SimulatedNoise(np.random.default_rng(4)))
    for k, first in ((1, 1), (2, 1), (3, 3), (8, 1), (12, 9)):  # round k completes the p-sum [first, k]
        errors = ran[k - 1][0].node - rounds[first - 1 : k, 0].sum(axis=0)
        assert_std(errors * 2.0**-BITS, promised(made))


def test_the_private_rule_decides_by_what_it_sees() -> None:
    made = plan(private=True).changed(privacy=Privacy(2000.0, 0.5))
    ran = run(made.rule, covariances(), SimulatedNoise(np.random.default_rng(5)))
    V = precision()
    for waited, (state, asks) in enumerate(ran, 1):
        for i in range(SILOS):
            noisy = V + matrix(state.seen[i])
            gain = log_det(noisy) - log_det(V) if np.linalg.det(noisy) > 0 else -math.inf
            assert bool(asks[i]) == (gain > 3.0 / waited)
    assert len({bool(answer) for _, asks in ran for answer in asks}) == 2


def test_noise_that_makes_the_determinant_negative_asks_for_nothing(noise: SimulatedNoise) -> None:
    rule = plan(1e-9).rule
    state = rule.init(())
    down = np.where(is_diagonal(DIM)[DIM:], -(2**40), 0)  # three eigenvalues below zero
    assert not rule.step(state, down, root_of(precision()), noise)[1]


@pytest.mark.parametrize("private", [False, True])
def test_what_a_plan_says_of_its_rule(private: bool) -> None:
    made = plan(2.5, private)
    rule = made.rule
    assert (rule.dim, rule.bits, rule.threshold, rule.private) == (DIM, BITS, 2.5, private)
    assert rule.tree.size == ROUNDS  # it may wait for the whole horizon
    np.testing.assert_allclose(rule.node_scales, promised(made) * 2.0**BITS)
    assert (made.schedule_sigma > 0) == private


@pytest.mark.parametrize("schedule", [every(5), growing(), clock(1.0)], ids=str)
def test_a_calendar_has_no_rule(schedule: object) -> None:
    with pytest.raises(ArgumentError, match=r"^schedule must be adaptive to have a determinant rule, got ") as error:
        plan().changed(schedule=schedule).rule  # noqa: B018
    assert error.value.field == "schedule"


@pytest.mark.parametrize("private", [False, True])
def test_whole_grids_of_silos_are_stepped_at_once_each_with_its_own_noise(private: bool) -> None:
    rule = plan(private=private).rule
    rounds = np.broadcast_to(covariances()[:, None], (ROUNDS, 5, SILOS, ENTRIES))
    *_, (state, asks) = run(rule, rounds, SimulatedNoise(np.random.default_rng(3)))
    assert asks.shape == (5, SILOS)
    assert state.seen.shape == state.node.shape == (5, SILOS, ENTRIES)
    assert len(np.unique(state.node[:, 0], axis=0)) == (5 if private else 1)


def test_noise_on_the_diagonal_alone_is_noise() -> None:
    rule = plan(private=True).rule
    assert replace(rule, scales=Scales(0.0, 1.0, 0.0)).private
    assert not replace(rule, scales=Scales(1.0, 0.0, 0.0)).private  # of the bias, which it does not look at
