"""Priv-FedLinUCB-Lazy: Algorithm 1 with agents that act on synchronised statistics only (line 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedbandit.paper.reference.common import (
    Array,
    Contexts,
    Mean,
    Radius,
    Reward,
    Run,
    StreamProtocol,
    inverse,
    play,
    shortfall,
    sync_times,
)

__all__ = ["private_fedlinucb_lazy"]


def private_fedlinucb_lazy(
    *,
    silos: int,
    rounds: int,
    dim: int,
    batch: int | Sequence[int],
    regulariser: float,
    radius: Radius,
    contexts: Contexts,
    reward: Reward,
    bias_protocol: StreamProtocol,
    covariance_protocol: StreamProtocol,
    mean: Mean | None = None,
) -> Run:
    """Priv-FedLinUCB-Lazy. `batch` is B, or the rounds after which to synchronise (see `sync_times`)."""
    times = sync_times(rounds, batch)
    M, T, d = silos, rounds, dim
    actions = np.zeros((T, M), dtype=np.int64)
    losses = np.zeros(T)
    W_history, U_history = [], []

    # 2: Initialize for all i: W_i = 0, U_i = 0, W_syn = 0, U_syn = 0
    W = [np.zeros((d, d)) for _ in range(M)]
    U = [np.zeros(d) for _ in range(M)]
    W_points: list[list[Array]] = [[] for _ in range(M)]  # the data points that W_i and U_i sum up
    U_points: list[list[Array]] = [[] for _ in range(M)]
    W_syn = np.zeros((d, d))
    U_syn = np.zeros(d)

    # 3: for t = 1, ..., T do
    for t in range(1, T + 1):
        # 4: for each agent i = 1, ..., M do
        for i in range(M):
            # 5: V_ti = lambda I + W_syn, theta_ti = V_ti^-1 U_syn
            V_inv = inverse(regulariser * np.eye(d) + W_syn)
            theta = V_inv @ U_syn
            # 6: Play a_ti = argmax_a <phi(c_ti, a), theta_ti> + beta_ti ||phi(c_ti, a)||_{V_ti^-1},
            #    x_ti = phi(c_ti, a_ti)
            features = contexts(t, i)
            a = play(features, theta, V_inv, radius(t))
            x = features[a]
            # 7: Observe reward y_ti
            y = reward(t, i, a)
            # 8: U_i = U_i + x_ti y_ti and W_i = W_i + x_ti x_ti^T
            U[i] = U[i] + x * y
            W[i] = W[i] + np.outer(x, x)
            U_points[i].append(x * y)
            W_points[i].append(np.outer(x, x))

            actions[t - 1, i] = a
            if mean is not None:
                losses[t - 1] += shortfall(mean, t, i, a, len(features))
        # 9: end for
        # 10: if t mod B = 0 then
        if t in times:
            # 12: Send R^bias_ti = R^bias(U_i) and R^cov_ti = R^cov(W_i) to the shuffler
            R_bias = [bias_protocol.randomize(i, U[i], U_points[i]) for i in range(M)]
            R_cov = [covariance_protocol.randomize(i, W[i], W_points[i]) for i in range(M)]
            # 14: S^bias_t = S({R^bias_ti}) and S^cov_t = S({R^cov_ti})
            S_bias = bias_protocol.shuffle(R_bias)
            S_cov = covariance_protocol.shuffle(R_cov)
            # 16: U_syn = A^bias(S^bias_t) and W_syn = A^cov(S^cov_t)
            U_syn = bias_protocol.analyze(S_bias)
            W_syn = covariance_protocol.analyze(S_cov)
            # 18: Receive W_syn and U_syn from the server
            # 19: Reset W_i = 0, U_i = 0
            W = [np.zeros((d, d)) for _ in range(M)]
            U = [np.zeros(d) for _ in range(M)]
            W_points = [[] for _ in range(M)]
            U_points = [[] for _ in range(M)]

            W_history.append(W_syn)
            U_history.append(U_syn)
        # 20: end if
    # 21: end for

    return Run(
        actions=actions,
        regret=None if mean is None else np.cumsum(losses),
        sync_times=times,
        covariances=np.array(W_history).reshape(-1, d, d),
        biases=np.array(U_history).reshape(-1, d),
    )
