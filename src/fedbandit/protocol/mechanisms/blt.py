"""Buffered linear Toeplitz: c_k = sum_i w_i l_i^(k-1), a few exponentials fitted to have the least worst-prefix noise.

The noise equals that of `toeplitz` to about three digits, but a silo and an analyzer remember only `buffers` arrays,
however long the horizon is. A silo's buffers are integers in the units of a release, and they are rounded as they
decay. How far that moves a release does not depend on how large the sums are, as it would in floating point, and it is
counted in the sensitivity.

Every party makes its own fit, and all must find the same numbers, whatever their machines. So a fit uses only single
additions, multiplications, divisions and square roots, which are rounded alike everywhere: no vector instructions, no
exponentials, no sums in an order that a library chooses.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit._validate import ArgumentError
from fedbandit.protocol.encoder import Encoder, Stream, ToeplitzEncoder
from fedbandit.protocol.mechanisms.toeplitz import square_root

__all__ = ["Blt", "encoder", "forgetting"]

FRACTION_BITS = 10
HALF_BITS = 32
SLACK = 1.002  # a fit may have at most this many times the square root's noise
REMEMBERED = 1e-4  # a batch with a smaller weight is as good as forgotten
PARAMETER_BITS = 24  # parameters are multiples of 2^-24, so that buffers decay in exact integers
MOST_BUFFERS = 8
STEPS, ENOUGH = 2000, 1e-9  # of a fit: at most this many steps, or until all corners of the simplex are equally good


@dataclass(frozen=True)
class Blt(ToeplitzEncoder):
    """C(z) = 1 + sum_i weight_i z / (1 - decay_i z)."""

    decays: tuple[float, ...]
    weights: tuple[float, ...]

    fraction_bits = FRACTION_BITS

    @property
    def rounding_units(self) -> float:
        """Half a unit, in either world, for each weighted buffer of a release and for each time that a buffer has
        decayed.

        The roundings of a decay weigh as much as a batch of that time: sum_i w_i l_i^(k-1) = c_k, added up over k.
        """
        return len(self.decays) + float(self._column[1:].sum())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the parameters that a silo and an analyzer compute with."""
        parameters = np.array([self.size, self.forget, *self.decays, *self.weights])
        return hashlib.sha256(parameters.tobytes()).hexdigest()[:16]

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
        """Undo C with the same buffers and add up: x_k = y_k - sum_i w_i s_i, where s_i are the buffers of the x."""
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
    high, low = buffers >> HALF_BITS, buffers & (2**HALF_BITS - 1)  # split, so that no product leaves 64 bits
    rounded = (factors * low + 2 ** (PARAMETER_BITS - 1)) >> PARAMETER_BITS
    return np.asarray((factors * high << HALF_BITS - PARAMETER_BITS) + rounded)


def encoder(size: int) -> Encoder:
    """The fit with the fewest buffers that is within 0.2 % of the square root's noise."""
    return forgetting(size, 1.0)


def forgetting(size: int, forget: float) -> Encoder:
    """The fit for weighted sums: C(w z), with weights and decays of a plain fit times w, is as near to their root.

    A column hardly counts beyond the syncs that are remembered, so the fit need not reach further.
    """
    target = SLACK * float(np.sum((square_root(size) * forget ** np.arange(size)) ** 2))  # column norm x row norm
    reach = size if forget == 1 else min(size, math.ceil(math.log(REMEMBERED) / math.log(forget)))
    plain = (_fit(reach, buffers) for buffers in range(1, MOST_BUFFERS + 1))
    fits = ((_coarse(forget, decays), _coarse(forget, weights)) for decays, weights in plain)
    fit = next((fit for fit in fits if noise(*fit, size, forget) <= target), None)
    if fit is None and reach == 1:
        raise ArgumentError("forget", f"must be larger for mechanism 'blt', got {forget:g}: nothing is remembered")
    if fit is None:  # beyond a million syncs: decays would have to be finer than 2^-24
        raise ArgumentError(
            "mechanism", f"must not be 'blt' over {size:,} syncs: no fit with {MOST_BUFFERS} buffers is close enough"
        )
    decays, weights = fit
    powers = np.array(decays) ** np.arange(size - 1)[:, None]
    column = np.append(1.0, powers @ np.array(weights))  # a power series would lose four digits
    return Blt(size, tuple(column.tolist()), decays, weights, forget=forget)


# -- the fit, the same on every machine -------------------------------------------------------------------------------

Parameters = tuple[float, ...]


@lru_cache(maxsize=32)
def _fit(size: int, buffers: int) -> tuple[Parameters, Parameters]:
    """Decays and weights that minimise the worst-prefix noise; the search starts from evenly spread time scales."""
    longest = max(2.0, size / 2)
    ratio = _crossing(lambda x: _power(x, buffers - 1) - longest, 1.0, longest) if buffers > 1 else 1.0
    scales = [_power(ratio, i) + 0.5 for i in range(buffers)]
    shares = [1 / math.sqrt(scale) for scale in scales]
    point = [math.sqrt(scale) for scale in scales] + [math.sqrt(share / (2 * math.fsum(shares))) for share in shares]
    for _ in range(2):  # a restart rebuilds the simplex and gets out of its corners
        point = _least(lambda free: noise(*_unpacked(free), size), point)
    decays, weights = _unpacked(point)
    return _coarse(1.0, decays), _coarse(1.0, weights)


