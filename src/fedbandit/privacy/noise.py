"""Where randomness comes from: protocols draw from a `NoiseSource` that is handed to them.

Simulation and audit hand in `SimulatedNoise`, reproducible from a seed. A live silo has its own source, built on the
operating system's randomness and an exact discrete Gaussian, and offers no way to put another in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedbandit._arrays import Floats, Indices, Integers, Words

__all__ = ["NoiseSource", "SimulatedNoise"]


class NoiseSource(Protocol):
    """The draws that the protocols need, on integers throughout."""

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        """Independent centred Gaussians of these standard deviations, rounded: shape (*lead, len(scales))."""
        ...

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        """Independent Bin(trials, probability)."""
        ...

    def rounded_total(self, values: Floats) -> Integers:
        """The sum over users of values (..., users, width), each rounded up or down at random without bias."""
        ...

    def words(self, shape: tuple[int, ...]) -> Words:
        """Uniform 64-bit words."""
        ...

    def permutation(self, size: int) -> Indices:
        """A uniform permutation of range(size)."""
        ...


@dataclass(frozen=True)
class SimulatedNoise:
    """Draws from a seeded numpy generator: reproducible, and therefore never for a live release."""

    generator: np.random.Generator

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        draws = self.generator.standard_normal((*lead, len(scales)))
        return np.rint(draws * scales).astype(np.int64)

    def binomial(self, trials: int, probability: float, shape: tuple[int, ...]) -> Integers:
        return np.asarray(self.generator.binomial(trials, probability, shape), dtype=np.int64)

    def rounded_total(self, values: Floats) -> Integers:
        from fedbandit.privacy.rounding import rounded_totals  # imported late: numba is slow to load

        *lead, users, width = values.shape
        totals = rounded_totals(values.reshape(-1, users, width), np.uint64(self.words(())))
        return np.asarray(totals).reshape(*lead, width)

    def words(self, shape: tuple[int, ...]) -> Words:
        return np.asarray(self.generator.integers(0, 2**64, size=shape, dtype=np.uint64))

    def permutation(self, size: int) -> Indices:
        return np.asarray(self.generator.permutation(size), dtype=np.intp)
