"""A general search for a matrix with less noise, to compare the factorisations with that claim to be the best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from fedbandit.protocol import mechanisms


def searched(size: int, noise_of: Callable[[np.ndarray, np.ndarray], float]) -> tuple[float, float]:
    """The noise of the square root, and the least noise that is found from there; `noise_of` gets C and its inverse."""
    rows, columns = np.tril_indices(size)

    def noise(entries: np.ndarray) -> float:
        C = np.zeros((size, size))
        C[rows, columns] = entries
        return np.inf if np.abs(np.diag(C)).min() < 1e-3 else noise_of(C, np.linalg.inv(C))

    start = mechanisms.encoder("toeplitz", size).coefficients[rows, columns]
    found = minimize(noise, start, method="Nelder-Mead", options={"maxiter": 20_000, "xatol": 1e-8, "fatol": 1e-10})
    return noise(start), float(found.fun)
