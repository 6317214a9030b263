"""A silo's own model under eager acting: V^-1 and theta after one more user, by rank-one identities.

With v = V^-1 x and g = x^T v, Sherman-Morrison gives (V + x x^T)^-1 = V^-1 - v v^T / (1 + g). Multiplied with the new
bias U + x y it gives theta + v (y - x^T theta) / (1 + g); and det(V + x x^T) = det(V) (1 + g).
"""

from __future__ import annotations

from numba import njit

from fedbandit.simulate.kernels.layout import Floats


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def times(matrix: Floats, vector: Floats, out: Floats) -> None:
    """out = matrix vector."""
    for i in range(vector.size):
        total = 0.0
        for j in range(vector.size):
            total += matrix[i, j] * vector[j]
        out[i] = total


@njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def dot(left: Floats, right: Floats) -> float:
    """The inner product."""
    total = 0.0
    for j in range(left.size):
        total += left[j] * right[j]
    return total


@njit(cache=True, fastmath={"contract"})
def learn(inverse: Floats, bias: Floats, theta: Floats, x: Floats, reward: float, v: Floats) -> tuple[float, float]:
    """Add one user to a silo's V^-1, bias and theta = V^-1 bias; ``v`` becomes the old V^-1 x.

    Returns g = x^T V^-1 x before the update, and the step (y - x^T theta) / (1 + g) that theta took along v.
    """
    times(inverse, x, v)
    gain = dot(x, v)
    share = 1.0 / (1.0 + gain)
    step = (reward - dot(x, theta)) * share
    for i in range(x.size):
        weight = v[i] * share
        for j in range(x.size):
            inverse[i, j] -= weight * v[j]
    for i in range(x.size):
        bias[i] += x[i] * reward
        theta[i] += v[i] * step
    return gain, step
