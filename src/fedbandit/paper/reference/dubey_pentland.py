"""Algorithm 1 of Dubey & Pentland as the paper restates it, and its private adaptive variant (eq. det-new)."""

from __future__ import annotations

import math

import numpy as np

from fedbandit.paper.reference.algorithm2 import AltLocalRandomizer
from fedbandit.paper.reference.common import (
    Array,
    Contexts,
    Mean,
    Noise,
    Radius,
    Reward,
    Run,
    StreamProtocol,
    at_silo,
    inverse,
    play,
    shortfall,
)

__all__ = ["dubey", "log_det_growth"]


def log_det(matrix: Array) -> float:
    """log det; -inf where noise has made the determinant zero or negative."""
    sign, logarithm = np.linalg.slogdet(matrix)
    return float(logarithm) if sign > 0 else -math.inf


def log_det_growth(V_tilde: Array, V_last: Array) -> float:
    """log det(V_tilde) - log det(V_last); -inf, which passes no threshold, if det(V_tilde) is not positive.

    V_last is positive definite by Assumption Regularity; if its determinant shows that it is not, it is refused.
    """
    if log_det(V_last) == -math.inf:
        raise np.linalg.LinAlgError("V_last must be positive definite, got a determinant <= 0")
    return log_det(V_tilde) - log_det(V_last)


def dubey(
    *,
    silos: int,
    rounds: int,
    dim: int,
    threshold: float,
    regulariser: float,
    radius: Radius,
    contexts: Contexts,
    reward: Reward,
    bias_protocol: StreamProtocol,
    covariance_protocol: StreamProtocol,
    schedule_noise: Noise | None = None,
    mean: Mean | None = None,
) -> Run:
    """Algorithm 1 of Dubey & Pentland as the paper restates it; `threshold` is D.

    Without `schedule_noise` the rule of line 9 reads raw data, and the times of the syncs leak. With it the rule is
    eq. det-new: silo i privatises its local Gram matrix since the last sync with a tree over single rounds, and a new
    tree begins after each sync. `schedule_noise(t, i)` is the noise of the p-sum that silo i computes in round t.

    How ambiguous places were read:
    - Lines 12 to 17 stand inside the loop over agents, but all agents synchronise together: they do so at the end of a
      round in which any agent gave the signal (eq. sync-app: "if for any silo").
    - Line 15 adds "private cumulative statistics" to W_syn. Here PRIV releases prefix sums, which already contain the
      earlier batches. So the new prefix sum replaces W_syn; adding it would count those batches twice.
    - Before the first sync t_last = 0 and V_last = lambda I, which line 2 does not say.
    """
    M, T, d, D = silos, rounds, dim, threshold
    actions = np.zeros((T, M), dtype=np.int64)
    losses = np.zeros(T)
    times, W_history, U_history = [], [], []

    # 2: Initialize for all i: W_i = 0, U_i = 0, PRIV, W_syn = 0, U_syn = 0
    W = [np.zeros((d, d)) for _ in range(M)]
    U = [np.zeros(d) for _ in range(M)]
    W_points: list[list[Array]] = [[] for _ in range(M)]
    U_points: list[list[Array]] = [[] for _ in range(M)]
    W_syn = np.zeros((d, d))
    U_syn = np.zeros(d)
    t_last = 0
    V_last = regulariser * np.eye(d)
    trees = new_trees(M, t_last, schedule_noise)

    # 3: for t = 1, ..., T do
    for t in range(1, T + 1):
        signal = False
        # 4: for each agent i = 1, ..., M do
        for i in range(M):
            # 5: V_ti = lambda I + W_syn + W_i, theta_ti = V_ti^-1 (U_syn + U_i)
            V = regulariser * np.eye(d) + W_syn + W[i]
            V_inv = inverse(V)
            theta = V_inv @ (U_syn + U[i])
            # 6: Play a_ti = argmax_a <phi(c_ti, a), theta_ti> + beta_ti ||phi(c_ti, a)||_{V_ti^-1},
            #    x_ti = phi(c_ti, a_ti)
            features = contexts(t, i)
            a = play(features, theta, V_inv, radius(t))
            x = features[a]
            # 7: Observe reward y_ti
            y = reward(t, i, a)
            # 8: W_i = W_i + x_ti x_ti^T, U_i = U_i + x_ti y_ti
            W[i] = W[i] + np.outer(x, x)
            U[i] = U[i] + x * y
            W_points[i].append(np.outer(x, x))
            U_points[i].append(x * y)
            # 9: if log det(V_ti + x_ti x_ti^T) - log det(V_last) > D / (t - t_last) then
            #    (eq. det-new: tilde-V_ti = V_last + sum_{s = t_last + 1}^t x_si x_si^T + N^loc_ti instead)
            V_tilde = V + np.outer(x, x) if trees is None else V_last + trees[i](np.outer(x, x))
            if log_det_growth(V_tilde, V_last) > D / (t - t_last):
                # 10: Send a signal to the server to start a synchronization round
                signal = True
            # 11: end if

            actions[t - 1, i] = a
            if mean is not None:
                losses[t - 1] += shortfall(mean, t, i, a, len(features))
        # 12: if a synchronization is started then
        if signal:
            # 13: Send W_i and U_i to PRIV
            # 14: PRIV sends private cumulative statistics W_ti, U_ti to server
            R_bias = [bias_protocol.randomize(i, U[i], U_points[i]) for i in range(M)]
            R_cov = [covariance_protocol.randomize(i, W[i], W_points[i]) for i in range(M)]
            # 15: Server aggregates W_syn = W_syn + sum_j W_tj and U_syn = U_syn + sum_j U_tj
            # 16: Receive W_syn and U_syn from the server
            U_syn = bias_protocol.analyze(bias_protocol.shuffle(R_bias))
            W_syn = covariance_protocol.analyze(covariance_protocol.shuffle(R_cov))
            # 17: Reset W_i = 0, U_i = 0, t_last = t and V_last = lambda I + W_syn
            W = [np.zeros((d, d)) for _ in range(M)]
            U = [np.zeros(d) for _ in range(M)]
            W_points = [[] for _ in range(M)]
            U_points = [[] for _ in range(M)]
            t_last = t
            V_last = regulariser * np.eye(d) + W_syn
            trees = new_trees(M, t_last, schedule_noise)

            times.append(t)
            W_history.append(W_syn)
            U_history.append(U_syn)
        # 18: end if
    # 19, 20: end for

    return Run(
        actions=actions,
        regret=None if mean is None else np.cumsum(losses),
        sync_times=times,
        covariances=np.array(W_history).reshape(-1, d, d),
        biases=np.array(U_history).reshape(-1, d),
    )


def new_trees(silos: int, t_last: int, noise: Noise | None) -> list[AltLocalRandomizer] | None:
    """One tree per silo over the rounds after t_last; its k-th sum ends with round t_last + k."""
    if noise is None:
        return None
    return [AltLocalRandomizer(at_silo(lambda k, i: noise(t_last + k, i), i)) for i in range(silos)]
