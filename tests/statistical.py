"""Tests of random output that say how often they may fail, and are strong enough to reject a wrong answer.

Every test has a size (the chance to fail on a right answer) of ALPHA at most, however many numbers it looks at, and a
power computed beforehand: a standard deviation that is wrong by WRONG is rejected with a chance of POWER at least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, norm, t

from fedbandit._arrays import Floats, Integers

ALPHA = 1e-6
POWER = 1 - 1e-6
WRONG = 1.3


class Verdict(NamedTuple):
    """Whether samples may have come from the law asked about, and by how much."""

    accepted: bool
    detail: str


def std_verdict(samples: Floats, std: float | Floats, alpha: float = ALPHA) -> Verdict:
    """Whether centred samples (n, ...) have this standard deviation, entry by entry (Bonferroni): a chi-square test."""
    count, entries = len(samples), int(np.prod(samples.shape[1:]))
    ratio = np.mean(samples**2, axis=0) / np.square(std)
    low, high = (limit / count for limit in _chi_square_limits(count, alpha / entries))
    text = f"variance ratios {ratio.min():.4f} to {ratio.max():.4f}, allowed {low:.4f} to {high:.4f}"
    return Verdict(bool(((ratio >= low) & (ratio <= high)).all()), text)


def std_power(count: int, entries: int, wrong: float = WRONG, alpha: float = ALPHA) -> float:
    """Chance that `std_verdict` rejects because of a single entry whose deviation is off by `wrong`, either way."""
    low, high = _chi_square_limits(count, alpha / entries)
    too_large = chi2.sf(high / wrong**2, count) + chi2.cdf(low / wrong**2, count)
    too_small = chi2.sf(high * wrong**2, count) + chi2.cdf(low * wrong**2, count)
    return float(min(too_large, too_small))


def _chi_square_limits(count: int, alpha: float) -> tuple[float, float]:
    """Between them lies a chi-square of `count` degrees of freedom with probability 1 - alpha."""
    return float(chi2.ppf(alpha / 2, count)), float(chi2.ppf(1 - alpha / 2, count))


def assert_std(samples: Floats, std: float | Floats) -> None:
    """Samples (n, ...) have this standard deviation in every entry, and 1.3 times or 1/1.3 of it would be rejected."""
    entries = int(np.prod(samples.shape[1:]))
    assert std_power(len(samples), entries) >= POWER, "too few samples to tell a wrong answer"
    verdict = std_verdict(samples, std)
    assert verdict.accepted, verdict.detail
    for wrong in (WRONG, 1 / WRONG):
        for entry in np.ndindex(samples.shape[1:]):
            one = np.broadcast_to(std, samples.shape[1:])[entry]
            assert not std_verdict(samples[(slice(None), *entry)], one * wrong, ALPHA / entries).accepted


def mean_verdict(samples: Floats, mean: float | Floats, std: float | Floats | None = None) -> Verdict:
    """Whether samples (n, ...) have this mean, entry by entry; the standard deviation is estimated if not given."""
    count, entries = len(samples), int(np.prod(samples.shape[1:]))
    spread = samples.std(axis=0, ddof=1) if std is None else std
    score = np.abs(samples.mean(axis=0) - mean) / (spread / np.sqrt(count))
    limit = (norm if std is not None else t(count - 1)).isf(ALPHA / 2 / entries)
    return Verdict(bool((score <= limit).all()), f"off by {score.max():.2f} standard errors, allowed {limit:.2f}")


def covariance_verdict(samples: Floats, covariance: Floats) -> Verdict:
    """Whether centred Gaussian samples (n, k) have this covariance: whitened, all k (k + 1) / 2 moments are tested."""
    count, k = samples.shape
    white = np.linalg.solve(np.linalg.cholesky(covariance), samples.T)
    moments = white @ white.T / count - np.eye(k)
    scores = np.abs(moments) / np.where(np.eye(k) == 1, np.sqrt(2 / count), np.sqrt(1 / count))
    limit = norm.isf(ALPHA / (k * (k + 1)))
    return Verdict(bool((scores <= limit).all()), f"off by {scores.max():.2f} standard errors, allowed {limit:.2f}")


def difference_score(first: Floats, second: Floats) -> float:
    """Mean of the paired differences in standard errors."""
    difference = first - second
    return float(difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference))))


def same_counts_verdict(first: Integers, second: Integers) -> Verdict:
    """Whether two samples of integers come from one law: a chi-square test on cells with at least 20 of both."""
    values = np.unique(np.concatenate([first, second]))
    observed = np.array([[(sample == value).sum() for value in values] for sample in (first, second)], dtype=float)
    cells = _merged(observed)
    expected = cells.sum(axis=1, keepdims=True) * cells.sum(axis=0) / cells.sum()
    statistic = float(((cells - expected) ** 2 / expected).sum())
    limit = float(chi2.isf(ALPHA, cells.shape[1] - 1))
    return Verdict(statistic <= limit, f"chi-square {statistic:.1f}, allowed {limit:.1f} on {cells.shape[1]} cells")


def _merged(observed: Floats) -> Floats:
    """Neighbouring cells merged until each holds 20 observations at least."""
    cells: list[Floats] = []
    for column in observed.T:
        if cells and cells[-1].sum() < 20:
            cells[-1] = cells[-1] + column
        else:
            cells.append(column)
    if len(cells) > 1 and cells[-1].sum() < 20:
        cells[-2:] = [cells[-2] + cells[-1]]
    return np.array(cells).T
