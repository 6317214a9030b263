"""Tests of the noise itself: of the residual that is left when the noiseless release is subtracted from a message.

The auditor knows which world it played. If the claim is true, residuals are Gaussian noise with the claimed standard
deviation, independent between entries, releases, silos and runs; and a share of a secret is uniform and independent in
the same ways. Each test below is exact or nearly so under that claim, and their levels add up to `FALSE_ALARMS`. A
failed test proves that the noise is not the noise that the proof of the guarantee relies on. It does not prove an
epsilon: how much an adversary gains depends on the fault.

More noise than claimed is not a failure: variances are only tested for being too small, and no other test depends on
the scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtr, chdtrc, ndtri, pdtrc, stdtr

from fedbandit._arrays import Flags, Floats, Words
from fedbandit.protocol.adversaries import Residual

__all__ = ["FALSE_ALARMS", "Recorder", "ResidualTally", "Tallies", "failures", "merged", "tallied", "too_small"]

FALSE_ALARMS = 0.001  # of all tests of one audit together
WHOLE_ALARMS = 1e-6  # of these, for the plan as it is (`too_small`): a number without noise is found whatever the level
_TAIL = (1e-4, 1e-3, 5e-3, 0.02)
EDGES = np.array([*_TAIL, *np.linspace(0.05, 0.95, 19), *(1 - p for p in reversed(_TAIL))])  # of bins, as probabilities
BINS = len(EDGES) + 1
FEWEST = 50  # expected counts per bin; bins with fewer are merged, from the tails inwards
PRINTS = 2_000  # fingerprints kept per chunk, to compare with those of other chunks
KEPT = 100_000  # numbers tested per chunk, about
FEWEST_RUNS = 20

Sums = dict[str, Floats]
Tallies = dict[str, "ResidualTally"]


@dataclass(frozen=True)
class ResidualTally:
    """The sums from which the tests of one stream of noise are computed; tallies of several chunks can be added."""

    squares: Sums  # (..., 2): sum of z^2, and the number of terms
    products: Sums  # (..., 4): sums of x y, x^2 and y^2, and the number of terms
    bins: Floats  # (width, BINS): counts
    prints: tuple[Words, ...]  # fingerprints of some noise vectors, one array per chunk
    repeats: int  # vectors that occurred before in their chunk
    pairs: float  # number of pairs of vectors that were compared
    coincidence: float  # probability that two vectors agree by chance

    def __add__(self, other: ResidualTally) -> ResidualTally:
        return ResidualTally(
            _added(self.squares, other.squares),
            _added(self.products, other.products),
            self.bins + other.bins,
            (*self.prints, *other.prints),
            self.repeats + other.repeats,
            self.pairs + other.pairs,
            self.coincidence,
        )


class Recorder:
    """Collects the residuals of a chunk of runs, sync by sync; of the first runs only, if there are many numbers."""

    def __init__(self, numbers_per_run: int) -> None:
        self.runs = max(FEWEST_RUNS, KEPT // max(1, numbers_per_run))
        self._streams: dict[str, list[Residual]] = {}
        self._fresh: Tallies = {}

    def add(self, residuals: Iterable[Residual]) -> None:
        """Add the residuals of one sync."""
        for residual in residuals:
            kept = residual._replace(values=residual.values[: self.runs])
            self._streams.setdefault(residual.name, []).append(kept)

    def fresh(self, name: str, drawn: Floats, earlier: Mapping[str, Floats], runs: Flags) -> None:
        """Add noise (trials, width) that was `drawn` after `earlier` noise, of those `runs` that draw any more: it must
        be large enough, and must not depend on what was there before it. Which runs these are, and which of the earlier
        noise it is, may follow from that noise: what is drawn anew is independent of all of it."""
        kept = np.flatnonzero(runs[: self.runs])
        if not len(kept):
            return
        now = drawn[kept]
        squares = {"entry of all silos": _counted((now**2).sum(axis=0), len(now))}
        products = {family: _crossed(now, other[kept]) for family, other in earlier.items()}
        unread = np.zeros((now.shape[-1], BINS)), (np.zeros(0, dtype=np.uint64),), 0, 0.0, 0.0
        self._fresh = merged((self._fresh, {name: ResidualTally(squares, products, *unread)}))

    def tallies(self) -> Tallies:
        """The tally of every stream."""
        return tallied(self._streams) | self._fresh


def tallied(streams: Mapping[str, Sequence[Residual]]) -> Tallies:
    """The tally of every stream, given its residuals sync by sync; that of a share also compares it with the noise, and
    that of a silo's second noise with the first."""
    stacked = {name: np.stack([r.values for r in syncs]) for name, syncs in streams.items()}
    tallies = {name: _tally(stacked[name], streams[name][0].coincidence) for name in stacked}
    for name, syncs in streams.items():
        others = [n for n, o in streams.items() if o[0].uniform and stacked[n].shape == stacked[name].shape]
        for other in others if not syncs[0].uniform else ():
            tallies[other].products[f"noise: {name}"] = _products(stacked[other], stacked[name], (0, 1, 2))
        if syncs[0].beside in stacked:
            own, first = stacked[name], stacked[syncs[0].beside]
            tallies[name].products["beside"] = _crossed(own, first)
            tallies[name].products["beside, before"] = _crossed(own[1:], first[:-1])
            tallies[name].products["beside, after"] = _crossed(own[:-1], first[1:])
            if own.shape[2] > 1:
                tallies[name].products["beside, next silo"] = _crossed(own[:, :, :-1], first[:, :, 1:])
                tallies[name].products["beside, last silo"] = _crossed(own[:, :, 1:], first[:, :, :-1])
    return tallies


