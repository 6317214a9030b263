"""Buffered linear Toeplitz: c_k = sum_i w_i l_i^(k-1), a few exponentials fitted to have the least worst-prefix noise.

The same noise as `toeplitz` to about three digits, but a silo and an analyzer remember only `buffers` arrays however
long the horizon is. A silo's buffers are integers in the units of a release, rounded as they decay: how far that moves
a release does not depend on how large the sums are, as it would in floating point, and is counted in the sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit.protocol.encoder import Encoder, Stream, ToeplitzEncoder
from fedbandit.protocol.mechanisms.toeplitz import square_root

__all__ = ["Blt", "encoder", "forgetting"]

FRACTION_BITS = 10
HALF_BITS = 32
SLACK = 1.002  # of the square root's noise: what a fit may cost
REMEMBERED = 1e-4  # the weight at which a batch is as good as forgotten
PARAMETER_BITS = 24  # parameters are kept this coarse so that every machine derives the same ones


@dataclass(frozen=True)
class Blt(ToeplitzEncoder):
    """C(z) = 1 + sum_i weight_i z / (1 - decay_i z)."""

    decays: tuple[float, ...]
    weights: tuple[float, ...]

    fraction_bits = FRACTION_BITS

    @property
    def rounding_units(self) -> float:
        """Half a unit, in either world, for each weighted buffer of a release and for each time a buffer has decayed.

        The latter weigh as the batches of that time do: sum_i w_i l_i^(k-1) = c_k, added up over k.
        """
        return len(self.decays) + float(self._column[1:].sum())

    def init(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, (np.zeros((len(self.decays), *shape), dtype=np.int64),))

    def step(self, state: Stream, sums: Integers) -> tuple[Stream, Integers]:
        self._check_horizon(state)
        buffers = state.memory[0].astype(np.int64)
        units = np.asarray(sums, dtype=np.int64) << self.fraction_bits
        encoded = units + _times(self.weights, buffers).sum(axis=0) if state.done else units
        return Stream(state.done + 1, (_times(self.decays, buffers) + units,)), encoded

    def init_decoder(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, (np.zeros((len(self.decays), *shape)), np.zeros(shape)))

    def decode_step(self, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        """Undo C with the same buffers, then add up: x_k = y_k - sum_i w_i s_i, s_i the buffers over the x's."""
        self._check_horizon(state)
        buffers, prefix = state.memory
        encoded = released.astype(np.float64) * 2.0**-self.fraction_bits
        batch = np.asarray(encoded - np.tensordot(np.array(self.weights), buffers, axes=1))
        prefix = self.forget * prefix + batch
        return Stream(state.done + 1, (self._decayed(buffers) + batch, prefix)), prefix

    def _decayed(self, buffers: Numbers) -> Floats:
        return np.asarray(np.array(self.decays).reshape(-1, *[1] * (buffers.ndim - 1)) * buffers)


def _times(parameters: tuple[float, ...], buffers: Integers) -> Integers:
    """Each buffer times its parameter, a multiple of 2^-24 in [0, 1]: exact integers, rounded once, to the nearest."""
    factors = np.rint(np.array(parameters) * 2**PARAMETER_BITS).astype(np.int64)
    factors = factors.reshape(-1, *[1] * (buffers.ndim - 1))
    high, low = buffers >> HALF_BITS, buffers & (2**HALF_BITS - 1)  # so that no product leaves 64 bits
    rounded = (factors * low + 2 ** (PARAMETER_BITS - 1)) >> PARAMETER_BITS
    return np.asarray((factors * high << HALF_BITS - PARAMETER_BITS) + rounded)


def encoder(size: int) -> Encoder:
    """The fit with the fewest buffers that is within 0.2 % of the square root's noise."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The same for weighted sums: C(w z), the weights and decays of a fit times w, is as near to their square root.

    Beyond the syncs that are remembered the column hardly counts, so the fit need not reach further.
    """
    target = SLACK * float(np.sum((square_root(size) * forget ** np.arange(size)) ** 2))  # column norm x row norm
    reach = size if forget == 1 else min(size, math.ceil(math.log(REMEMBERED) / math.log(forget)))
    plain = (_fit(reach, buffers) for buffers in range(1, 7))
    fits = ((_coarse(forget * decays), _coarse(forget * weights)) for decays, weights in plain)
    decays, weights = next(fit for fit in fits if _noise(*fit, size, forget) <= target)
    column = np.append(1.0, decays ** np.arange(size - 1)[:, None] @ weights)  # a power series would lose four digits
    return Blt(size, tuple(column.tolist()), tuple(decays.tolist()), tuple(weights.tolist()), forget=forget)


@lru_cache(maxsize=32)
def _fit(size: int, buffers: int) -> tuple[Floats, Floats]:
    """Decays and weights that minimise the worst-prefix noise, from a least-squares start."""
    from scipy.optimize import fmin, nnls  # imported late, as lfilter below

    time_scales = np.geomspace(1.0, max(2.0, size / 2), buffers)
    decays = np.exp(-1 / time_scales)
    basis = decays[None, :] ** np.arange(max(size - 1, 1))[:, None]
    weights = np.maximum(nnls(basis, square_root(size + 1)[1 : basis.shape[0] + 1])[0], 1e-3)

    def objective(parameters: Floats) -> float:
        return _noise(*_unpacked(parameters), size)

    start = np.concatenate([np.log(decays / (1 - decays)), np.log(weights)])
    for _ in range(2):  # a restart rebuilds the simplex and gets out of its corners
        start = fmin(objective, start, maxiter=2000, xtol=1e-6, ftol=1e-9, disp=False)
    decays, weights = _unpacked(np.asarray(start))
    return _coarse(decays), _coarse(weights)


def _unpacked(parameters: Floats) -> tuple[Floats, Floats]:
    logits, logs = np.split(np.clip(parameters, -30, 30), 2)
    return 1 / (1 + np.exp(-logits)), np.exp(logs)


def _coarse(values: Floats) -> Floats:
    return np.rint(values * 2.0**PARAMETER_BITS) / 2.0**PARAMETER_BITS


def _noise(decays: Floats, weights: Floats, size: int, forget: float = 1.0) -> float:
    """Column norm of C times the largest row norm of B."""
    column, decoder = _series(decays, weights, size, forget)
    with np.errstate(all="ignore"):
        value = float(np.linalg.norm(column) * np.linalg.norm(decoder))
    return value if np.isfinite(value) else np.inf


def _series(decays: Floats, weights: Floats, size: int, forget: float) -> tuple[Floats, Floats]:
    """First columns of C and of B = A C^-1, both rational power series."""
    from scipy.signal import lfilter  # imported late: it is slow to load and only this mechanism needs it

    denominator = np.poly(decays)  # prod (1 - l_i z), coefficients by rising power of z
    numerator = denominator.copy()
    for i, weight in enumerate(weights):
        numerator[1:] += weight * np.poly(np.delete(decays, i))
    impulse = np.zeros(size)
    impulse[0] = 1.0
    with np.errstate(all="ignore"):
        column = lfilter(numerator, denominator, impulse)
        decoder = lfilter(denominator, np.convolve(numerator, [1.0, -forget]), impulse)
    return np.asarray(column), np.asarray(decoder)
