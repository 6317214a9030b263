"""The restated algorithm of Dubey & Pentland and the private adaptive schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedbandit.paper.reference import PaperTree, private_fedlinucb
from fedbandit.paper.reference.dubey_pentland import dubey, log_det_growth
from tests.paper.reference.instance import DIM, LAMBDA, Recounting, Users, gaussian_noise, tree_nodes


def test_a_zero_threshold_synchronises_every_round_and_an_infinite_one_never():
    users = Users(silos=3, rounds=20)
    always = dubey(threshold=0.0, **users.arguments())
    batches_of_one = private_fedlinucb(batch=1, **users.arguments())
    assert always.sync_times == list(range(1, 21))
    np.testing.assert_array_equal(always.actions, batches_of_one.actions)
    np.testing.assert_array_equal(always.covariances, batches_of_one.covariances)
    np.testing.assert_array_equal(always.biases, batches_of_one.biases)
    np.testing.assert_array_equal(always.regret, batches_of_one.regret)

    never = dubey(threshold=math.inf, **users.arguments())
    assert never.sync_times == []
    assert never.covariances.shape == (0, DIM, DIM)
    np.testing.assert_array_equal(never.actions, private_fedlinucb(batch=[], **users.arguments()).actions)


def test_a_smaller_threshold_synchronises_more_often():
    users = Users(silos=3, rounds=60)
    counts = [len(dubey(threshold=D, **users.arguments()).sync_times) for D in (0.1, 1.0, 10.0)]
    assert counts[0] > counts[1] > counts[2] > 0


def test_synchronisation_times_are_the_rounds_in_which_the_determinant_rule_holds():
    users, D = Users(silos=3, rounds=60), 2.0
    run = dubey(threshold=D, **users.arguments())
    last, expected = 0, []
    x = {(t, i): users.arms[t, i][run.actions[t - 1, i]] for t in range(1, 61) for i in range(3)}
    for t in range(1, 61):
        shared = LAMBDA * np.eye(DIM) + sum(np.outer(x[s, j], x[s, j]) for s in range(1, last + 1) for j in range(3))
        grown = [shared + sum(np.outer(x[s, i], x[s, i]) for s in range(last + 1, t + 1)) for i in range(3)]
        if any((t - last) * np.log(np.linalg.det(V) / np.linalg.det(shared)) > D for V in grown):  # eq. sync-app
            expected.append(t)
            last = t
    assert run.sync_times == expected
    assert 1 < len(expected) < 60


def test_the_first_signal_reveals_the_norm_of_the_first_user():
    # Appendix "More on violation of silo-level LDP": synchronised at t = 1 iff ||x||^2 > lambda (e^D - 1)
    D = 0.1
    norm = math.sqrt(LAMBDA * math.expm1(D))
    for factor, expected in [(0.999, []), (1.001, [1])]:
        users = Users(silos=1, rounds=1)
        users.arms[1, 0] = np.array([[factor * norm, 0.0, 0.0]])
        assert dubey(threshold=D, **users.arguments()).sync_times == expected


def test_the_noisy_rule_without_noise_is_the_rule():
    users = Users(silos=3, rounds=60)
    plain = dubey(threshold=2.0, **users.arguments())
    asked = []

    def silent(t: int, i: int) -> np.ndarray:
        asked.append((t, i))
        return np.zeros((DIM, DIM))

    noisy = dubey(threshold=2.0, schedule_noise=silent, **users.arguments())
    assert noisy.sync_times == plain.sync_times
    np.testing.assert_array_equal(noisy.actions, plain.actions)
    assert asked == [(t, i) for t in range(1, 61) for i in range(3)]  # one p-sum a round and silo


def test_noise_of_the_rule_decides_when_and_touches_nothing_else():
    users, D = Users(silos=3, rounds=12), 150.0
    assert dubey(threshold=D, **users.arguments()).sync_times == []

    def burst(size: float):
        return lambda t, i: size * np.eye(DIM) * ((t, i) == (5, 1))

    loud = dubey(threshold=D, schedule_noise=burst(1e12), **users.arguments())
    assert loud.sync_times == [5]  # the tree begins anew after it, so the burst is not heard again
    scheduled = private_fedlinucb(batch=[5], **users.arguments())
    np.testing.assert_array_equal(loud.actions, scheduled.actions)
    np.testing.assert_array_equal(loud.covariances, scheduled.covariances)
    # three negative eigenvalues: the determinant is negative, has no logarithm, and gives no signal
    assert dubey(threshold=D, schedule_noise=burst(-1e12), **users.arguments()).sync_times == []


def test_noise_of_the_rule_is_that_of_the_tree_since_the_last_synchronisation():
    users = Users(silos=1, rounds=40)
    _, noise = gaussian_noise(40, 1, sigma=0.2)
    D = 2.0
    run = dubey(threshold=D, schedule_noise=noise, **users.arguments())
    last, expected = 0, []
    x = [users.arms[t, 0][run.actions[t - 1, 0]] for t in range(1, 41)]
    for t in range(1, 41):
        shared = LAMBDA * np.eye(DIM) + sum(np.outer(x[s], x[s]) for s in range(last))
        local = sum(np.outer(x[s], x[s]) for s in range(last, t))
        local_noise = sum(noise(last + node, 0) for node in tree_nodes(t - last))
        ratio = np.linalg.det(shared + local + local_noise) / np.linalg.det(shared)
        if ratio > 0 and (t - last) * math.log(ratio) > D:  # eq. det-new
            expected.append(t)
            last = t
    assert run.sync_times == expected
    assert expected != dubey(threshold=D, **users.arguments()).sync_times


def test_adaptive_synchronisation_replaces_prefix_sums_and_counts_nothing_twice():
    users = Users(silos=3, rounds=40)
    quiet = PaperTree(3, lambda k, i: np.zeros(DIM)), PaperTree(3, lambda k, i: np.zeros((DIM, DIM)))
    private = dubey(threshold=1.0, **users.arguments(quiet))
    exact = dubey(threshold=1.0, **users.arguments((Recounting(), Recounting())))
    assert private.sync_times == exact.sync_times
    assert len(exact.sync_times) > 3
    np.testing.assert_allclose(private.covariances, exact.covariances, rtol=0, atol=1e-12)
    # rows of norm 1: the trace counts the users
    np.testing.assert_allclose(np.trace(exact.covariances, axis1=1, axis2=2), 3 * np.array(exact.sync_times))


def test_a_synchronised_matrix_that_noise_made_indefinite_is_refused():
    users = Users(silos=2, rounds=4)
    protocols = PaperTree(2, lambda k, i: np.zeros(DIM)), PaperTree(2, lambda k, i: -50 * np.eye(DIM))
    with pytest.raises(np.linalg.LinAlgError, match="must be positive definite"):
        dubey(threshold=0.0, **users.arguments(protocols))
    with pytest.raises(np.linalg.LinAlgError, match="V_last must be positive definite"):
        log_det_growth(np.eye(DIM), -np.eye(DIM))
