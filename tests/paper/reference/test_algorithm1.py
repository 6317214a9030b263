"""Algorithm 1 and its lazy variant, decision by decision against raw data."""

from __future__ import annotations

import numpy as np
import pytest

from fedbandit.paper.reference import (
    Alt,
    PaperTree,
    Parameters,
    Run,
    VectorSum,
    play,
    private_fedlinucb,
    private_fedlinucb_lazy,
    sync_times,
)
from tests.paper.reference.instance import DIM, Users, gaussian_noise, no_noise, replay, tree_nodes


def test_schedules():
    assert sync_times(12, 4) == [4, 8, 12]
    assert sync_times(10, 4) == [4, 8, 10]  # a shorter last batch
    assert sync_times(10, [1, 3, 9]) == [1, 3, 9]
    for wrong in ([3, 1], [2, 2], [0, 1], [11]):
        with pytest.raises(ValueError, match="batch must be increasing rounds between 1 and 10"):
            sync_times(10, wrong)


def test_ties_go_to_the_lowest_index_and_an_indefinite_matrix_is_refused():
    features = np.array([[0.0, 0.1], [0.6, 0.0], [0.6, 0.0]])
    assert play(features, np.array([1.0, 0.0]), np.eye(2), 0.5) == 1
    with pytest.raises(np.linalg.LinAlgError, match="V must be positive definite"):
        play(features, np.array([1.0, 0.0]), np.diag([1.0, -1.0]), 0.5)


@pytest.mark.parametrize("batch", [4, 7, [1, 2, 4, 9, 17, 30]])
@pytest.mark.parametrize("algorithm", [private_fedlinucb, private_fedlinucb_lazy])
def test_every_decision_maximises_the_score_recomputed_from_raw_data(algorithm, batch):
    users = Users(silos=3, rounds=30)
    eager = algorithm is private_fedlinucb
    run = algorithm(batch=batch, **users.arguments())
    assert replay(run, users, no_noise, acts_on_own_batch=eager) == []
    assert replay(run, users, no_noise, acts_on_own_batch=not eager) != []  # the replay tells the two apart


@pytest.mark.parametrize("protocol", [PaperTree, Alt])
@pytest.mark.parametrize("algorithm", [private_fedlinucb, private_fedlinucb_lazy])
def test_private_decisions_use_the_noise_of_the_tree(algorithm, protocol):
    users = Users(silos=3, rounds=30)
    bias_noise, covariance_noise = gaussian_noise(10, 3, sigma=0.15)
    run = algorithm(batch=3, **users.arguments((protocol(3, bias_noise), protocol(3, covariance_noise))))

    def noise_of_prefix(k: int):
        nodes = [(node, i) for node in tree_nodes(k) for i in range(3)]
        zero_bias, zero_covariance = no_noise(k)
        return (
            sum((bias_noise(*node) for node in nodes), zero_bias),
            sum((covariance_noise(*node) for node in nodes), zero_covariance),
        )

    eager = algorithm is private_fedlinucb
    assert replay(run, users, noise_of_prefix, acts_on_own_batch=eager) == []
    assert replay(run, users, no_noise, acts_on_own_batch=eager) != []  # noise changed some decision
    exact = algorithm(batch=3, **users.arguments())
    assert (exact.actions != run.actions).any()


@pytest.mark.parametrize("batch", [4, [5, 6, 20]])
def test_synchronised_statistics_and_regret_are_those_of_the_actions(batch):
    users = Users(silos=3, rounds=30)
    run = private_fedlinucb_lazy(batch=batch, **users.arguments())
    assert run.sync_times == sync_times(30, batch)
    for k, last in enumerate(run.sync_times):
        played = [(t, i, run.actions[t - 1, i]) for t in range(1, last + 1) for i in range(3)]
        X = np.array([users.arms[t, i][a] for t, i, a in played])
        y = np.array([users.reward(t, i, a) for t, i, a in played])
        np.testing.assert_allclose(run.covariances[k], X.T @ X, rtol=0, atol=1e-12)
        np.testing.assert_allclose(run.biases[k], X.T @ y, rtol=0, atol=1e-12)
    per_round = [
        sum(max(users.arms[t, i] @ users.theta) - users.mean(t, i, run.actions[t - 1, i]) for i in range(3))
        for t in range(1, 31)
    ]
    assert run.regret is not None
    np.testing.assert_allclose(run.regret, np.cumsum(per_round), rtol=0, atol=1e-12)


def test_a_run_without_means_counts_no_regret_and_plays_the_same():
    users = Users(silos=2, rounds=12)
    arguments = users.arguments()
    del arguments["mean"]
    run = private_fedlinucb(batch=4, **arguments)
    assert run.regret is None
    np.testing.assert_array_equal(run.actions, private_fedlinucb(batch=4, **users.arguments()).actions)


def test_lazy_and_eager_coincide_when_every_round_is_a_batch_and_only_then():
    users = Users(silos=3, rounds=30)

    def noisy():
        bias_noise, covariance_noise = gaussian_noise(30, 3, sigma=0.1)
        return users.arguments((PaperTree(3, bias_noise), PaperTree(3, covariance_noise)))

    eager, lazy = private_fedlinucb(batch=1, **noisy()), private_fedlinucb_lazy(batch=1, **noisy())
    np.testing.assert_array_equal(eager.actions, lazy.actions)
    np.testing.assert_array_equal(eager.covariances, lazy.covariances)
    eager, lazy = private_fedlinucb(batch=6, **noisy()), private_fedlinucb_lazy(batch=6, **noisy())
    assert (eager.actions != lazy.actions).any()


def test_regret_falls_as_it_learns_and_not_when_it_never_synchronises():
    users = Users(silos=4, rounds=240)

    def ratio(run: Run) -> float:
        assert run.regret is not None
        per_round = np.diff(run.regret, prepend=0.0)
        return float(per_round[180:].mean() / per_round[:60].mean())

    assert ratio(private_fedlinucb_lazy(batch=5, **users.arguments())) < 0.5
    assert ratio(private_fedlinucb_lazy(batch=[], **users.arguments())) > 0.8


def test_noise_that_makes_v_indefinite_is_refused():
    users = Users(silos=2, rounds=4)
    protocols = PaperTree(2, lambda k, i: np.zeros(DIM)), PaperTree(2, lambda k, i: -50 * np.eye(DIM))
    with pytest.raises(np.linalg.LinAlgError, match="V must be positive definite"):
        private_fedlinucb_lazy(batch=2, **users.arguments(protocols))


@pytest.mark.parametrize("algorithm", [private_fedlinucb, private_fedlinucb_lazy])
def test_both_run_over_the_vector_sum_protocol(algorithm):
    users = Users(silos=2, rounds=7)
    batches, steps = [2, 2, 2, 1], 400
    generator = np.random.default_rng(9)

    def vector_sum(shape: tuple[int, ...]) -> VectorSum:
        return VectorSum(2, batches, shape, 1.0, lambda n: Parameters(steps, 0, 0.25), generator)

    run = algorithm(batch=2, **users.arguments((vector_sum((DIM,)), vector_sum((DIM, DIM)))))
    assert run.sync_times == [2, 4, 6, 7]
    for k, last in enumerate(run.sync_times):
        X = np.array([users.arms[t, i][run.actions[t - 1, i]] for t in range(1, last + 1) for i in range(2)])
        rounding = 2 * last * 2 / steps  # each of 2 * last points is rounded by less than 2L/g
        assert np.abs(run.covariances[k] - X.T @ X).max() < rounding
        np.testing.assert_array_equal(run.covariances[k], run.covariances[k].T)