def _unpacked(free: Sequence[float]) -> tuple[Parameters, Parameters]:
    """Decays in [0, 1) and weights of at least 0 from any numbers, which are roots of time scales and of weights."""
    half = len(free) // 2
    return tuple(x * x / (1 + x * x) for x in free[:half]), tuple(x * x for x in free[half:])


def _coarse(factor: float, values: Parameters) -> Parameters:
    return tuple(round(factor * value * 2**PARAMETER_BITS) / 2**PARAMETER_BITS for value in values)


def noise(decays: Parameters, weights: Parameters, size: int, forget: float = 1.0) -> float:
    """Column norm of C times the largest row norm of B, from their entries as sums of powers.

    With x = 1/z, C = prod_i (x - r_i) / prod_i (x - l_i). Its zeros r_i are those of 1 + sum_i w_i / (x - l_i), one
    below each decay. Then 1 / C = 1 + sum_i a_i / (x - r_i), and B = 1 / ((1 - w z) C) has the first column
    b_k = (1 + sum_i a_i / (w - r_i)) w^k - sum_i a_i / (w - r_i) r_i^k.
    """
    pairs = sorted((decay, weight) for decay, weight in zip(decays, weights, strict=True) if weight > 0)
    poles = [decay for decay, _ in pairs]
    if len(set(poles)) < len(poles) or not poles or poles[-1] >= 1:
        return math.inf
    column = 1 + _square([weight for _, weight in pairs], poles, size - 1)
    lowest = poles[0] - math.fsum(weight for _, weight in pairs)
    zeros = [
        _crossing(lambda x: -1 - math.fsum(weight / (x - decay) for decay, weight in pairs), low, high)
        for low, high in zip([lowest, *poles], poles, strict=False)
    ]
    if zeros[0] <= -1 or any(zero in poles for zero in zeros):
        return math.inf
    shares = [-_product(zero, poles) / _product(zero, [other for other in zeros if other != zero]) for zero in zeros]
    ends = [share / (forget - zero) for share, zero in zip(shares, zeros, strict=True)]
    row = _square([1 - math.fsum(ends), *ends], [forget, *zeros], size)
    return math.sqrt(column * row)


def _square(factors: Sequence[float], bases: Sequence[float], length: int) -> float:
    """The sum over k < length of (sum_i factor_i base_i^k)^2."""
    total = 0.0
    for factor, base in zip(factors, bases, strict=True):
        for other_factor, other in zip(factors, bases, strict=True):
            ratio = base * other
            series = length if ratio == 1 else (1 - _power(ratio, length)) / (1 - ratio)
            total += factor * other_factor * series
    return total


def _product(x: float, roots: Sequence[float]) -> float:
    """prod (x - root)."""
    total = 1.0
    for root in roots:
        total *= x - root
    return total


def _power(base: float, exponent: int) -> float:
    """base^exponent by squaring, because libraries differ in how they round a power."""
    total = 1.0
    while exponent:
        if exponent & 1:
            total *= base
        base *= base
        exponent >>= 1
    return total


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function crosses from below to above 0 between two places; it is not evaluated at these two."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return middle


def _least(function: Callable[[Sequence[float]], float], start: Sequence[float]) -> list[float]:
    """Where a function is least, near `start`: the simplex of Nelder and Mead, corners in order of value."""
    corners = [list(start)] + [[x * 1.05 if i == j else x for j, x in enumerate(start)] for i in range(len(start))]
    simplex = sorted((function(corner), corner) for corner in corners)

    def beyond(far: float) -> tuple[float, list[float]]:
        """The worst corner, moved along the line through the middle of the others, and the value there."""
        others, worst = [corner for _, corner in simplex[:-1]], simplex[-1][1]
        middle = [math.fsum(corner[i] for corner in others) / len(others) for i in range(len(worst))]
        moved = [m + far * (m - w) for m, w in zip(middle, worst, strict=True)]
        return function(moved), moved

    for _ in range(STEPS):
        best, second, worst = simplex[0][0], simplex[-2][0], simplex[-1][0]
        if worst - best <= ENOUGH * best:
            break
        found = beyond(1.0)
        if found[0] < best:
            found = min(found, beyond(2.0))
        elif found[0] >= second:
            found = beyond(0.5 if found[0] < worst else -0.5)
        if found[0] < min(worst, math.inf):
            simplex[-1] = found
        else:
            middle = [[(x + y) / 2 for x, y in zip(corner, simplex[0][1], strict=True)] for _, corner in simplex[1:]]
            simplex[1:] = [(function(corner), corner) for corner in middle]
        simplex.sort()
    return simplex[0][1]