def merged(several: Iterable[Tallies]) -> Tallies:
    """The tallies of all chunks, added up."""
    total: Tallies = {}
    for tallies in several:
        for name, tally in tallies.items():
            total[name] = total[name] + tally if name in total else tally
    return total


# -- the sums ----------------------------------------------------------------------------------------------------------


def _tally(z: Floats, coincidence: float) -> ResidualTally:
    """The tally of residuals (syncs, runs, silos, width)."""
    syncs, runs, silos, width = z.shape
    squares = {
        "entry": _counted((z**2).sum(axis=(0, 1)), syncs * runs),
        "entry of all silos": _counted((z**2).sum(axis=(0, 1, 2)), syncs * runs * silos),  # stronger in few runs
        "sync": _counted((z**2).sum(axis=(1, 2, 3)), runs * silos * width),
    }
    products = {
        "centre": _products(z, np.ones_like(z), (0, 1)),
        "entries": _crossed(z, z),
        "runs": _products(z[:, 1::2], z[:, : 2 * (runs // 2) : 2], (0, 1, 2)),
    }
    if syncs > 1:
        for name, first in (("before, even", 0), ("before, odd", 1)):  # disjoint pairs: the test is exact
            now = z[first + 1 :: 2]
            if len(now):
                products[name] = _crossed(now, z[first::2][: len(now)])
        earlier = np.cumsum(z, axis=0)[:-1] / np.sqrt(np.arange(1, syncs))[:, None, None, None]
        products["earlier"] = _products(z[1:], earlier, (0, 1, 2))
    if silos > 1:
        products["neighbours"] = _products(z[:, :, 1:], z[:, :, :-1], (0, 1, 3))
        products["first silo"] = _products(z[:, :, 1:], np.broadcast_to(z[:, :, :1], z[:, :, 1:].shape), (0, 1, 3))
    prints = _fingerprints(z)
    vectors = len(prints)
    return ResidualTally(
        squares,
        products,
        _binned(z),
        (prints[:PRINTS],),
        vectors - len(np.unique(prints)),
        vectors * (vectors - 1) / 2,
        coincidence,
    )


def _counted(sums: Floats, count: int) -> Floats:
    return np.stack([sums, np.full(sums.shape, float(count))], axis=-1)


def _products(x: Floats, y: Floats, axes: tuple[int, ...]) -> Floats:
    """Sums of x y, x^2 and y^2 over `axes`, and the number of terms, (..., 4)."""
    sums = [
        np.einsum("abcd,abcd->" + "".join(c for i, c in enumerate("abcd") if i not in axes), p, q)
        for p, q in ((x, y), (x, x), (y, y))
    ]
    count = float(np.prod([x.shape[axis] for axis in axes]))
    return np.stack([*sums, np.full(sums[0].shape, count)], axis=-1)


def _crossed(x: Floats, y: Floats) -> Floats:
    """The same sums for every entry of x with every entry of y, (width, width of y, 4)."""
    left, right = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    xx, yy = (np.einsum("nd,nd->d", side, side) for side in (left, right))
    shape = (x.shape[-1], y.shape[-1])
    return np.stack(
        [left.T @ right, np.broadcast_to(xx[:, None], shape), np.broadcast_to(yy, shape), np.full(shape, len(left))],
        axis=-1,
    ).astype(np.float64)


def _binned(z: Floats) -> Floats:
    """How many numbers of each entry, divided by the entry's own deviation, lie in each bin: (width, BINS)."""
    flat = z.reshape(-1, z.shape[-1])
    deviations = np.sqrt(np.mean(flat**2, axis=0))
    bins = np.searchsorted(ndtri(EDGES), flat / np.where(deviations > 0, deviations, 1.0))
    bins += BINS * np.arange(z.shape[-1])
    return np.bincount(bins.ravel(), minlength=BINS * z.shape[-1]).reshape(-1, BINS).astype(np.float64)


def _fingerprints(z: Floats) -> Words:
    """One word per noise vector: equal for equal vectors, and hardly ever for different ones."""
    words = np.ascontiguousarray(z.reshape(-1, z.shape[-1])).view(np.uint64)
    factors = np.random.default_rng(0).integers(0, 2**63, size=z.shape[-1], dtype=np.uint64) * np.uint64(2) + 1
    mixed = words * factors
    mixed ^= mixed >> np.uint64(29)
    return np.asarray((mixed * factors).sum(axis=-1, dtype=np.uint64))


def _added(one: Sums, other: Sums) -> Sums:
    return {name: _padded_sum(one[name], other[name]) if name in other else one[name] for name in one} | {
        name: sums for name, sums in other.items() if name not in one
    }


def _padded_sum(one: Floats, other: Floats) -> Floats:
    """The sum of two arrays whose first axes may differ in length: chunks may have different numbers of syncs."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


# -- the tests ---------------------------------------------------------------------------------------------------------


class _Test(NamedTuple):
    family: str
    where: tuple[int, ...]
    size: float  # what was measured: a share of the variance, a correlation, a count
    p: float


_MEANS = {
    "entry": "noise of entry {0[1]} of silo {0[0]} has {1:.3f} of the claimed variance",
    "entry of all silos": "noise of entry {0[0]} of all silos has {1:.3f} of the claimed variance",
    "sync": "noise of sync {0[0]} has {1:.3f} of the claimed variance",
    "centre": "noise of entry {0[1]} of silo {0[0]} is not centred ({1:+.3f} deviations)",
    "entries": "the noise of entries {0[0]} and {0[1]} of one release is correlated ({1:+.3f})",
    "runs": "noise of entry {0[0]} is correlated between runs ({1:+.3f})",
    "before, even": "noise of entry {0[0]} is correlated with that of entry {0[1]} one release before ({1:+.3f})",
    "before, odd": "noise of entry {0[0]} is correlated with that of entry {0[1]} one release before ({1:+.3f})",
    "earlier": "noise of entry {0[0]} is correlated with the noise of earlier releases ({1:+.3f})",
    "neighbours": "the noise of silo {0[0]} and the next one is correlated ({1:+.3f})",
    "first silo": "the noise of the first silo appears again at another one ({1:+.3f})",
    "law": "noise of entry {0[0]} is not Gaussian (chi-square {1:.0f})",
    "whole law": "noise of all entries together is not Gaussian (chi-square {1:.0f})",
    "repeats": "{1:.0f} noise vectors occur more than once",
    "beside, before": "number {0[0]} of this noise is correlated with number {0[1]} of the silo's other noise"
    " one release before ({1:+.3f})",
    "beside, after": "number {0[0]} of this noise is correlated with number {0[1]} of the silo's other noise"
    " one release later ({1:+.3f})",
    "beside, next silo": "number {0[0]} of this noise is correlated with number {0[1]} of the next silo's other noise"
    " ({1:+.3f})",
    "beside, last silo": "number {0[0]} of this noise is correlated with number {0[1]} of the other noise of the silo"
    " before ({1:+.3f})",
    "beside": "number {0[0]} of this noise is correlated with number {0[1]} of the silo's other noise ({1:+.3f})",
    "last look": "number {0[0]} of this noise is correlated with number {0[1]} of the noise that the rule saw last"
    " ({1:+.3f})",
    "first look": "number {0[0]} of this noise is correlated with number {0[1]} of the noise that the rule saw first"
    " ({1:+.3f})",
    "all looks": "number {0[0]} of this noise is correlated with number {0[1]} of all noise that the rule saw"
    " ({1:+.3f})",
    "release before": "number {0[0]} of this noise is correlated with number {0[1]} of the release before it"
    " ({1:+.3f})",
    "noise": "entry {0[0]} of the share is correlated with the noise it hides ({1:+.3f})",
}


def failures(tallies: Tallies) -> dict[str, tuple[int, tuple[str, ...]]]:
    """By stream: the number of tests, and for each kind of test that failed, the worst failure in words."""
    tests = {name: list(_tests(tally)) for name, tally in tallies.items()}
    level = (FALSE_ALARMS - WHOLE_ALARMS) / max(1, sum(map(len, tests.values())))
    return {name: (len(done), tuple(_worst(done, level))) for name, done in tests.items()}


def too_small(streams: Mapping[str, Floats]) -> dict[str, tuple[int, tuple[str, ...]]]:
    """The same for streams of which only the squares of every entry were summed up, (width, 2): sum and number."""
    tests = {name: list(_sizes("entry of all silos", sums)) for name, sums in streams.items()}
    level = WHOLE_ALARMS / max(1, sum(map(len, tests.values())))
    return {name: (len(done), tuple(_worst(done, level))) for name, done in tests.items()}


def _worst(tests: Sequence[_Test], level: float) -> Iterator[str]:
    failed = [test for test in tests if test.p < level]
    for family in dict.fromkeys(test.family for test in failed):
        alike = [test for test in failed if test.family == family]
        worst = max(alike, key=lambda test: (-test.p, abs(test.size)))
        more = f"; {len(alike)} tests of this kind failed" if len(alike) > 1 else ""
        yield _MEANS[family.split(":")[0]].format(worst.where, worst.size) + more


def _tests(tally: ResidualTally) -> Iterator[_Test]:
    for family, sums in tally.squares.items():
        yield from _sizes(family, sums)
    for family, sums in tally.products.items():
        found, p = _correlations(sums)
        places = (at for at in np.ndindex(p.shape) if family != "entries" or at[0] < at[1])
        yield from (_Test(family, at, float(found[at]), float(p[at])) for at in places)
    for entry, counts in enumerate(tally.bins):
        yield from _law("law", (entry,), counts)
    yield from _law("whole law", (), tally.bins.sum(axis=0))  # stronger in few runs
    yield _repeats(tally)


def _sizes(family: str, sums: Floats) -> Iterator[_Test]:
    """Whether a sum of squares is too small for its number of standard Gaussians: exact."""
    shares, p = sums[..., 0] / sums[..., 1], chdtr(sums[..., 1], sums[..., 0])
    yield from (_Test(family, at, float(shares[at]), float(p[at])) for at in np.ndindex(p.shape))


def _correlations(sums: Floats) -> tuple[Floats, Floats]:
    """Correlations about zero, and their two-sided p-values: exact (Student's t) for independent Gaussians."""
    xy, xx, yy, count = np.moveaxis(sums, -1, 0)
    found = np.clip(xy / np.sqrt(np.maximum(xx * yy, np.finfo(float).tiny)), -1, 1)
    freedom = np.maximum(count - 1, 1)
    with np.errstate(divide="ignore"):
        t = np.abs(found) * np.sqrt(freedom / (1 - found**2))
    return found, np.where(np.isfinite(t), 2 * stdtr(freedom, -np.where(np.isfinite(t), t, 0.0)), 0.0)


def _law(family: str, where: tuple[int, ...], counts: Floats) -> Iterator[_Test]:
    """A chi-square test of the counts, if there are enough; conservative, because the deviation was estimated."""
    expected = counts.sum() * np.diff([0.0, *EDGES, 1.0])
    joined = max((tail for tail in range(len(_TAIL) + 1) if expected[: tail + 1].sum() < FEWEST), default=-1) + 1
    if joined > len(_TAIL):
        return
    counts, expected = (
        np.concatenate([[x[: joined + 1].sum()], x[joined + 1 : BINS - joined - 1], [x[BINS - joined - 1 :].sum()]])
        for x in (counts, expected)
    )
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    yield _Test(family, where, statistic, float(chdtrc(len(counts) - 1, statistic)))


def _repeats(tally: ResidualTally) -> _Test:
    """A test for vectors that occur again, within a chunk or in another; by chance their number is Poisson."""
    sizes = np.array([len(prints) for prints in tally.prints], dtype=float)
    across = (sizes.sum() ** 2 - np.sum(sizes**2)) / 2
    every = np.concatenate(tally.prints)
    inside = sum(len(prints) - len(np.unique(prints)) for prints in tally.prints)
    repeats = tally.repeats + len(every) - len(np.unique(every)) - inside
    expected = (tally.pairs + across) * tally.coincidence
    return _Test("repeats", (), repeats, float(pdtrc(repeats - 1, expected)) if repeats else 1.0)
