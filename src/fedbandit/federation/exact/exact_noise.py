"""The randomness of a live release: exact, from the operating system, and without a seed that could be set.

Gaussian noise is OpenDP's discrete Gaussian (exact rational arithmetic, no floating-point leak). Bernoulli, binomial
and permutations are drawn exactly from `secrets`. The class has no parameters on purpose.
"""

from __future__ import annotations

import secrets
from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from fedbandit._arrays import Floats, Indices, Integers, Words
from fedbandit.federation.exact.binomial import bernoulli, binomial

__all__ = ["ExactNoise"]

enable_features("contrib")


class ExactNoise:
    """Every draw that the protocols need, for live use: it takes no seed and no generator.

    Gaussian draws do not depend on data, so `prepare` can draw them ahead of the tick, in memory only. Each prepared
    draw is handed out once.
    """

    __slots__ = ("_prepared",)

    def __init__(self) -> None:
        self._prepared: dict[tuple[bytes, tuple[int, ...]], deque[Integers]] = {}

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        """Exact discrete Gaussians with standard deviations `scales`, shape (*lead, len(scales))."""
        ready = self._prepared.get((scales.tobytes(), lead))
        if ready:
            return ready.popleft()
        return _gaussian(scales, lead)

    def prepare(self, scales: Floats, lead: tuple[int, ...] = ()) -> None:
        """Draw one answer of `gaussian` ahead of time, unless one is already waiting."""
        ready = self._prepared.setdefault((scales.tobytes(), lead), deque())
        if not ready:
            ready.append(_gaussian(scales, lead))

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        """Exact Bin(trials, probability): the probability is the float's exact dyadic value."""
        draws = [binomial(trials, probability) for _ in range(int(np.prod(shape, dtype=np.int64)))]
        return np.array(draws, dtype=np.int64).reshape(shape)

    def rounded_total(self, values: Floats) -> Integers:
        """The sum over users of values (..., users, width), each rounded up with exactly the chance of its fraction."""
        whole = np.floor(values)
        return np.asarray((whole.astype(np.int64) + self._bernoulli(values - whole)).sum(axis=-2))

    def _bernoulli(self, probabilities: Floats) -> Integers:
        """0 or 1, and 1 with exactly the float's own value as its chance: 53 random bits decide, unless they equal the
        float's own first 53."""
        scaled = probabilities * 2.0**53  # exact, and so is its fractional part
        high, first = self.words(probabilities.shape) >> np.uint64(11), np.floor(scaled).astype(np.uint64)
        draws = (high < first).astype(np.int64)
        for index in zip(*np.nonzero(high == first), strict=True):
            draws[index] = bernoulli(float(scaled[index] - np.floor(scaled[index])))
        return draws

    def words(self, shape: tuple[int, ...]) -> Words:
        """Uniform 64-bit words."""
        size = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64).reshape(shape)

    def permutation(self, size: int) -> Indices:
        """A uniform permutation: Fisher-Yates with exact uniform integers."""
        order = list(range(size))
        for last in range(size - 1, 0, -1):
            other = secrets.randbelow(last + 1)
            order[last], order[other] = order[other], order[last]
        return np.array(order, dtype=np.intp)


def _gaussian(scales: Floats, lead: tuple[int, ...]) -> Integers:
    draws = np.zeros((*lead, len(scales)), dtype=np.int64)
    for scale in np.unique(scales[scales > 0]):
        columns = np.flatnonzero(scales == scale)
        size = (*lead, len(columns))
        flat = _discrete_gaussian(float(scale))([0] * int(np.prod(size, dtype=np.int64)))
        draws[..., columns] = np.array(flat, dtype=np.int64).reshape(size)
    return draws


@lru_cache(maxsize=64)
def _discrete_gaussian(scale: float) -> Any:
    domain = vector_domain(atom_domain(T="i64"))
    return make_gaussian(domain, l2_distance(T=float), scale=scale)
