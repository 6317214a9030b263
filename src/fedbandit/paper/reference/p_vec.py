"""P_1D and P_vec with literal bits, which is feasible for tiny g and b only.

As printed, P_vec shifts a coordinate from [-L, L] into [0, 2L] and passes it to P_1D, which encodes numbers in [0, L]:
a shifted value above L needs more than g ones. Here the range of P_1D is [0, upper], and P_vec calls it with
upper = 2L unless `Parameters.span` says otherwise. Everything else is as printed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.paper.reference.common import Array

__all__ = ["Bits", "Parameters", "a_1d", "a_vec", "paper_parameters", "r_1d", "r_vec"]

Bits = NDArray[np.int64]


class Parameters(NamedTuple):
    """The parameters of P_vec: natural numbers g and b, and p in (0, 1/2).

    In the published simulation g is not a whole number, and the analyzer subtracts a different b.
    """

    g: float
    b: int
    p: float
    subtracted: float | None = None  # the b of the analyzer's estimator; None: the same b
    span: float = 2.0  # P_1D's range in units of L; it is 1 as printed


def paper_parameters(n: int, dim: int, epsilon: float, delta: float) -> Parameters:
    """The parameters of Appendix "Vector Sum Protocol" for one run of P_vec over n points; g and b are rounded up."""
    g = max(2 * math.sqrt(n), dim, 4)
    b = 24e4 * g**2 * math.log(4 * (dim**2 + 1) / delta) ** 2 / (epsilon**2 * n)
    return Parameters(math.ceil(g), math.ceil(b), 1 / 4)


def r_1d(x: float, upper: float, parameters: Parameters, generator: np.random.Generator) -> Bits:
    """P_1D, local randomizer: x in [0, upper] as g + b bits."""
    g, b, p = parameters.g, parameters.b, parameters.p
    if not 0 <= x <= upper * 2 / parameters.span:
        raise ValueError(f"x must lie in [0, {upper * 2 / parameters.span}], got {x}")
    # 3: bar-x = floor(x g / L)
    x_bar = math.floor(x * g / upper)
    # 4: Sample rounding value eta_1 ~ Ber(x g / L - bar-x)
    eta_1 = int(generator.random() < x * g / upper - x_bar)
    # 5: hat-x = bar-x + eta_1
    x_hat = x_bar + eta_1
    # 6: Sample privacy noise value eta_2 ~ Bin(b, p)
    eta_2 = int(generator.binomial(b, p))
    # 7: Report y in {0,1}^{g+b} with hat-x + eta_2 copies of 1 and g + b - (hat-x + eta_2) copies of 0
    return np.array([1] * (x_hat + eta_2) + [0] * (math.ceil(g) + b - (x_hat + eta_2)), dtype=np.int64)


def a_1d(bits: Bits, n: int, upper: float, parameters: Parameters) -> float:
    """P_1D, analyzer: `bits` are the n (g + b) shuffled bits of n users."""
    g, p = parameters.g, parameters.p
    b = parameters.b if parameters.subtracted is None else parameters.subtracted
    # 10: Output L/g ((sum_i sum_j (y_i)_j) - p b n)
    return upper / g * (int(bits.sum()) - p * b * n)


def r_vec(x: Array, L: float, parameters: Parameters, generator: np.random.Generator) -> Bits:
    """P_vec, local randomizer: the d (g + b) labelled messages of one user, as rows (j, bit)."""
    messages = []
    # 3: for j in [d] do
    for j in range(len(x)):
        # 4: Shift component to enforce non-negativity: w_j = x_j + L
        w = float(x[j]) + L
        # 5: m_j = R_1D(w_j)
        m_j = r_1d(w, parameters.span * L, parameters, generator)
        messages += [(j, bit) for bit in m_j]
    # 7: Output labeled messages {(j, m_j)}
    return np.array(messages, dtype=np.int64)


def a_vec(messages: Bits, n: int, dim: int, L: float, parameters: Parameters) -> Array:
    """P_vec, analyzer: `messages` are the shuffled rows (j, bit) of n users."""
    o = np.zeros(dim)
    # 10: for j in [d] do
    for j in range(dim):
        # 11: Run analyzer on coordinate j's messages z_j = A_1D(y_j)
        z_j = a_1d(messages[messages[:, 0] == j, 1], n, parameters.span * L, parameters)
        # 12: Re-center: o_j = z_j - n L
        o[j] = z_j - n * L
    # 14: Output the vector of estimates o
    return o
